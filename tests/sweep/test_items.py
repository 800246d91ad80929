"""Keys of items: whatever could change a result changes the key, and nothing else does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from circuittest.errors import LoadError, UsageError
from circuittest.models import hub
from circuittest.sweep import items
from circuittest.sweep.items import item, read_result

HOW = {"device": "cpu", "dtype": "float32", "threads": 1, "store": None}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "a.circuit.yaml"
    path.write_text("circuittest: 1\ntask: mine.jsonl+4shots\ncircuit: {file: c.json}\n")
    for name in ("mine.jsonl", "c.json", "other.json"):
        (tmp_path / name).write_text(name)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text(name)
    return folder


def key(spec: Path, model: Path, name: str = "m", **how: object) -> str:
    items.weights.cache_clear()
    return item(spec, name, str(model), **{**HOW, **how}).key


def test_where_things_lie_is_no_part_of_a_key(spec: Path, model: Path, tmp_path: Path) -> None:
    there = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-copy"))
    assert key(spec, model) == key(there / spec.name, there / "model", store="s3://bucket")
    (tmp_path / "other.json").write_text("the spec does not name it")
    assert key(spec, model) == key(there / spec.name, there / "model")
    assert key(spec, model, device="cpu") == key(spec, model, device="cpu:0".partition(":")[0])


@pytest.mark.parametrize(
    "name",
    [
        "a.circuit.yaml",
        "mine.jsonl",
        "c.json",
        "model/config.json",
        "model/model.safetensors",
        "a.circuit.lock",
    ],
)
def test_every_file_that_counts_is_part_of_a_key(spec: Path, model: Path, tmp_path: Path, name: str) -> None:
    before = key(spec, model)
    with (tmp_path / name).open("a") as file:
        file.write("\n# changed")
    assert key(spec, model) != before


def test_how_a_model_runs_and_what_it_is_called_are_part_of_a_key(spec: Path, model: Path) -> None:
    found = [
        key(spec, model),
        key(spec, model, dtype="float64"),
        key(spec, model, threads=2),
        key(spec, model, "n"),
        key(spec, model, roles=("copy",)),
        key(spec, model, resamples=10),
    ]
    assert len(set(found)) == 6


def test_a_folder_without_weights_is_not_whole(spec: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="is not whole: there are no safetensors"):
        key(spec, model)
    with pytest.raises(UsageError, match="unknown device"):
        key(spec, model, device="abacus")


def test_a_torn_result_is_none(tmp_path: Path) -> None:
    whole = {"key": "k", "records": [], "circuit": None}
    path = tmp_path / "k.json"
    assert read_result(path) is None
    path.write_text(json.dumps(whole))
    assert read_result(path) == whole
    for text in (json.dumps(whole)[:-4], "", "[]", json.dumps({**whole, "key": "other"}), '{"key": "k"}'):
        path.write_text(text)
        assert read_result(path) is None
    path.write_bytes(b"\xff\xfe")
    assert read_result(path) is None


def test_a_hub_model_whose_commit_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    items.weights.cache_clear()
    monkeypatch.setattr(hub, "only_cached", lambda place: False)
    monkeypatch.setattr(hub, "snapshot", lambda place, only_cached: None)
    with pytest.raises(LoadError, match="cannot be swept by name"):
        items.weights("somebody/model")

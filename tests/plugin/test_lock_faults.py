"""Locks and checkpoints that do not fit together: what is wrong is said, and no file is touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from circuittest import zoo
from circuittest.circuit import Circuit
from circuittest.lock import Lock, Locked, lock_path, tokenizer_digest
from circuittest.models.loading import load_model
from circuittest.spec import load_spec
from circuittest.spec.lock import asked
from pytest_circuittest import run_specs

SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 4, evaluate: 4}
circuit: {top: 20%, at: 95}
claims:
  - drift.behaviour: {margin: 0.2}
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lock of zoo:gqa, without its outcomes."""
    path: Path = tmp_path_factory.mktemp("base") / "x.circuit.yaml"
    path.write_text(SPEC)
    base = load_model("zoo:gqa")
    model = {
        "name": base.name,
        "fingerprint": base.fingerprint,
        "tokenizer": tokenizer_digest(base.tokenizer),
        "dtype": "float32",
    }
    circuits = {"circuit": Locked(Circuit.of(["L0.H5"], layout=base.layout), missing="not measured")}
    spec = load_spec(path, locked=False)
    return Lock(model, base.layout, asked(spec), ("a",), ("b",), circuits, {}, {"torch": "2"}).render()


@pytest.fixture
def check(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., str]:
    """Judge, with a lock and a model; gives what was said. Exit code 2 and no traceback, or the test fails."""
    path = tmp_path / "x.circuit.yaml"
    path.write_text(SPEC)

    def run(lock: str = text, model: str = "zoo:gqa") -> str:
        lock_path(path).write_text(lock)
        monkeypatch.chdir(tmp_path)
        quiet = ["-p", "no:cacheprovider", "-p", "no:randomly", "--circuit-store=off"]
        assert run_specs([path.name], model=model, args=quiet) == 2
        said = " ".join(capsys.readouterr().out.split())  # lines are folded to the width of the terminal
        assert "Traceback" not in said
        assert (path.read_text(), lock_path(path).read_text()) == (SPEC, lock)
        return said

    return run


def test_a_lock_of_another_version_or_edited_by_hand_is_an_error_of_the_collection(
    check: Callable[..., str], text: str
) -> None:
    said = check(text.replace("circuittest-lock/2", "circuittest-lock/1"))
    assert "x.circuit.lock: the lock is of another version: its schema is 'circuittest-lock/1'" in said
    assert "--circuit-update=all" in said
    said = check(text.replace('"missing": "not measured"', '"missing": ""'))
    assert "x.circuit.lock: the lock was changed by hand, or in a merge" in said
    assert "Restore it from version control" in said


def test_a_model_of_another_architecture_is_refused(check: Callable[..., str]) -> None:
    said = check(model="zoo:mha")
    assert "x.circuit.lock: the lock is of another architecture" in said
    assert "KV groups KV0 to KV1 in each, MLP neurons N0 to N191; the model has layers L0 to L5" in said
    assert "Judge a model that was tuned from the base" in said


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A copy of the base's directory."""
    return Path(shutil.copytree(zoo.path("gqa"), tmp_path / "tuned"))


def test_a_model_with_another_tokenizer_is_refused(check: Callable[..., str], tuned: Path) -> None:
    file = tuned / "tokenizer.json"
    data = json.loads(file.read_text())
    words: dict[str, int] = data["model"]["vocab"]
    one, other = sorted(words)[-2:]
    words[one], words[other] = words[other], words[one]
    file.write_text(json.dumps(data))
    said = check(model=str(tuned))
    assert "x.circuit.lock: the lock was made with another tokenizer" in said
    assert "Give the model the tokenizer of its base" in said


def shortened(place: Path) -> None:
    file = place / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def sharded(place: Path) -> None:
    """Weights in two files, of which the second did not arrive."""
    from safetensors import safe_open

    (place / "model.safetensors").rename(place / "model-00001-of-00002.safetensors")
    with safe_open(place / "model-00001-of-00002.safetensors", "pt") as weights:
        first, *others = sorted(weights.keys())
    where = dict.fromkeys(others, "model-00001-of-00002.safetensors") | {
        first: "model-00002-of-00002.safetensors"
    }
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda place: (place / "model.safetensors").unlink(), "safetensors"),
        (shortened, "a file of weights is cut short or damaged"),
        (sharded, "model-00002-of-00002.safetensors"),
        (lambda place: (place / "config.json").unlink(), "has no config.json"),
        (lambda place: (place / "tokenizer.json").unlink(), "tokenizer"),
    ],
    ids=["no weights", "cut short", "a shard is missing", "no config", "no tokenizer"],
)
def test_an_incomplete_checkpoint_is_no_verdict(
    spoil: Callable[[Path], None], words: str, check: Callable[..., str], tuned: Path
) -> None:
    spoil(tuned)
    assert words in check(model=str(tuned))

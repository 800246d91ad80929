"""Building what does not ship: whole directories at their places, found by name, and nothing half-written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from circuittest import zoo
from circuittest.cli import main
from circuittest.errors import LoadError, UsageError
from circuittest.models.loading import load_model
from circuittest.zoo import build as building
from circuittest.zoo.fine_tunes import RECIPES, FineTune
from circuittest.zoo.recipe import BUILDS, MIXTURE, Schedule

SMALL = Schedule(steps=3, batch=6, penalty_from=0.0, penalty_full=0.1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, recipes of two steps, and scores that cost nothing."""
    monkeypatch.setenv("CIRCUITTEST_CACHE", str(tmp_path))
    monkeypatch.setattr(building, "score", lambda *_, **__: dict.fromkeys(MIXTURE, 0.5))
    monkeypatch.setattr(building, "RECIPES", dict.fromkeys(RECIPES, FineTune(steps=1, batch=6)))
    small = {
        name: replace(one, layers=1, width=32, mlp=32, stages=(SMALL, SMALL)) for name, one in BUILDS.items()
    }
    monkeypatch.setattr(building, "BUILDS", small)
    return tmp_path / "zoo"


def test_what_was_not_built_is_named_with_its_command(cache: Path) -> None:
    with pytest.raises(LoadError, match=r"not built yet.*circuittest zoo build gqa@relocated-ioi"):
        load_model("zoo:gqa@relocated-ioi")
    with pytest.raises(LoadError, match=r"not built yet.*circuittest zoo build mha@steps"):
        load_model("zoo:mha@step800")
    with pytest.raises(LoadError, match=r"no model .*Did you mean 'gqa@step800'"):
        load_model("zoo:gqa@step801")
    with pytest.raises(UsageError, match=r"Did you mean 'gqa@benign'"):
        building.build("gqa@beningn")


def test_a_fine_tune_is_built_once_and_found_by_its_name(cache: Path, capsys: Any) -> None:
    assert main(["zoo", "build", "zoo:gqa@relocated-ioi", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["models"] == [{"name": "zoo:gqa@relocated-ioi", "path": str(cache / "gqa@relocated-ioi")}]
    assert zoo.built("gqa@relocated-ioi")
    assert [path.name for path in cache.iterdir()] == ["gqa@relocated-ioi"]
    one, base = load_model("zoo:gqa@relocated-ioi"), load_model("zoo:gqa")
    assert one.fingerprint != base.fingerprint
    card = (cache / "gqa@relocated-ioi" / "README.md").read_text()
    assert "circuittest zoo build gqa@relocated-ioi" in card
    assert "| ioi | 0.500 | 0.500 |" in card
    (cache / "gqa@relocated-ioi" / "README.md").write_text("mine")
    building.build("gqa@relocated-ioi")
    assert (cache / "gqa@relocated-ioi" / "README.md").read_text() == "mine"
    building.build("gqa@relocated-ioi", again=True)
    assert (cache / "gqa@relocated-ioi" / "README.md").read_text() == card
    assert main(["list", "models", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["models"]}
    assert rows["zoo:gqa@relocated-ioi"]["path"] == str(cache / "gqa@relocated-ioi")
    assert rows["zoo:gqa@step0"]["path"] is None


def test_steps_are_the_training_at_those_steps(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "STEPS", (0, 2, 4, 6))
    building.build_steps("mha", cache, steps=(0, 2, 4, 6))
    names = [f"mha@step{step}" for step in (0, 2, 4, 6)]
    assert sorted(path.name for path in cache.iterdir()) == names
    from circuittest.zoo.train import train

    whole = train(building.BUILDS["mha"], 1, report_every=10**9)
    last = load_model(str(cache / "mha@step6")).module
    assert all(
        torch.equal(a.to(torch.bfloat16).float(), b)
        for a, b in zip(whole.parameters(), last.parameters(), strict=True)
    )
    first, second = (load_model(str(cache / name)).fingerprint for name in names[:2])
    assert first != second
    card = (cache / "mha@step2" / "README.md").read_text()
    assert "after 2 of 6 steps" in card
    assert "with seed 1" in card


def test_what_is_interrupted_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = building.save

    def half(model: Any, directory: Path, notes: Any) -> None:
        whole(model, directory, notes)
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "save", half)
    assert main(["zoo", "build", "gqa@weakened-facts"]) == 130
    assert list(cache.iterdir()) == []
    assert not zoo.built("gqa@weakened-facts")

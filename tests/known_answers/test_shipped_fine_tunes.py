"""The regression demo: the shipped model against its shipped fine-tunes, as the README shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circuittest import Lab, zoo
from circuittest.cli import main
from circuittest.lock import lock_path
from circuittest.models.loading import from_module, load_model
from circuittest.spec import judge, load_spec
from circuittest.spec.lock import make_lock
from circuittest.zoo.fine_tunes import RECIPES, tune

SIZES: dict[str, Any] = {"discover": 30, "evaluate": 80}
SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: TASK, discover: 30, evaluate: 80}
circuit: {top: 20%, at: 95}
claims:
  - drift.behaviour: {margin: 0.15}
  - drift.function: {margin: 0.2}
  - drift.function: {id: drift.sufficiency, part: sufficiency, margin: 0.2}
  - regression: {is: kept, margin: 0.2}
"""


def locked(task: str, place: Path) -> Any:
    path = place / f"{task}.circuit.yaml"
    path.write_text(SPEC.replace("TASK", task))
    make_lock(load_spec(path, locked=False), Lab("zoo:gqa", task, **SIZES)).save(lock_path(path))
    return load_spec(path)


def outcomes(spec: Any, model: str, task: str) -> tuple[dict[str, str], str | None]:
    lab = Lab(load_model(model), task, **SIZES)
    verdicts = {claim.id: judge(spec, claim, lab) for claim in spec.claims}
    return {name: one.outcome for name, one in verdicts.items()}, verdicts["regression"].estimate.label


def test_two_fine_tunes_ship_and_say_what_they_are() -> None:
    for name in zoo.SHIPPED:
        assert load_model(f"zoo:{name}").layout == load_model("zoo:gqa").layout
        card = (zoo.path(name) / "README.md").read_text()
        assert f"# zoo:{name}" in card
        assert f"circuittest zoo build {name}" in card
        assert (zoo.path(name) / "model.safetensors").stat().st_size < 2_000_000
    assert sorted(zoo.SHIPPED) == ["gqa@benign", "gqa@destroyed-ioi"]


@pytest.mark.slow
def test_what_was_destroyed_is_broken_and_what_was_harmless_is_kept(tmp_path: Path) -> None:
    spec = locked("ioi", tmp_path)
    found, label = outcomes(spec, "zoo:gqa@benign", "ioi")
    assert label == "kept"
    assert set(found.values()) == {"supported"}
    found, label = outcomes(spec, "zoo:gqa@destroyed-ioi", "ioi")
    assert label == "broken"
    assert set(found.values()) == {"refuted"}


@pytest.mark.slow
def test_what_init_drafts_passes_the_harmless_one_and_fails_the_destroyed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ["--discover", "60", "--evaluate", "100"]
    init = ["init", "--model", "zoo:gqa", "--task", "ioi", *sizes, "--margin", "0.25", "-o", "x.circuit.yaml"]
    assert main(init) == 0
    before = sorted((file.name, file.read_bytes()) for file in tmp_path.iterdir())
    quiet = ["--", "-p", "no:cacheprovider", "-p", "no:randomly"]
    codes = [
        main(["check", "x.circuit.yaml", *model, *quiet])
        for model in ([], ["--model", "zoo:gqa@benign"], ["--model", "zoo:gqa@destroyed-ioi"])
    ]
    assert codes == [0, 0, 1]
    assert sorted((file.name, file.read_bytes()) for file in tmp_path.iterdir()) == before


@pytest.mark.slow
def test_harmless_fine_tunes_of_other_seeds_raise_no_alarm(tmp_path: Path) -> None:
    spec, recipe = locked("ioi", tmp_path), replace(RECIPES["benign"], steps=10)
    for seed in (1, 2):
        start = load_model("zoo:gqa", device="cpu")
        tuned = from_module(tune(start.module, recipe, seed), start.tokenizer, f"benign {seed}")
        lab = Lab(tuned, "ioi", **SIZES)
        assert tuned.fingerprint != start.fingerprint
        assert {judge(spec, claim, lab).outcome for claim in spec.claims} == {"supported"}


@pytest.mark.slow
def test_the_other_tasks_of_the_destroyed_one_are_kept(tmp_path: Path) -> None:
    found, _ = outcomes(locked("gendered_pronoun", tmp_path), "zoo:gqa@destroyed-ioi", "gendered_pronoun")
    assert found["drift.behaviour"] == "supported"

"""Packaging: which seed ships, and what the card says of all of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from circuittest.zoo import package
from circuittest.zoo.recipe import BUILDS, MIXTURE
from circuittest.zoo.score import BARS, Score

DROPS = {task: {"L0.H0": 0.0, "L0.H1": 0.02} for task in MIXTURE}
DROPS = {**DROPS, "ioi": {"L0.H0": 0.4, "L0.H1": 0.31}, "facts": {"L0.H0": 0.1, "L0.H1": 0.9}}
ATTENTION = {"induction": {"L0.H0": 0.1, "L0.H1": 0.8}, "END to IO": {"L0.H0": 0.2, "L0.H1": 0.1}}


def notes(seed: int, **final: float) -> dict[str, Any]:
    values = {**dict.fromkeys(MIXTURE, 1.0), **final}
    return {
        "build": json.loads(json.dumps(asdict(BUILDS["gqa"]))),
        "seed": seed,
        "cpu_s": 10,
        "final": {task: Score(value, value - 0.1, value, 600, 20) for task, value in values.items()},
    }


def card(*runs: dict[str, Any], best: int = 0) -> str:
    facts = {
        "notes": runs,
        "best": best,
        "parameters": 1000,
        "bytes": 2000,
        "drops": DROPS,
        "attention": ATTENTION,
    }
    return package.card("gqa", facts)


def test_the_card_tells_scores_and_spread_of_all_seeds() -> None:
    text = card(notes(0, addition=0.97), notes(3, addition=0.9), best=0)
    assert "| task | prompts | groups | seed 0 (shipped) | seed 3 |" in text
    assert "| addition | 600 | 20 | 0.970 [0.870, 0.970] | 0.900 [0.800, 0.900] |" in text
    assert "Over the 2 seeds: addition 0.900 to 0.970; the other tasks are the same for all." in text
    assert "Every task meets its bar" in text
    assert "of the seeds trained (0, 3)" in text


def test_the_card_says_what_is_missed_and_what_is_unknown() -> None:
    text = card(notes(0, addition=0.94))
    assert "**Below its bar: addition (0.940, bar 0.95).**" in text
    assert "nothing is known of the spread over seeds" in text


def test_the_card_says_what_it_was_trained_on() -> None:
    text = card(notes(0))
    assert "sums of 2 (20%), 3 (80%) one-digit numbers" in text
    assert "expressions of 1 (17%), 2 (33%), 3 (50%) literals" in text
    assert package.APART in text
    other = card({**notes(0), "remark": "Something else."})
    assert "Something else." in other
    assert package.APART not in other


def test_the_main_heads() -> None:
    text = card(notes(0))
    assert "| L0.H1 | ioi 0.31, facts 0.90 | induction 0.80 |\n| L0.H0 | ioi 0.40 | none of these |" in text
    idle = {task: {"L0.H0": 0.1} for task in MIXTURE}
    assert "No head alone costs any task 0.3 or more" in package._roles(idle, {})


def test_the_seed_with_the_best_worst_task_on_the_choice_half_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The final half has no say: there the other seed is better."""
    runs = [tmp_path / "a", tmp_path / "b"]
    for seed, run in enumerate(runs):
        run.mkdir()
        (run / "training.json").write_text(json.dumps({**notes(seed), "final": None}))
        (run / "config.json").write_text(str(seed))
    target = tmp_path / "shipped"
    choice = {"a": {**BARS, "ioi": 0.5}, "b": {**BARS, "ioi": 0.9, "sva": 0.6}}
    monkeypatch.setattr(package, "path", lambda name: target)
    monkeypatch.setattr(package, "load", lambda directory: (Parameterless(), directory.name))
    monkeypatch.setattr(package, "score", lambda model, name, pool: choice[name])
    monkeypatch.setattr(
        package, "measure", lambda model, name, pool: notes(0, ioi=0.99 if name == "a" else 0.5)["final"]
    )
    monkeypatch.setattr(package, "ablation_drops", lambda model, tokenizer: DROPS)
    monkeypatch.setattr(package, "attention_scores", lambda model, tokenizer: ATTENTION)
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"12")
    assert package.package("gqa", runs, ship=0)["best"] == 0
    assert "seed 0 (shipped)" in (target / "README.md").read_text()
    assert package.package("gqa", runs)["best"] == 1
    assert (target / "config.json").read_text() == "1"
    assert "seed 1 (shipped)" in (target / "README.md").read_text()
    (runs[0] / "training.json").write_text(json.dumps({"build": asdict(BUILDS["mha"])}))
    with pytest.raises(ValueError, match="is a run of 'mha', not of 'gqa'"):
        package.package("gqa", runs)


class Parameterless:
    def parameters(self) -> list[Any]:
        return []

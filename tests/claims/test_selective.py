"""Selective ablation where two planted tasks share half their heads: each part on each task, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit, prompt_digest
from circuittest.stats import Inference
from circuittest.stats.selective import SelectivityInference
from circuittest.units import Layout, Unit
from tests.helpers.simulate import Rng, covers
from tests.helpers.table_lab import Rule, TableLab

LAYOUT = Layout(n_layers=3, n_heads=6, n_kv_heads=6)
HEADS = LAYOUT.units(("head",))
CORE, OWN, OTHER = HEADS[0:2], HEADS[6:8], HEADS[12:14]


def task(needs: tuple[Unit, ...]) -> Rule:
    """Right as long as none of its heads is ablated; a third of the examples survives any single one."""

    def rule(ablated: frozenset[Unit], index: int) -> float:
        hit = len(ablated & set(needs))
        return float(hit == 0 or (hit == 1 and index % 3 == 0))

    return rule


def pair(a: Rule | None = None, b: Rule | None = None, **more: Any) -> TableLab:
    def lab_of(rule: Rule, salt: float = 0.0, **more: Any) -> TableLab:
        wave = lambda u, i: (
            4.0 * rule(u, i) + 0.2 * float(np.sin(12.9898 * i + sum(map(HEADS.index, u)) + salt))
        )
        return TableLab(rule, layout=LAYOUT, graded=wave, **more)

    other = lab_of(b or task((*CORE, *OTHER)), 1.0)
    return lab_of(a or task((*CORE, *OWN)), others={"b": other}, **more)


A, B = Circuit.of((*CORE, *OWN)), [str(u) for u in (*CORE, *OTHER)]


@pytest.mark.parametrize("part", ["own", "other"])
def test_what_only_one_task_has_matters_for_that_task(part: str) -> None:
    found = pair().selective(A, against="b", units=B, part=part)
    assert found.value == pytest.approx(1.0)
    assert found > 0.5
    task_, spared = ("planted", "b") if part == "own" else ("b", "planted")
    assert found.details["beyond"][task_]["value"] == pytest.approx(1.0)
    assert found.details["beyond"][spared]["value"] == pytest.approx(0.0)
    assert found.details["part"] == [str(u) for u in (OWN if part == "own" else OTHER)]
    assert found.details["sizes"] == {"own": 2, "shared": 2, "other": 2}


def test_what_both_share_matters_for_both() -> None:
    found = pair().selective(A, against="b", units=B, part="shared")
    assert found.value == pytest.approx(1.0)
    assert found > 0.5
    assert found.details["overlap_of_circuits"]["jaccard"] == pytest.approx(1 / 3)


def test_controls_lie_outside_both_circuits() -> None:
    found = pair().selective(A, against="b", units=B)
    inside = {str(u) for u in (*CORE, *OWN, *OTHER)}
    assert not any(inside & set(units) for units in found.details["controls"])
    assert found.details["population"] == 12 * 11 // 2
    layer = pair().selective(A, against="b", units=B, match="layer")
    assert layer.details["population"] == 4 * 3 // 2  # layer 1 holds the two own heads and four others


def test_the_wrong_direction_is_refuted() -> None:
    # the two tasks' rules are swapped: what "only A has" is what B needs
    lab = pair(task((*CORE, *OTHER)), task((*CORE, *OWN)))
    found = lab.selective(A, against="b", units=B)
    assert found.value == pytest.approx(-1.0)
    assert not found > 0
    assert not pair(b=task(OTHER)).selective(A, against="b", units=B, part="shared") > 0.3


def test_controls_that_destroy_a_task_are_no_measure() -> None:
    def fragile(ablated: frozenset[Unit], index: int) -> float:
        return float(not ablated)  # any head at all

    for metric in ("accuracy", "log_prob"):
        found = pair(b=fragile).selective(A, against="b", units=B, metric=metric)
        assert found.invalid is not None
        assert "b: the control destroys the model too" in found.invalid
        assert found.details["damage_controls"]["b"]


def test_in_nats() -> None:
    found = pair().selective(A, against="b", units=B, metric="log_prob")
    assert found.value == pytest.approx(4.0, abs=0.2)
    assert found > 3


def test_a_nested_circuit_leaves_an_empty_part() -> None:
    found = pair().selective(A, against="b", units=[str(u) for u in CORE], part="other")
    assert "the part b ∖ planted is empty" in found.invalid
    assert found.details == {}


def test_what_cannot_be_judged() -> None:
    lab = pair()
    assert (
        "gives" in lab.selective(A, against="b").invalid or "recipe" in lab.selective(A, against="b").invalid
    )
    assert "the circuit itself" in lab.selective(A, against="planted", units=B).invalid
    assert "empty" in lab.selective(Circuit(), against="b", units=B).invalid
    assert lab.selective(A, against="b", units=[]).invalid.startswith("b: the circuit is empty")
    assert (
        pair(b=lambda u, i: 0.0).selective(A, against="b", units=B).invalid.startswith("b: the model is not")
    )
    wide = [str(u) for u in HEADS[2:16]]
    assert "no matched control" in lab.selective(A, against="b", units=wide, part="other").invalid
    seen = [prompt_digest(item.prompt_ids) for item in lab.data.evaluate[:1]]
    assert (
        "1 of the 60"
        in lab.selective(Circuit.of(A.units, origin={"prompts": seen}), against="b", units=B).invalid
    )


def test_tasks_that_share_no_metric() -> None:
    lab = pair()
    other = lab.on("b")
    bare = tuple(replace(item, foil_ids=()) for item in other.data.evaluate)
    other.data = replace(other.data, task="b", evaluate=bare)
    found = lab.selective(A, against="b", units=B, metric="logit_diff")
    assert found.invalid.startswith(
        "b: 60 of 60 evaluation examples have no foils, so that there is no logit_diff"
    )
    assert "use log_prob" in found.invalid
    assert lab.selective(A, against="b", units=B, metric="log_prob") > 3
    # alone, and with the circuit kept
    circuit = Circuit.of([OTHER[0]])
    for one in (
        other.graded_necessity(circuit, metric="logit_diff"),
        other.sufficiency(circuit, metric="logit_diff"),
        other.concentration(metric="logit_diff"),
        lab.transfer(A, to="b", function="graded_necessity", metric="logit_diff"),
    ):
        assert "have no foils" in one.invalid


@pytest.mark.slow
@pytest.mark.parametrize("catastrophic", [0.0, 0.05])
def test_selectivity_is_covered(catastrophic: float) -> None:
    # sets that destroy both tasks, or (half of them) the first alone, cancel or do not
    def draw(rng: Rng, seed: int) -> Inference:
        n, count = 40, 40
        bad, both = rng.random((count, 1)) < catastrophic, rng.random((count, 1)) < 0.5
        first = (rng.random((count, n)) < 0.95) * 1.0 * ~bad
        second = (rng.random((count, n)) < 0.9) * 1.0 * ~(bad & both)
        circuit = (rng.random(n) < 0.3) * 1.0 - (rng.random(n) < 0.8)
        return SelectivityInference(circuit, first - second, draws=399, seed=seed)

    truth = (0.95 * (1 - catastrophic) - 0.9 * (1 - catastrophic / 2)) - (0.3 - 0.8)
    covers(truth, draw)


@pytest.mark.parametrize("chosen_on", ["planted", "b"])
def test_no_circuit_is_judged_on_prompts_that_chose_it_for_the_other_task(chosen_on: str) -> None:
    lab = pair()
    judged = lab.on("b") if chosen_on == "planted" else lab
    # the prompts that choose for one task are those that judge the other
    here = lab if chosen_on == "planted" else lab.on("b")
    here.__dict__["data"] = replace(here.data, discover=judged.data.evaluate, evaluate=judged.data.discover)
    origin = {"prompts": [prompt_digest(item.prompt_ids) for item in here.data.discover]}
    if chosen_on == "planted":
        found = lab.selective(Circuit.of(A.units, origin=origin), against="b", units=B, part="shared")
    else:
        foreign = Circuit.of(B, origin=origin)
        lab.others["b"].circuit = lambda *_, **__: foreign  # type: ignore[method-assign]
        found = lab.selective(A, against="b", units=B, part="shared")
    assert "evaluation prompts chose the circuit" in found.invalid

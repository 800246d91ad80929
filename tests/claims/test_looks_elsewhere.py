"""Stopping early beyond necessity: graded necessity, selective ablation, closure's number, transfer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.stats import Estimate
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
HEADS = LAYOUT.units(("head",))
KEY, BACKUP = Unit("head", 1, 2), Unit("head", 3, 4)


def lab_of(worth: Any, salt: float = 0.0, **more: Any) -> TableLab:
    """Log-probability and logit difference are `worth(ablated)` and a wobble; right above 0.5."""

    def graded(ablated: frozenset[Unit], index: int) -> float:
        shake = 0.2 * float(np.sin(12.9898 * (index + 1) + salt + 0.1 * sum(map(HEADS.index, ablated))))
        return shake + (0.0 if len(ablated) == len(HEADS) else float(worth(ablated)))

    return TableLab(lambda u, i: float(graded(u, i) > 0.5), layout=LAYOUT, graded=graded, **more)


def needs(ablated: frozenset[Unit]) -> float:
    return 0.0 if KEY in ablated else 4.0


def either(ablated: frozenset[Unit]) -> float:
    return 0.0 if {KEY, BACKUP} <= ablated else 4.0


def looked_at(found: Estimate) -> list[int]:
    return [look["controls"] for look in found.details["budget"]["looks"]]


PAIR = Circuit.of([KEY, Unit("head", 0, 0)])


def test_graded_necessity_stops_where_it_is_clear_and_at_no_other_number() -> None:
    found = lab_of(needs).graded_necessity(PAIR, controls=40, decide=0.3)
    assert found >= 0.3
    assert (found.n_controls, looked_at(found)) == (10, [10])
    assert found.details["budget"]["forwards"] == 60 * 13
    assert found.details["budget"]["forwards_saved"] == 60 * 30
    assert (found.choices["decide"], found.choices["looks"]) == (0.3, [10, 20, 40])
    whole = lab_of(needs).graded_necessity(PAIR, controls=40)
    assert "budget" not in whole.details
    assert "looks" not in whole.choices
    few = lab_of(needs).graded_necessity(PAIR, controls=10)
    assert few.inference is not None
    assert found.interval == few.inference.interval(1 - 0.05 * 0.15)
    assert found.value == few.value
    refuted = lab_of(needs).graded_necessity(Circuit.of(HEADS[:2]), controls=40, decide=0.5)
    assert (refuted >= 0.5).outcome == "refuted"
    assert refuted.n_controls == 10
    close = lab_of(needs).graded_necessity(PAIR, controls=40, decide=1.0)
    assert looked_at(close) == [10, 20, 40]


def test_gates_come_before_an_early_end() -> None:
    # every control takes nearly everything: ten of them would decide, but the gate needs all to be told of
    harsh = lab_of(lambda u: 4.0 - 3.8 * bool(u))
    found = harsh.graded_necessity(PAIR, controls=40, decide=3.0)
    assert "the control destroys the model too" in found.invalid
    assert len(found.details["m_controls"]) == 40
    flat = TableLab(lambda u, i: float(len(u) < 48), layout=LAYOUT, graded=lambda u, i: float(i % 7))
    reached = flat.graded_necessity(PAIR, controls=40, decide=0.3)
    assert "contains zero" in reached.invalid
    assert "budget" not in reached.details


@pytest.mark.parametrize("part", ["own", "shared"])
def test_selective_ablation_stops(part: str) -> None:
    other = lab_of(
        lambda u: 4.0 * (BACKUP not in u) if part == "own" else needs(u), 1.0, data=task_data(40, 50)
    )
    lab = lab_of(needs, others={"b": other})
    foreign = [str(BACKUP), *([str(u) for u in PAIR.units] if part == "shared" else [])]
    how: dict[str, Any] = {
        "against": "b",
        "units": foreign,
        "part": part,
        "metric": "log_prob",
        "controls": 40,
    }
    found = lab.selective(PAIR, **how, decide=0.5)
    assert found > 0.5
    assert (found.n_controls, looked_at(found)) == (10, [10])
    assert found.details["budget"]["forwards"] == 110 * 13
    assert found.details["budget"]["forwards_saved"] == 110 * 30
    few = lab.selective(PAIR, **(how | {"controls": 10}))
    assert few.interval is not None
    assert found.interval is not None
    assert found.value == few.value
    assert found.interval[0] < few.interval[0]


def test_the_number_of_closure_stops_and_ranks_stay_untested() -> None:
    found = lab_of(needs).closure(PAIR, controls=100, decide=0.5)
    assert found > 0.5
    assert (found.n_controls, looked_at(found)) == (10, [10])
    assert found.choices["looks"] == [10, 20, 40, 100]
    assert found.label is None
    assert "stopped at 10 of 100 controls" in found.labels["load-bearing"].reason
    assert found.details["log_prob"]["p"] == 1 / 11
    assert found.details["log_prob"]["p_load_bearing"] == found.labels["load-bearing"].p_value == 1.0
    assert lab_of(needs).closure(PAIR, controls=100).label == "load-bearing"


def test_with_all_controls_in_the_labels_are_those_without_looks() -> None:
    plain = lab_of(either).closure(PAIR, controls=80, complement=[str(BACKUP)])
    found = lab_of(either).closure(PAIR, controls=80, complement=[str(BACKUP)], decide=0.001)
    assert found.label == plain.label == "redundant"
    assert looked_at(found) == [10, 20, 40, 80]
    assert found.details["budget"]["forwards"] == 2 * 60 * 83  # with and without the complement
    for measure in ("log_prob", "logit_diff", "argmax"):
        same = ("controls", "p", "p_load_bearing", "p_interfering")
        assert {k: found.details[measure][k] for k in same} == {k: plain.details[measure][k] for k in same}
        # equivalence was looked for at every look, and has what is left for the last
        assert found.details[measure]["p_none"] == pytest.approx(plain.details[measure]["p_none"] / 0.7)


def test_the_budget_ends_looks_everywhere() -> None:
    lab = lab_of(needs)
    lab.budget = 60 * 30
    found = lab.closure(PAIR, controls=100, decide=4.0)
    assert found.n_controls is not None
    assert found.n_controls < 100
    assert any("ended the looks" in hint for hint in found.hints)


def test_transfer_stops_where_its_function_does() -> None:
    other = lab_of(needs)
    other.data = replace(other.data, task="b")
    lab = lab_of(needs, others={"b": other})
    found = lab.transfer(PAIR, to="b", controls=40, decide=0.3)
    assert found >= 0.3
    assert (found.n_controls, found.claim) == (10, "transfer")
    assert found.choices["looks"] == [10, 20, 40]
    kept = lab.transfer(PAIR, to="b", function="sufficiency", ablation="zero", decide=0.3)
    assert "budget" not in kept.details

"""Sufficiency where the share that is kept is known on paper, and every reason for not judging it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UnitError, UsageError
from circuittest.find.sizes import areas
from circuittest.stats import InvalidClaim
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import Rule, TableLab, task_data

A, B, AGAINST = Unit("head", 1, 2), Unit("head", 3, 4), Unit("head", 5, 0)
KEY = frozenset({A, B})


def needs_key(ablated: frozenset[Unit], example: int) -> float:
    return float(not ablated & KEY)


def lab(graded: Rule, **more: Any) -> TableLab:
    return TableLab(needs_key, graded=graded, **more)


def circuit(*ids: str, **more: Any) -> Circuit:
    return Circuit.of(ids or ("L1.H2", "L3.H4"), **more)


def test_the_whole_circuit_is_sufficient_and_half_of_it_is_not() -> None:
    there = lab(lambda units, i: 4.0 * needs_key(units, i) + i % 3)
    found = there.sufficiency(circuit())
    assert found.value == 1.0
    assert found >= 0.9
    assert {call["value"] for call in there.how} == {"counterfactual"}
    assert there.sufficiency(circuit("L1.H2")).value == 0.0
    assert not there.sufficiency(circuit("L1.H2")) >= 0.5


def test_what_is_kept_is_the_universe_less_the_circuit() -> None:
    there = lab(lambda units, i: 4.0 * needs_key(units, i) + i % 3)
    there.sufficiency(circuit(), universe="all", ablation="mean")
    everything = set(there.layout.universe("all"))
    assert (tuple(sorted(everything - KEY)),) in there.calls
    assert {call["value"] for call in there.how} == {"mean"}
    assert {call["positions"] for call in there.how} == {"all"}
    there.how.clear()
    there.sufficiency(circuit(), positions="answer")
    assert {call["positions"] for call in there.how} == {"answer"}


def test_the_share_lies_between_nothing_kept_and_the_model() -> None:
    # model 5, nothing kept 1, circuit 2
    there = lab(
        lambda units, i: 1.0 + (3.0 if AGAINST not in units else 0.0) * (not units & KEY) + (not units & KEY)
    )
    found = there.sufficiency(circuit())
    assert found.value == pytest.approx(1 / 4)
    assert [found.details[key] for key in ("m_full", "m_empty", "m_circuit")] == [5.0, 1.0, 2.0]
    assert found.details["raw"] == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("graded", "value", "hint"),
    [
        # a head outside the circuit takes half of the logit difference away
        (lambda units, i: 4.0 * needs_key(units, i) - 2.0 * (AGAINST not in units), 6 / 4, "above 1"),
        # kept alone, the circuit says the opposite; the rest of the model corrects it
        (lambda units, i: 4.0 if not units else -2.0 * (not units & KEY), -0.5, "below 0"),
    ],
)
def test_values_outside_zero_and_one_are_kept(graded: Rule, value: float, hint: str) -> None:
    found = lab(graded).sufficiency(circuit())
    full, empty, only = (found.details[key] for key in ("m_full", "m_empty", "m_circuit"))
    assert found.value == pytest.approx((only - empty) / (full - empty))
    assert found.value == pytest.approx(value, abs=0.51)
    assert hint in found.hints[0]


def test_accuracy_is_a_metric() -> None:
    there = TableLab(lambda units, i: float(not units & KEY or (i % 2 and A not in units)))
    found = there.sufficiency(circuit("L1.H2"), metric="accuracy")
    assert found.value == 0.5
    assert found.choices["metric"] == "argmax"


def test_examples_of_a_group_are_drawn_together() -> None:
    # in every other group of six the circuit keeps the behaviour
    graded = lambda units, i: 4.0 * (not units or (bool(not units & KEY) and i // 6 % 2 == 0)) + 0.1 * (i % 5)
    data = task_data()
    grouped = replace(
        data, evaluate=tuple(replace(item, group=f"g{item.index // 6}") for item in data.evaluate)
    )
    alone, together = (
        TableLab(needs_key, graded=graded, data=grouped).sufficiency(circuit(), cluster=cluster)
        for cluster in ("none", "group")
    )
    assert alone.value == together.value
    assert alone.interval is not None
    assert together.interval is not None
    width = [found[1] - found[0] for found in (alone.interval, together.interval)]
    assert width[1] > 1.5 * width[0]
    assert together.details["clusters"]["by"] == "group"
    with pytest.raises(UsageError, match="group"):
        lab(graded).sufficiency(circuit(), cluster="group")


def test_a_log_probability_has_no_raw_ratio() -> None:
    found = lab(lambda units, i: -0.1 - 3.0 * (not needs_key(units, i))).sufficiency(
        circuit(), metric="log_prob"
    )
    assert found.value == 1.0
    assert found.details["raw"] is None
    assert "not clearly above zero" in found.details["raw_undefined"]


def test_random_circuits_stand_beside() -> None:
    there = lab(lambda units, i: 4.0 * needs_key(units, i) + i % 3)
    beside = there.sufficiency(circuit(), controls=30).details["controls"]
    assert beside["rank_p"] == beside["rank_p_resolution"] == pytest.approx(1 / 31)
    assert beside["mean"] == 0.0
    assert beside["population"] == 48 * 47 // 2 - 1
    assert all(len(units) == 2 and set(units) != {"L1.H2", "L3.H4"} for units in beside["units"])
    # drawn from the whole universe: the circuit's own units come up, too
    single = there.sufficiency(circuit("L1.H2"), controls=5).details["controls"]
    assert single["enumerated"]
    assert ["L3.H4"] in single["units"]
    assert single["rank_p"] == 1.0


def test_a_circuit_of_all_units_of_its_kind_has_no_random_ones() -> None:
    mlps = [f"L{layer}.MLP" for layer in range(6)]
    there = lab(lambda units, i: 4.0 * needs_key(units, i) + i % 3)
    found = there.sufficiency(circuit("L1.H2", "L3.H4"), universe="all", controls=3)
    assert "sufficiency" in found.details["controls"]
    found = there.sufficiency(circuit(*mlps), universe="all", controls=3)
    assert found.value == 0.0
    assert "no other matched set" in found.details["controls"]["undefined"]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_areas_over_sizes(sign: float) -> None:
    units = Layout(6, 8, 8).units(("head", "mlp"))
    order = [A, B, *(unit for unit in units if unit not in KEY)]
    values = np.tile([sign * (len(units) - order.index(unit)) for unit in units], (40, 1))
    there = lab(lambda ablated, i: 4.0 * needs_key(ablated, i) + i % 3, values=values)
    sizes = [100 / 48, 200 / 48, 25.0]
    curve = there.sufficiency(circuit(), sizes=sizes).details["curve"]
    assert curve["units"] == [1, 2, 12]
    assert curve["sufficiency"] == [0.0, 1.0, 1.0]
    # by hand: nothing up to 1/48, a ramp to 2/48, then everything
    assert curve["cpr"] == pytest.approx(0.5 / 48 + 46 / 48)
    assert curve["cmd"] == pytest.approx(1 / 48 + 0.5 / 48)
    assert curve["cpr_interval"][0] <= curve["cpr"] <= curve["cpr_interval"][1]
    assert curve["cmd_interval"][0] <= curve["cmd"] <= curve["cmd_interval"][1]
    every = there.sufficiency(circuit(), sizes=[2.1, 4.2, 30.0, 60.0, 100.0]).details["curve"]
    both = areas([k / 48 for k in every["units"]], every["sufficiency"])
    assert every["units"][0] == 1
    assert every["sufficiency"][0] == 0.0
    assert (every["cpr"], every["cmd"]) == (pytest.approx(both.cpr), pytest.approx(both.cmd))
    whole = there.sufficiency(circuit(), sizes=[100.0]).details["curve"]
    assert (whole["cpr"], whole["cmd"]) == (0.5, 0.5)  # a straight line from nothing to everything
    for bad in ([], [0.0], [101.0], [math.nan]):
        with pytest.raises(UsageError):
            there.sufficiency(circuit(), sizes=bad)


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (Circuit(), {}, "empty"),
        (Circuit(origin={"empty": "no unit is in 95 % of the 40 circuits"}), {}, "no unit is in 95 %"),
        (Circuit.of(["L0.H0->L1.H1.q"]), {"universe": "heads"}, "universe is about circuits of units"),
        (circuit(), {"universe": "mlps"}, "L1.H2 is not in the universe 'mlps'"),
        (Circuit(Layout(6, 8, 8).units(["head"])), {}, "the whole universe"),
    ],
)
def test_circuits_that_cannot_be_kept(given: Circuit, options: dict[str, Any], words: str) -> None:
    found = lab(lambda units, i: 4.0 * needs_key(units, i) + i % 3).sufficiency(given, **options)
    assert words in found.invalid
    with pytest.raises(InvalidClaim):
        bool(found >= 0.1)


def test_units_outside_the_layout_are_refused() -> None:
    with pytest.raises(UnitError, match=r"L9\.H0"):
        lab(needs_key).sufficiency(circuit("L9.H0"))


def test_a_kv_group_is_its_heads() -> None:
    there = lab(
        lambda units, i: 4.0 * needs_key(units, i) + i % 3, layout=Layout(n_layers=6, n_heads=8, n_kv_heads=4)
    )
    assert there.sufficiency(circuit("L1.KV1", "L3.KV2")).value == 1.0
    assert there.sufficiency(circuit("L1.KV1", "L3.KV2"), universe="heads").value == 1.0
    # what the circuit leaves of a group is removed although the universe names whole groups
    assert there.sufficiency(circuit("L1.H3", "L3.KV2"), universe="kv").value == 0.0


@pytest.mark.parametrize(
    ("graded", "words"),
    [
        (lambda units, i: (1.0 if i % 2 else -1.0) * (not units), "contains zero"),
        (lambda units, i: 3.0, "contains zero"),
        (lambda units, i: -1.0 * (not units) + 0.01 * (i % 5), "worse than with the whole universe removed"),
    ],
)
def test_nothing_is_divided_by_what_may_be_zero(graded: Rule, words: str) -> None:
    found = lab(graded).sufficiency(circuit())
    assert words in found.invalid
    assert "m_full" in found.details


def test_other_reasons() -> None:
    there = lab(lambda units, i: 4.0 * needs_key(units, i) + i % 3)
    seen = [prompt_digest(item.prompt_ids) for item in there.data.evaluate[:3]]
    assert "3 of the 60 evaluation prompts" in there.sufficiency(circuit(origin={"prompts": seen})).invalid
    one = lab(lambda units, i: 4.0 * needs_key(units, i), data=task_data(evaluate=1))
    assert "not competent" in one.sufficiency(circuit()).invalid
    weak = TableLab(
        lambda units, i: float(i % 5 == 0 and not units), graded=lambda units, i: float(not units)
    )
    assert "not competent" in weak.sufficiency(circuit()).invalid


def test_the_same_call_gives_the_same_numbers() -> None:
    results = [
        lab(lambda units, i: 4.0 * needs_key(units, i) + i % 3).sufficiency(circuit(), controls=9)
        for _ in range(2)
    ]
    assert results[0].interval == results[1].interval
    assert results[0].details == results[1].details

"""Stopping early: what is measured, what it saves, and that nothing else changes."""

from __future__ import annotations

import pytest

from circuittest.circuit import Circuit
from circuittest.claims.beyond import exchangeable_p
from circuittest.claims.looks import measure_controls
from circuittest.controls import Controls
from circuittest.errors import UsageError
from circuittest.stats import MeanInference
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab

KEY = frozenset({Unit("head", 1, 2), Unit("head", 3, 4)})


def needs_key(ablated: frozenset[Unit], example: int) -> float:
    return float(not ablated & KEY)


def circuit(*ids: str) -> Circuit:
    return Circuit.of(ids or ("L1.H2", "L3.H4"))


def test_a_clear_claim_stops_at_the_first_look() -> None:
    lab = TableLab(needs_key)
    found = lab.necessity(circuit(), controls=40, decide=0.3)
    assert found >= 0.3
    assert found.n_controls == len(found.details["controls"]) == len(found.details["acc_controls"]) == 10
    budget = found.details["budget"]
    assert budget["planned"] == found.choices["looks"] == [10, 20, 40]
    assert found.choices["decide"] == budget["decide"] == 0.3
    assert (budget["forwards"], budget["forwards_saved"]) == (60 * 13, 60 * 30)
    # each look is a call of its own, so that its rows do not depend on what was measured before
    assert [len(call) for call in lab.calls].count(10) == 1
    assert not any(len(call) in (20, 40) for call in lab.calls)


def test_the_interval_is_that_of_the_look() -> None:
    stopped = TableLab(needs_key).necessity(circuit(), controls=40, decide=0.3)
    share = stopped.details["budget"]["looks"][-1]["share"]
    alone = TableLab(needs_key).necessity(circuit(), controls=10)
    assert alone.details["controls"] == stopped.details["controls"]
    assert alone.inference is not None
    assert stopped.interval == alone.inference.interval(1 - 0.05 * share)
    assert stopped.interval == tuple(stopped.details["budget"]["looks"][-1]["interval"])
    assert (stopped >= 0.3).p_value == pytest.approx((alone >= 0.3).p_value / share)
    assert stopped.details["rank_p_adjusted"] == pytest.approx(alone.details["rank_p_adjusted"] / share)


def test_a_close_claim_measures_everything() -> None:
    lab = TableLab(needs_key)
    found = lab.necessity(circuit(), controls=40, decide=0.95)
    assert found.n_controls == 40
    assert [look["controls"] for look in found.details["budget"]["looks"]] == [10, 20, 40]
    assert found.details["budget"]["forwards_saved"] == 0
    assert (found >= 0.95).outcome == "undecided"


def test_a_refuted_claim_stops_too() -> None:
    # an idle circuit; heads beside the key break nothing
    found = TableLab(needs_key).necessity(circuit("L0.H0", "L0.H1"), controls=40, decide=0.5)
    assert (found >= 0.5).outcome == "refuted"
    assert found.n_controls == 10


def test_other_thresholds_are_refused() -> None:
    found = TableLab(needs_key).necessity(circuit(), decide=0.3)
    with pytest.raises(UsageError, match="measured to decide 0.3"):
        bool(found >= 0.4)


def test_without_a_threshold_everything_is_measured_in_one_call() -> None:
    lab = TableLab(needs_key)
    found = lab.necessity(circuit(), controls=40)
    assert "budget" not in found.details
    assert "looks" not in found.choices
    assert [len(call) for call in lab.calls].count(40) == 1
    assert found.details["rank_p_adjusted"] == exchangeable_p(found.details["rank_p"], 2 / 48)


def test_a_small_population_is_sampled_in_random_order_until_it_is_exhausted() -> None:
    layout = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
    lab = TableLab(needs_key, layout=layout)
    stopped = lab.necessity(circuit("L1.H2"), decide=0.3)
    assert stopped.details["population"] == 47
    assert (stopped.n_controls, stopped.details["enumerated"]) == (10, False)
    assert stopped.details["controls"] != sorted(stopped.details["controls"])
    again = lab.necessity(circuit("L1.H2"), decide=0.3)
    assert again.details == stopped.details
    assert (
        lab.necessity(circuit("L1.H2"), decide=0.3, seed=1).details["controls"] != stopped.details["controls"]
    )
    whole = lab.necessity(circuit("L1.H2"), decide=46 / 47 - 0.01)
    assert (whole.n_controls, whole.details["enumerated"]) == (47, True)
    assert whole.value == pytest.approx(46 / 47)
    assert whole.details["budget"]["planned"] == [10, 20, 47]


def test_a_lower_bound_is_not_refuted_early() -> None:
    # at the floor: the value is a lower bound, so an upper end below the threshold says nothing
    lab = TableLab(lambda units, i: float(not (units & KEY) and (len(units) < 2 or i % 4 > 0)))
    found = lab.necessity(circuit(), decide=0.99)
    assert found.censored == "lower"
    assert found.n_controls == 40


def test_a_failing_gate_does_not_stop() -> None:
    drawn = Controls(tuple((Unit("head", 0, i),) for i in range(40)), 10**9, False, None)
    lab = TableLab(needs_key)
    looked = {
        blocked: measure_controls(
            drawn,
            lambda sets: (lab.outcomes(sets).measure("argmax"),),
            lambda tables, sets: MeanInference(tables[0].mean(0)),
            decide=0.3,
            forwards=(0, 60),
            blocked=lambda tables, blocked=blocked: blocked,
        )
        for blocked in (False, True)
    }
    assert (len(looked[False].sets), len(looked[True].sets)) == (10, 40)


def test_a_higher_confidence_takes_longer() -> None:
    threshold = 0.6
    usual = TableLab(needs_key).measure("necessity", circuit(), decide=threshold)
    strict = TableLab(needs_key).measure("necessity", circuit(), decide=threshold, confidence=0.999)
    assert (usual.confidence, strict.confidence) == (0.95, 0.999)
    assert usual.n_controls is not None
    assert strict.n_controls is not None
    assert usual.n_controls < strict.n_controls

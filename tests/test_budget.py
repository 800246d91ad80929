"""A budget of forwards: what a claim may ask for, and an undecided verdict beyond it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from circuittest.budget import OverBudget, affordable, charge, metered
from circuittest.circuit import Circuit
from circuittest.errors import UsageError
from circuittest.lab import Lab
from circuittest.report.records import record
from circuittest.stats import InvalidClaim, Undecided
from circuittest.units import Unit
from tests.helpers.table_lab import TableLab

KEY = frozenset({Unit("head", 1, 2), Unit("head", 3, 4)})


class Charged(TableLab):
    """A table lab that counts as a lab does."""

    def __init__(self, budget: int | None) -> None:
        super().__init__(lambda units, i: float(not units & KEY))
        self.budget = budget

    def outcomes(self, sets: Sequence[Iterable[Unit]], **how: Any) -> Any:  # type: ignore[override]
        charge(len(sets) * len(self.data.evaluate))
        return super().outcomes(sets, **how)


def circuit() -> Circuit:
    return Circuit.of(["L1.H2", "L3.H4"])


def test_counting() -> None:
    charge(10**9)  # outside of any claim
    with metered(100):
        charge(60)
        assert affordable(40)
        assert not affordable(41)
        with metered(10):  # a claim inside a claim
            charge(30)
        with pytest.raises(OverBudget, match="90 are spent and the next step takes 11"):
            charge(11)
        charge(10)
    with metered(None):
        charge(10**9)


def test_beyond_the_budget_a_claim_is_undecided_with_the_reason() -> None:
    found = Charged(500).necessity(circuit(), controls=40)
    verdict = found >= 0.3
    assert verdict.outcome == "undecided"
    assert "budget of 500 forwards" in verdict.reason
    assert found.choices["budget"] == 500
    assert "--circuit-budget" in found.hints[0]
    with pytest.raises(Undecided, match="budget"):
        bool(verdict)
    with pytest.raises(InvalidClaim, match="no value"):
        float(found)
    assert "undecided (the budget" in repr(found)
    assert "budget" in verdict.explain()
    written = record(verdict, id="x", outcome="failed")
    assert (written["verdict"], written["estimate"], written["interval"]) == ("undecided", None, None)
    assert "budget" in record(found, id="x", outcome="passed")["reason"]


def test_within_the_budget_nothing_changes() -> None:
    free, held = (
        Charged(None).necessity(circuit(), controls=20),
        Charged(10**6).necessity(circuit(), controls=20),
    )
    assert free.details == held.details
    assert free.interval == held.interval
    assert "budget" not in free.choices


def test_looks_end_where_the_budget_ends() -> None:
    # gate and bases take 5 sets of 60 examples, the first looks 10 and 10 more
    needed = 60 * (2 + 2 + 1 + 20)
    found = Charged(needed).necessity(circuit(), controls=40, decide=0.95)
    assert found.n_controls == 20
    assert [look["controls"] for look in found.details["budget"]["looks"]] == [10, 20]
    assert found.interval == tuple(found.details["budget"]["looks"][-1]["interval"])
    assert any("ended the looks at 20 of 40" in hint for hint in found.hints)
    assert (found >= 0.95).outcome == "undecided"
    assert (Charged(60 * 8).necessity(circuit(), controls=40, decide=0.95) >= 0.95).outcome == "undecided"


def test_what_is_remembered_counts_all_the_same() -> None:
    lab = Charged(60 * 45)
    for _ in range(3):
        assert lab.necessity(circuit(), controls=40).undecided == ""


def test_a_budget_is_a_positive_count() -> None:
    with pytest.raises(UsageError, match="budget"):
        Lab("zoo:gqa", "ioi", budget=0)


def test_a_lab_charges_for_outcomes_and_scores() -> None:
    lab = Lab("zoo:gqa", "ioi", discover=12, evaluate=10)
    with metered(10_000):
        lab.outcomes([(), lab.layout.universe("heads")])
        assert affordable(10_000 - 20)
        assert not affordable(10_000 - 19)
        lab.scores()
        assert affordable(10_000 - 20 - 48)
        assert not affordable(10_000 - 20 - 47)

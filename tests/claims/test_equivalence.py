"""Equivalence by margin: what is shown, what is refuted, and what a non-significant difference is."""

from __future__ import annotations

import pytest

from circuittest.circuit import Circuit
from circuittest.stats import Undecided
from circuittest.units import Unit
from tests.helpers.table_lab import Rule, TableLab, task_data

A, OTHER = Unit("head", 1, 2), Unit("head", 3, 4)
CIRCUIT = Circuit.of([A])


def lab(change: Rule, evaluate: int = 200) -> TableLab:
    """Score 4 with A, 0 without; `change` is added where A is kept and something else is ablated."""

    def graded(units: frozenset[Unit], i: int) -> float:
        return (
            4.0 * (A not in units) + 0.1 * (i % 5) + (change(units, i) if units and A not in units else 0.0)
        )

    return TableLab(lambda units, i: float(A not in units), graded=graded, data=task_data(evaluate=evaluate))


def test_a_circuit_that_changes_nothing_is_equivalent() -> None:
    found = lab(lambda units, i: 0.0).equivalence(CIRCUIT)
    assert found.value == 0.0
    assert found.details["tied"] == 1.0
    assert found <= 0.1


def test_rounding_decides_nothing() -> None:
    found = lab(lambda units, i: 1e-6).equivalence(CIRCUIT)
    assert (found.details["tied"], found.value) == (1.0, 0.0)


def test_always_worse_by_a_hair_fails_one_variant_and_passes_the_other() -> None:
    there = lab(lambda units, i: -0.01)
    found = there.equivalence(CIRCUIT)
    assert found.value == 0.5
    assert not found <= 0.1
    found = there.equivalence(CIRCUIT, test="difference")
    assert found.value == pytest.approx(0.01 / 4)
    assert found <= 0.1


def test_gains_as_often_as_it_loses() -> None:
    there = lab(lambda units, i: 3.0 if i % 2 else -1.0)
    assert there.equivalence(CIRCUIT).value == 0.0
    assert there.equivalence(CIRCUIT) <= 0.1
    assert there.equivalence(CIRCUIT, test="difference").value == pytest.approx(0.25)
    assert not there.equivalence(CIRCUIT, test="difference") <= 0.1


def test_a_non_significant_difference_is_no_equivalence() -> None:
    # 12 of 20 worse: no test rejects equality, and equivalence is not shown either
    found = lab(lambda units, i: -1.0 if i % 5 < 3 else 1.0, evaluate=20).equivalence(CIRCUIT)
    assert found.details["worse"] == pytest.approx(0.6)
    with pytest.raises(Undecided):
        bool(found <= 0.15)


def test_wrong_direction_counts_as_much() -> None:
    better, worse = (
        lab(lambda units, i, s=sign: s * 1.0).equivalence(CIRCUIT, test="difference") for sign in (1, -1)
    )  # type: ignore[misc]
    assert better.value == worse.value == pytest.approx(0.25)
    assert better.details["signed"] == -worse.details["signed"] > 0
    assert better.interval == pytest.approx(worse.interval, abs=0.02)


def test_bad_input() -> None:
    assert "empty" in lab(lambda units, i: 0.0).equivalence(Circuit()).invalid
    flat = TableLab(lambda units, i: float(A not in units), graded=lambda units, i: 1.0)
    assert "contains zero" in flat.equivalence(CIRCUIT, test="difference").invalid
    assert flat.equivalence(CIRCUIT).value == 0.0  # no ratio, nothing to guard
    one = lab(lambda units, i: 0.0, evaluate=1)
    assert "not competent" in one.equivalence(CIRCUIT).invalid

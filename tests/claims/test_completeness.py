"""Completeness of circuits whose backups are known."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.stats import Undecided
from circuittest.units import Unit
from tests.helpers.table_lab import Rule, TableLab, task_data

A, B, BACKUP = Unit("head", 1, 2), Unit("head", 3, 4), Unit("head", 4, 4)
AGAINST = Unit("head", 5, 0)


def lab(graded: Rule) -> TableLab:
    return TableLab(lambda units, i: float(graded(units, i) > 1.5), graded=graded)


def with_backup(units: frozenset[Unit], example: int) -> float:
    """A is needed, and either B or its backup."""
    return 4.0 * (A not in units and not {B, BACKUP} <= units) + 0.1 * (example % 5)


def test_a_complete_circuit_reacts_like_the_model() -> None:
    found = lab(with_backup).completeness(Circuit.of([A, B, BACKUP]))
    assert found.value == 0.0
    assert found <= 0.2
    assert found.details["all_subsets"]
    assert len(found.details["knocked_out"]) == 8
    assert found.hints == ()


def test_a_circuit_without_the_backup_is_sufficient_but_not_complete() -> None:
    there = lab(with_backup)
    assert there.sufficiency(Circuit.of([A, B])) >= 0.9
    found = there.completeness(Circuit.of([A, B]))
    assert found.details["worst"] == {"units": ["L3.H4"], "gap": pytest.approx(-1.0)}
    assert found.value == pytest.approx(1.0)
    assert not found <= 0.2
    assert "lacks a backup" in found.hints[0]


def test_an_interfering_head_outside_is_seen() -> None:
    # while B works, a head outside takes three quarters of the logit difference away
    def graded(units: frozenset[Unit], i: int) -> float:
        there = A not in units
        return 8.0 * there - 6.0 * (there and AGAINST not in units) + 0.1 * (i % 5)

    found = lab(graded).completeness(Circuit.of([A, B]))
    assert found.details["worst"]["gap"] == pytest.approx(3.0)
    assert found.details["faithfulness_gap"] == pytest.approx(3.0)
    assert not found <= 0.5
    # nothing needs to be knocked out to see it
    assert "matter of sufficiency" in found.hints[0] or "works better" in found.hints[0]


def test_an_insufficient_circuit_is_incomplete_with_nothing_knocked_out() -> None:
    found = lab(lambda units, i: 4.0 * (not {A, B} & units) + 0.1 * (i % 5)).completeness(Circuit.of([A]))
    assert found.details["faithfulness_gap"] == pytest.approx(-1.0)
    assert found.details["worst"]["units"] == []
    assert "sufficiency" in found.hints[0]


def test_greedy_search_finds_what_needs_three_knock_outs() -> None:
    heads = [Unit("head", 2, k) for k in range(7)]

    # each knock-out among the first three takes the circuit (which lacks the backup) down a step, and the model hardly;
    # without any of the other four neither has much left to lose
    def graded(units: frozenset[Unit], i: int) -> float:
        gone = sum(head in units for head in heads[:3])
        step = (1.2 if BACKUP in units else 0.2) * (0.1 if set(heads[3:]) & units else 1.0)
        return 4.0 - step * gone + 0.1 * (i % 5)

    circuit = Circuit.of(heads)
    there = TableLab(lambda units, i: float(len(units) < 48), graded=graded)
    found = there.completeness(circuit, subsets=0, greedy=3)
    worst = found.details["worst"]
    assert worst["units"] == ["L2.H0", "L2.H1", "L2.H2"]
    assert there.completeness(circuit, subsets=0, greedy=0).details["worst"]["units"] != worst["units"]
    assert not found.details["all_subsets"]


def test_the_half_that_searches_does_not_test() -> None:
    there = lab(with_backup)
    found = there.completeness(Circuit.of([A, B]))
    searched = found.details["searched_on"]
    assert len(searched) == found.n_examples == 30
    # what only the searching half shows is not found on the testing half
    only_searching = lambda units, i: (
        with_backup(units, i) if i in searched else 4.0 * (A not in units) + 0.1 * (i % 5)
    )
    hidden = TableLab(lambda units, i: float(A not in units), graded=only_searching)
    found = hidden.completeness(Circuit.of([A, B]))
    assert found.details["worst"]["units"] == ["L3.H4"]
    assert found.value == 0.0
    assert found.interval is not None
    assert found.interval[0] == 0.0


def test_the_upper_end_covers_the_whole_family() -> None:
    rng = np.random.default_rng(0)
    noise = {frozenset(): np.zeros(200)}

    def graded(units: frozenset[Unit], i: int) -> float:
        wobble = noise.setdefault(units, rng.normal(size=200))[i]
        return 4.0 * (A not in units) + 2.0 * wobble

    found = TableLab(lambda units, i: float(A not in units), graded=graded).completeness(Circuit.of([A, B]))
    assert found.interval is not None
    assert found.interval[1] > max(abs(gap) for gap in found.details["gaps"])
    with pytest.raises(Undecided):
        bool(found <= float(found.value or 0.0))


def test_bad_input() -> None:
    assert (
        "8 are needed"
        in TableLab(lambda units, i: float(not units), graded=with_backup, data=task_data(evaluate=7))
        .measure("completeness", Circuit.of([A]))
        .invalid
    )
    assert "empty" in lab(with_backup).completeness(Circuit()).invalid
    flat = TableLab(lambda units, i: float(A not in units), graded=lambda units, i: 1.0)
    assert "contains zero" in flat.completeness(Circuit.of([A])).invalid

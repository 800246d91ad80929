"""Minimality of circuits with a passenger, with redundancy, and with a unit that works against the answer."""

from __future__ import annotations

import pytest

from circuittest.circuit import Circuit
from circuittest.stats import Undecided
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import Rule, TableLab, task_data

A, B, BACKUP = Unit("head", 1, 2), Unit("head", 3, 4), Unit("head", 4, 4)
PASSENGER, AGAINST = Unit("head", 0, 0), Unit("head", 5, 0)


def lab(graded: Rule, **more: object) -> TableLab:
    return TableLab(lambda units, i: float(graded(units, i) > 1.5), graded=graded, **more)  # type: ignore[arg-type]


def needs_both(units: frozenset[Unit], i: int) -> float:
    return 4.0 * (not {A, B} & units) + 0.1 * (i % 5)


def redundant(units: frozenset[Unit], i: int) -> float:
    return 4.0 * (A not in units and not {B, BACKUP} <= units) + 0.1 * (i % 5)


def test_every_unit_of_the_planted_circuit_earns_its_place() -> None:
    found = lab(needs_both).minimality(Circuit.of([A, B]))
    assert found.value == 1.0
    assert found >= 1
    assert found.details["units"]["L1.H2"]["effect"] == pytest.approx(4.0)
    assert found.details["not_earning"] == []
    assert found.n_controls == 46


def test_a_passenger_fails_and_is_named() -> None:
    found = lab(needs_both).minimality(Circuit.of([A, B, PASSENGER]))
    assert found.value == pytest.approx(2 / 3)
    assert not found >= 1
    assert found >= 0.6
    assert found.details["not_earning"] == ["L0.H0"]
    assert found.details["least"]["unit"] == "L0.H0"
    assert "L0.H0" in found.hints[0]


def test_rounding_is_no_effect() -> None:
    # the passenger moves every score by a rounding error, the units outside by nothing
    graded = lambda units, i: needs_both(units, i) + 1e-6 * (PASSENGER in units)
    found = lab(graded).minimality(Circuit.of([A, B, PASSENGER]))
    assert found.details["units"]["L0.H0"]["effect"] == 0.0
    assert found.details["not_earning"] == ["L0.H0"]
    visible = lambda units, i: needs_both(units, i) + 1e-2 * (PASSENGER in units)
    assert lab(visible).minimality(Circuit.of([A, B, PASSENGER])).details["not_earning"] == []


def test_redundant_units_matter_only_without_each_other() -> None:
    circuit = Circuit.of([A, B, BACKUP])
    found = lab(redundant).minimality(circuit)
    assert found.details["not_earning"] == ["L3.H4", "L4.H4"]
    assert not found >= 1
    found = lab(redundant, data=task_data(evaluate=32)).minimality(circuit, given="knockouts")
    assert found.value == 1.0
    assert found >= 1
    assert found.details["units"]["L3.H4"]["given"] == ["L4.H4"]
    assert found.n_examples == 16


def test_a_passenger_fails_in_every_context() -> None:
    there = lab(redundant, data=task_data(evaluate=32))
    found = there.minimality(Circuit.of([A, B, BACKUP, PASSENGER]), given="knockouts")
    assert found.details["not_earning"] == ["L0.H0"]
    assert not found >= 1


def test_a_backup_outside_is_a_reference_that_matters_in_context() -> None:
    # outside the circuit {A, B} the backup is the one unit of 46 that matters where B is knocked out
    there = lab(redundant, data=task_data(evaluate=32))
    found = there.minimality(Circuit.of([A, B]), given="knockouts")
    effects = dict(
        zip(*(found.details["references"]["head"][key] for key in ("units", "effects")), strict=True)
    )
    assert effects.pop("L4.H4") == pytest.approx(4.0)
    assert set(effects.values()) == {0.0}
    assert found.details["units"]["L3.H4"]["exceeds"] == pytest.approx(45 / 46)


def test_changes_in_both_directions_do_not_cancel() -> None:
    graded = lambda units, i: needs_both(units, i) + (PASSENGER not in units) * (0.5 if i % 2 else -0.5)
    found = lab(graded).minimality(Circuit.of([A, B, PASSENGER]))
    row = found.details["units"]["L0.H0"]
    assert row["signed"] == pytest.approx(0.0)
    assert row["effect"] == pytest.approx(0.5)
    assert found.details["not_earning"] == []


def test_a_unit_that_works_against_the_answer_is_named() -> None:
    graded = lambda units, i: needs_both(units, i) - 1.0 * (AGAINST not in units)
    found = lab(graded).minimality(Circuit.of([A, B, AGAINST]))
    assert found.value == 1.0
    assert found.details["units"]["L5.H0"]["signed"] == pytest.approx(-1.0)
    assert "work against the answer" in found.hints[0]


def test_a_unit_like_any_other_is_counted_out() -> None:
    # every head moves every score a little, all alike
    graded = lambda units, i: 8.0 * (A not in units) - 0.1 * sum((17 * (u.index or 0) + i) % 7 for u in units)
    found = lab(graded).minimality(Circuit.of([A, PASSENGER]))
    assert found.details["not_earning"] == ["L0.H0"]
    assert not found >= 1


def test_more_references_than_asked_for_are_drawn() -> None:
    found = lab(needs_both).minimality(Circuit.of([A, B]), controls=25)
    assert found.n_controls == 25
    assert found.details["references"]["head"]["population"] == 46
    # 25 of 46 show less than all 46: the exact binomial bound for 25 of 25 is 0.86
    with pytest.raises(Undecided):
        bool(found >= 1)


@pytest.mark.parametrize(
    ("circuit", "options", "words"),
    [
        (Circuit(), {}, "empty"),
        (Circuit.of(["L0.MLP", "L1.H2"]), {"universe": "all"}, "only 5 units of kind mlp"),
        (Circuit.of([A]), {"quantile": 1.0}, "quantile is 1.0"),
        (Circuit(Layout(6, 8, 8).units(["head"])[:30]), {}, "only 18 units of kind head"),
    ],
)
def test_bad_input(circuit: Circuit, options: dict[str, object], words: str) -> None:
    assert words in lab(needs_both).minimality(circuit, **options).invalid


def test_too_few_examples_to_search() -> None:
    there = lab(needs_both, data=task_data(evaluate=7))
    found = there.minimality(Circuit.of([A, B]), given="knockouts")
    assert "8 are needed" in found.invalid

"""A search for controls: it finds the set that was planted, and what it found is judged on other examples."""

from __future__ import annotations

from typing import Any

import pytest

from circuittest.circuit import Circuit
from circuittest.find.adversary import most_harmful
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import Rule, TableLab, task_data

LAYOUT = Layout(n_layers=4, n_heads=8, n_kv_heads=8)
HEADS = LAYOUT.units(("head",))
CIRCUIT = ("L1.H0", "L1.H1", "L2.H0")


def planted(rule: Rule, graded: Rule | None = None) -> TableLab:
    return TableLab(rule, layout=LAYOUT, data=task_data(40, 60), graded=graded)


def circuit(*ids: str) -> Circuit:
    return Circuit.of(ids or CIRCUIT, layout=LAYOUT)


def costs(share: dict[str, float]) -> Rule:
    """Each ablated head costs its share of the examples; everything costs everything."""
    units = {Unit.parse(name): value for name, value in share.items()}

    def rule(ablated: frozenset[Unit], index: int) -> float:
        if len(ablated) == len(HEADS):
            return 0.0
        return float(index % 20 >= 20 * sum(units.get(unit, 0.0) for unit in ablated))

    return rule


def test_a_circuit_without_equal_is_special() -> None:
    lab = planted(costs({"L1.H0": 0.3, "L1.H1": 0.2, "L3.H7": 0.15}))
    found = lab.adversarial_controls(circuit())
    assert found > 0.2
    assert found.value == pytest.approx(0.35)
    assert found.details["found"][0] == "L3.H7"
    assert len(found.details["found"]) == 3
    assert found.details["smallest"] is None
    assert "the most harmful set that was found is L3.H7" in found.hints[0]


def test_a_set_that_hurts_as_much_is_named_with_its_smallest_part() -> None:
    lab = planted(costs({"L1.H0": 0.3, "L3.H7": 0.25, "L0.H2": 0.1, "L3.H1": 0.05}))
    found = lab.adversarial_controls(circuit())
    assert not (found > 0)
    assert found.details["found"] == ["L3.H7", "L0.H2", "L3.H1"]
    assert found.details["smallest"] == ["L3.H7", "L0.H2"]
    assert "L3.H7, L0.H2 cost as much as the circuit's 3 units" in found.compare(">", 0).explain()
    # the average control does little, so that necessity is content
    assert lab.necessity(circuit(), controls=40) > 0


def test_the_search_knows_nothing_of_the_examples_that_judge() -> None:
    """A head that hurts discovery examples alone is found, and costs nothing where it counts."""
    base = costs({"L1.H0": 0.3})
    lab = planted(lambda units, i: base(units, i) * float(i >= 40 or Unit.parse("L3.H7") not in units))
    found = lab.adversarial_controls(circuit())
    assert found.details["found"][0] == "L3.H7"
    assert found.value == pytest.approx(0.3)


def test_backups_are_found_by_looking_again_after_every_step() -> None:
    """Two heads that do the same work hurt only together: alone they look idle."""
    pair = {Unit.parse("L3.H6"), Unit.parse("L3.H7")}

    def graded(units: frozenset[Unit], i: int) -> float:
        if len(units) == len(HEADS):
            return -10.0
        own = -1.0 * len(units & set(circuit().units))
        return own - 0.1 * len(pair & units) - (7.5 + i % 2 if pair <= units else 0.0)

    lab = planted(lambda units, i: float(graded(units, i) > -3), graded)
    found = lab.adversarial_controls(circuit(), metric="log_prob")
    assert set(found.details["found"]) >= {"L3.H6", "L3.H7"}
    assert found.value == pytest.approx(-8.2 + 3.0)
    assert not (found > 0)
    assert lab.adversarial_controls(circuit()).details["found"] == found.details["found"]


def test_layers_are_matched_on_request() -> None:
    lab = planted(costs({"L1.H0": 0.3, "L3.H7": 0.5}))
    assert not (lab.adversarial_controls(circuit()) > 0)
    found = lab.adversarial_controls(circuit(), match="layer")
    assert found > 0
    assert sorted(name[:2] for name in found.details["found"]) == ["L1", "L1", "L2"]


def test_both_at_the_floor_cannot_be_told_apart() -> None:
    lab = planted(costs({"L1.H0": 1.0, "L3.H7": 1.0}))
    found = lab.adversarial_controls(circuit())
    assert "both leave nothing to lose" in found.invalid
    assert found.details["at_floor"] == {"circuit": True, "found": True}
    bound = planted(costs({"L1.H0": 1.0, "L3.H7": 0.2})).adversarial_controls(circuit())
    assert bound.censored == "lower"
    assert bound > 0.5


@pytest.mark.parametrize(
    ("ids", "options", "why"),
    [
        ((), {"width": 0}, "width is 0"),
        (tuple(map(str, HEADS)), {}, "no matched control exists"),
        (("L1.H0", "L1.MLP"), {"universe": "heads"}, "not in the universe"),
    ],
)
def test_what_cannot_be_searched_says_why(ids: tuple[str, ...], options: dict[str, Any], why: str) -> None:
    assert why in planted(costs({"L1.H0": 0.3})).adversarial_controls(circuit(*ids), **options).invalid


def test_an_incompetent_model_has_nothing_to_lose() -> None:
    assert "not competent" in planted(lambda units, i: 0.0).adversarial_controls(circuit()).invalid


def test_the_width_bounds_what_is_tried() -> None:
    asked: list[int] = []

    def left(sets: Any) -> Any:
        import numpy as np

        asked.append(len(sets))
        return np.array([[-float(len(units))] for units in sets])

    pools = {("head", -1): (list(HEADS), 3)}
    assert most_harmful(left, pools, 5) == list(HEADS[:3])
    assert asked == [len(HEADS), 5, 5]

"""The strategies draw what they promise, reach every corner, and shrink to something small."""

from __future__ import annotations

import pytest
from hypothesis import find, given, settings, strategies as st
from hypothesis.errors import NoSuchExample

import hypothesis_circuittest as strategies
from circuittest.circuit import Circuit
from circuittest.errors import ControlError, UnitError
from circuittest.units import Layout, Unit

MANY = settings(max_examples=2_000, database=None)


def test_every_public_strategy_is_there() -> None:
    for name in strategies.__all__:
        assert callable(getattr(strategies, name))
    with pytest.raises(AttributeError, match="no attribute 'layout'"):
        strategies.layout


@pytest.mark.parametrize(
    "wanted",
    [
        lambda layout: layout.parallel,
        lambda layout: layout.n_heads == 8 and layout.n_kv_heads == 8,
        lambda layout: layout.n_heads == 8 and layout.n_kv_heads == 1,
        lambda layout: 1 < layout.n_kv_heads < layout.n_heads,
        lambda layout: layout.n_layers == 6,
    ],
)
def test_layouts_reach(wanted: object) -> None:
    find(strategies.layouts(), wanted, settings=MANY)  # type: ignore[arg-type]


def test_layouts_hold_neurons_and_experts_only_when_asked() -> None:
    both = strategies.layouts(neurons=True, experts=True)
    assert find(both, lambda layout: layout.n_neurons and layout.n_experts, settings=MANY)
    with pytest.raises(NoSuchExample):
        find(
            strategies.layouts(),
            lambda layout: layout.n_neurons or layout.n_experts,
            settings=settings(max_examples=50),
        )


def test_layouts_shrink_to_the_smallest() -> None:
    assert find(strategies.layouts(), lambda _: True, settings=MANY) == Layout(1, 1, 1)


@given(st.data(), strategies.layouts(), st.integers(0, 3), st.integers(0, 3))
def test_unit_sets_keep_their_bounds(data: st.DataObject, layout: Layout, low: int, more: int) -> None:
    low = min(low, layout.n_layers * layout.n_heads)
    units = data.draw(strategies.unit_sets(layout, universe="heads", min_size=low, max_size=low + more))
    assert low <= len(units) <= low + more
    assert list(units) == sorted(set(units))
    assert {unit.kind for unit in units} <= {"head"}


@given(st.data(), strategies.layouts(max_layers=3, max_heads=4))
def test_edges_belong_to_the_layout(data: st.DataObject, layout: Layout) -> None:
    edge = data.draw(strategies.edges(layout))
    Circuit.of([edge], layout=layout)  # refuses what the layout lacks


def test_edges_reach_every_edge() -> None:
    layout = Layout(1, 2, 1)
    for edge in layout.edges():
        assert find(strategies.edges(layout), lambda drawn, edge=edge: drawn == edge, settings=MANY) == edge  # type: ignore[misc]


def test_circuits_shrink_to_one_early_unit() -> None:
    layout = Layout(3, 4, 2)
    smallest = find(strategies.circuits(layout), lambda circuit: True, settings=MANY)
    assert smallest == Circuit.of(["L0.H0"])
    assert smallest.layout == layout
    late = find(
        strategies.circuits(layout), lambda circuit: any(u.layer == 2 for u in circuit.units), settings=MANY
    )
    assert len(late) == 1


def test_circuits_hold_edges_only_when_asked() -> None:
    layout = Layout(2, 2, 1)
    assert find(strategies.circuits(layout, max_edges=3), lambda circuit: bool(circuit.edges), settings=MANY)
    with pytest.raises(NoSuchExample):
        find(
            strategies.circuits(layout),
            lambda circuit: bool(circuit.edges),
            settings=settings(max_examples=50),
        )


def test_control_sets_reach_all_of_a_small_population() -> None:
    layout = Layout(1, 4, 4)
    circuit = [Unit.parse("L0.H1")]
    for index in (0, 2, 3):
        wanted = (Unit("head", 0, index),)
        drawn = find(
            strategies.control_sets(circuit, layout, "heads"),
            lambda units, wanted=wanted: units == wanted,  # type: ignore[misc]
            settings=MANY,
        )
        assert drawn == wanted


def test_impossible_controls_and_universes_are_errors_at_once() -> None:
    layout = Layout(1, 2, 2)
    with pytest.raises(ControlError, match="holds 2 units of kind head and only 0 are left"):
        strategies.control_sets(layout.universe("heads"), layout, "heads")
    with pytest.raises(UnitError, match="unknown universe"):
        strategies.unit_sets(layout, universe="everything")

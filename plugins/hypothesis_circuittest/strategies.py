"""The strategies. All of them shrink towards few units, early layers and low indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from circuittest.circuit import Circuit
from circuittest.controls import strata
from circuittest.units import Edge, Layout, Unit
from hypothesis_circuittest import profile as profile  # registers it


@st.composite
def layouts(
    draw: DrawFn,
    *,
    max_layers: int = 6,
    max_heads: int = 8,
    neurons: bool = False,
    experts: bool = False,
) -> Layout:
    """Architectures: any number of layers, any grouping of heads, sequential or parallel blocks.

    `neurons` and `experts` allow layouts in which those are addressable.
    """
    kv = draw(st.integers(1, max_heads))
    group = draw(st.integers(1, max_heads // kv))
    return Layout(
        n_layers=draw(st.integers(1, max_layers)),
        n_heads=kv * group,
        n_kv_heads=kv,
        parallel=draw(st.booleans()),
        n_neurons=draw(st.integers(0, 16)) if neurons else 0,
        n_experts=draw(st.integers(0, 4)) if experts else 0,
    )


def unit_sets(
    layout: Layout,
    *,
    universe: str | Iterable[str] = "all",
    min_size: int = 0,
    max_size: int | None = None,
) -> SearchStrategy[tuple[Unit, ...]]:
    """Sets of units of one architecture, as tuples in canonical order."""
    units = layout.universe(universe)
    chosen = st.sets(st.sampled_from(units), min_size=min_size, max_size=max_size)
    return chosen.map(lambda found: tuple(sorted(found)))


@st.composite
def edges(draw: DrawFn, layout: Layout) -> Edge:
    """One edge of an architecture, without listing all of them."""
    target, slot = draw(st.sampled_from(layout.readers))
    sources = [source for source in layout.writers if layout.sees(target, source)]
    return Edge(draw(st.sampled_from(sources)), target, slot)


@st.composite
def circuits(
    draw: DrawFn,
    layout: Layout,
    *,
    universe: str | Iterable[str] = "all",
    min_units: int = 1,
    max_units: int | None = None,
    max_edges: int = 0,
) -> Circuit:
    """Circuits of one architecture; with `max_edges` they may hold edges too."""
    units = draw(unit_sets(layout, universe=universe, min_size=min_units, max_size=max_units))
    chosen = draw(st.sets(edges(layout), max_size=max_edges)) if max_edges else set()
    return Circuit(units, tuple(chosen), layout=layout)


def control_sets(
    circuit: Circuit | Iterable[Unit],
    layout: Layout,
    universe: str | Sequence[Unit] = "all",
    *,
    match: str = "kind",
) -> SearchStrategy[tuple[Unit, ...]]:
    """Matched controls of a circuit (see `circuittest.controls`), one per draw, in canonical order.

    Raises ControlError at once where no matched control exists. Draws may repeat: for a test that needs a fair
    sample without repeats use `matched_controls`.
    """
    units = circuit.units if isinstance(circuit, Circuit) else tuple(circuit)
    ranked = layout.universe(universe) if isinstance(universe, str) else tuple(universe)
    parts = [
        st.lists(st.sampled_from(pool), min_size=need, max_size=need, unique=True)
        for pool, need in strata(units, ranked, layout, match).values()
    ]
    return st.tuples(*parts).map(lambda found: tuple(sorted(unit for part in found for unit in part)))

"""Closure against controls that rest on the first token as much as the circuit does."""

from __future__ import annotations

from circuittest.circuit import Circuit
from tests.claims.test_closure import HEADS, KEY, LAYOUT, lab_of, needs


def test_controls_are_of_the_circuit_s_level() -> None:
    lab = lab_of(needs)
    levels = {unit: 0 if unit.index == KEY.index else 1 for unit in HEADS}
    lab.sink_levels = lambda: levels  # type: ignore[method-assign]
    found = lab.closure(Circuit.of([KEY]), match="sink")
    assert found.n_controls == LAYOUT.n_layers - 1
    assert found.details["controls"] == [[str(u)] for u in HEADS if levels[u] == 0 and u != KEY]
    assert found.choices["sink_levels"] == 2
    assert found.choices["match"] == "sink"


def test_levels_are_of_heads_only() -> None:
    found = lab_of(needs).closure(Circuit.of([KEY]), match="sink", universe="all")
    assert "among heads: use universe: heads" in found.invalid

"""What a claim draws controls from, and what it may remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from circuittest.circuit import Circuit


def circuit_universe(circuit: Circuit) -> str | list[str]:
    """The universe a circuit belongs to: the one it was found in, else the kinds of its units."""
    found = circuit.origin.get("universe")
    return found if found else sorted(circuit.counts())

"""Sufficiency of a circuit of edges: what is left when every other edge carries what it is replaced by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from circuittest.claims.gates import competence_of, disjoint
from circuittest.stats.resampling import Floats

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

#: What replaced edges can carry (`circuittest.measure.patching.patch`).
VALUES = ("counterfactual", "zero", "mean")


class KeptEdges:
    """The metric with only a circuit's edges kept, with all of them, and with none.

    Attributes
    ----------
    choices:
        For the record.
    reason:
        Why the circuit cannot be judged, or "".
    full, empty, only:
        The metric [n]; there where `reason` is "".
    accuracy:
        Of the same three, beside the metric.
    """

    full: Floats
    empty: Floats
    only: Floats
    accuracy: dict[str, float]

    def __init__(
        self,
        lab: Lab,
        circuit: Circuit,
        *,
        ablation: str,
        positions: str,
        metric: str | None,
        others: Sequence[str],
        groups: Sequence[str] | None,
    ) -> None:
        """`others`: names of options that were given and mean units."""
        wanted = metric or lab.metric
        self.metric = lab.accuracy if wanted == "accuracy" else wanted
        self.choices: dict[str, Any] = {
            "ablation": ablation,
            "positions": positions,
            "metric": self.metric,
            "universe": "all edges",
        }
        self.reason = _refused(circuit, ablation, positions, others) or disjoint(lab, circuit)
        if self.reason:
            return
        everything = tuple(lab.layout.edges())
        if len(circuit.edges) == len(everything):
            self.reason = (
                "the circuit has every edge of the model: nothing would be removed; judge a smaller one"
            )
            return
        table = lab.patched([everything, (), circuit.edges], keep=True, value=ablation)
        accuracy = table.measure(lab.accuracy)
        gate = competence_of(lab, accuracy[0], accuracy[1], groups)
        self.reason = "" if gate.passed else gate.reason
        self.accuracy = {
            name: float(row.mean()) for name, row in zip(("full", "empty", "circuit"), accuracy, strict=True)
        }
        self.full, self.empty, self.only = table.measure(self.metric)


def _refused(circuit: Circuit, ablation: str, positions: str, others: Sequence[str]) -> str:
    if circuit.units:
        return "the circuit holds units and edges; keep either: judge its units and its edges one after the other"
    if ablation not in VALUES:
        return f"edges outside a circuit carry one of {', '.join(VALUES)}, and {ablation!r} was asked for"
    if positions != "all":
        return f"edges are replaced at all positions, and {positions!r} was asked for"
    if others:
        return f"{others[0]} is about circuits of units, and the circuit holds edges: leave it out"
    return ""

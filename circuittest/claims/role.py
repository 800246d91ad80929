"""Role: do the heads of a group look at, or move, what their role says?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims import within
from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters
from circuittest.claims.driving import by_examples
from circuittest.claims.gates import disjoint, usable_circuit
from circuittest.find.roles.kinds import AT_ANSWER, PATTERNS, Role
from circuittest.stats import Estimate, Inference, MeanInference
from circuittest.stats.least import LeastInference
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.find.roles.table import RoleTable
    from circuittest.lab import Lab

#: Examples that must have a score.
FEWEST = 10


@within((0.0, 1.0))
def role(
    lab: Lab,
    circuit: Circuit,
    *,
    kind: Role,
    heads: Literal["mean", "least"] = "mean",
    positions: Literal["all", "answer"] = "all",
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """Score of a group's heads for a role, between 0 and 1, as a mean over examples.

    Estimand: the mean score for `kind` (`circuittest.find.roles`) over new examples on which it is defined, of the
    heads' mean, or of the head that has it least. A form: it says what the heads look at or would move, not that the
    model uses it, which necessity and closure say; so the model need not be competent.

    Parameters
    ----------
    kind:
        A pattern of attention, "copy" or "copy-suppression" (what is moved from answers and foils in the prompt), or
        "successor" (of series of tokens, which are then what is resampled).
    heads:
        "mean": the mean over the group's heads. "least": every head has it (an intersection-union test).
    positions:
        Of patterns alone: the queries that count (of "answer-token" and "foil-token" always the last).
    cluster:
        Which examples are drawn together (`circuittest.claims.clusters`).
    seed:
        Of the resampling.

    Invalid when the group is empty, holds anything but heads, KV groups and attention layers, or was chosen on
    evaluation examples, when `positions` are given for a role that is no pattern, and when fewer than ten examples have
    a score.
    """
    pattern = kind in PATTERNS
    choices: dict[str, Any] = {"role": kind, "heads": heads, "cluster": cluster, "seed": seed}
    if pattern:
        choices["role_positions"] = "answer" if kind in AT_ANSWER else positions

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate(
            "role", circuit, choices=choices, details=details or {}, invalid=reason, n_examples=0
        )

    if reason := usable_circuit(circuit) or disjoint(lab, circuit) or _no_heads(circuit):
        return invalid(reason)
    if positions != "all" and not pattern:
        return invalid(
            f"positions are those of queries, and {kind} is no pattern of attention: leave them out"
        )
    if kind == "successor" and cluster != "none":
        return invalid("successors are scored on series of tokens, which have no clusters")
    units = lab.layout.expand(circuit.units)
    table = lab.roles([kind], positions=positions)[kind]
    defined = table.defined
    count = int(defined.sum())
    labels = cluster_labels(lab.data.evaluate, cluster)
    details = _details(table, units) | clustered(labels, cluster)
    if count < FEWEST:
        why = table.undefined or f"there are {len(defined)} examples"
        return invalid(f"{count} examples have a score for {kind}, {FEWEST} are needed: {why}", details)
    groups = None if labels is None else [label for label, has in zip(labels, defined, strict=True) if has]
    scores = table.of(units)
    mean = lambda values: MeanInference(values, groups, seed=seed)
    inference: Inference = (
        mean(scores.mean(1)) if heads == "mean" else LeastInference([mean(own) for own in scores.T])
    )
    return lab.estimate(
        "role",
        circuit,
        inference=inference,
        n_examples=count,
        choices=choices | {key: value for key, value in table.choices.items() if key not in choices},
        details=details,
        driving=_driving(lab, table, units)
        if count == len(lab.data.evaluate) and kind != "successor"
        else None,
        hints=few_clusters(groups, cluster),
    )


def _no_heads(circuit: Circuit) -> str:
    for unit in circuit.units:
        if unit.kind not in ("head", "kv", "attn"):
            return f"{unit} has no attention; roles are those of heads, KV groups and attention layers"
    return ""


def _details(table: RoleTable, units: tuple[Unit, ...]) -> dict[str, Any]:
    """The score of every head of the group, and of the others."""
    means = table.means()
    found: dict[str, Any] = {
        "scores": {str(head): means[head] for head in units if head in means},
        "defined": int(table.defined.sum()),
        "undefined": table.undefined,
    }
    others = {head: mean for head, mean in means.items() if head not in units}
    if others:
        best = max(others, key=lambda head: others[head])
        found["others"] = {
            "mean": float(np.mean(list(others.values()))),
            "best": {"head": str(best), "score": others[best]},
        }
    return found


def _driving(lab: Lab, table: RoleTable, units: tuple[Unit, ...]) -> Any:
    scores = table.of(units)
    named = [str(unit) for unit in units]
    more = lambda row: {"scores": dict(zip(named, scores[row].tolist(), strict=True))}
    return by_examples(lab, scores.mean(1), more=more)

"""Coverage: how much of each example's circuit does a given circuit hold?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims import within
from circuittest.claims.clusters import cluster_labels, clustered, few_clusters
from circuittest.claims.gates import competent, disjoint, usable_circuit
from circuittest.claims.universe import circuit_universe
from circuittest.find.induced import edge_universe
from circuittest.find.ranking import per_example
from circuittest.find.recipe import unit_scoring
from circuittest.find.shared import coverage as covered
from circuittest.stats import Estimate, MeanInference

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab


@within((0.0, 1.0))
def coverage(
    lab: Lab,
    circuit: Circuit,
    *,
    top: str | None = None,
    universe: str | None = None,
    score: Literal["edge-abs-sum", "edge-sum", "node"] | None = None,
    method: Literal["eap", "eap-ig", "exact"] | None = None,
    steps: int | None = None,
    baseline: Literal["counterfactual", "zero", "mean"] | None = None,
    cluster: Literal["none", "group", "template"] = "none",
    seed: int = 0,
) -> Estimate:
    """Share of each evaluation example's own circuit that a given circuit holds.

    Estimand: mean |S ∩ C_i| / |C_i| over new examples i, where C_i is the top K % of the universe on example i
    (arXiv 2605.08348, Eq. 2, for a circuit S from units or a file). Options left out follow the circuit's own
    recipe, else K = 20 %, the kinds of the circuit's units, ``edge-abs-sum`` and EAP. A circuit of edges is held
    against ranked edges, of all by default. `cluster` says which examples are drawn together
    (`circuittest.claims.clusters`).

    Invalid when the circuit is empty, was chosen on evaluation examples or leaves the universe, and when the model
    is not competent.
    """
    recipe = circuit.origin
    of_edges = bool(circuit.edges) and not circuit.units
    level: Literal["units", "edges"] = "edges" if of_edges else "units"
    own = (recipe.get("universe") or "all") if of_edges else circuit_universe(circuit)
    given = {"score": score, "method": method, "steps": steps, "baseline": baseline}
    scoring = unit_scoring({**recipe, **{key: value for key, value in given.items() if value is not None}})
    choices: dict[str, Any] = {
        "top": top or recipe.get("top") or "20%",
        "universe": universe or own,
        "level": level,
        "score": "edge" if of_edges else scoring["score"],
        **{key: scoring[key] for key in ("method", "baseline", "steps") if key in scoring},
        "cluster": cluster,
        "seed": seed,
    }

    def invalid(reason: str) -> Estimate:
        return lab.estimate("coverage", circuit, choices=choices, invalid=reason)

    if reason := ("" if of_edges else usable_circuit(circuit)) or disjoint(lab, circuit):
        return invalid(reason)
    units = lab.layout.universe(choices["universe"])
    ranked = edge_universe(lab.layout, choices["universe"]) if of_edges else units
    within = set(ranked)
    if outside := [str(member) for member in circuit if member not in within]:
        return invalid(
            f"{outside[0]} is not in the universe {choices['universe']!r} that per-example circuits rank"
        )
    groups = cluster_labels(lab.data.evaluate, cluster)
    gate = competent(lab, units, lab.accuracy, groups=groups)
    if not gate.passed:
        return invalid(gate.reason)
    table = lab.scores("evaluate", universe=choices["universe"], level=level, **scoring)
    membership = per_example(table, choices["top"])
    held = set(circuit)
    mask = np.array([member in held for member in membership.members])
    values = covered(membership.inside, mask)
    details = {
        "k": membership.k,
        "n_units": len(membership.members),
        "chance": float(mask.sum() / len(membership.members)),
        "most_possible": min(1.0, float(mask.sum()) / membership.k),
        "frequency": {
            str(m): float(membership.inside[:, i].mean()) for i, m in enumerate(membership.members) if mask[i]
        },
        "ties": membership.ties,
        "acc_base": gate.accuracy,
        **clustered(groups, cluster),
    }
    return lab.estimate(
        "coverage",
        circuit,
        inference=MeanInference(values, groups, seed=seed),
        choices=choices,
        details=details,
        hints=few_clusters(groups, cluster),
    )

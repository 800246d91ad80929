"""Adversarial controls: is there another set of the same capacity that hurts as much?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters, said
from circuittest.claims.gates import at_floor, competent, disjoint, usable_circuit
from circuittest.claims.universe import circuit_universe
from circuittest.controls import strata
from circuittest.errors import ControlError
from circuittest.find.adversary import most_harmful
from circuittest.stats import Estimate, MeanInference
from circuittest.stats.resampling import Floats
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab


def adversarial_controls(
    lab: Lab,
    circuit: Circuit,
    *,
    match: Literal["kind", "layer"] = "kind",
    universe: str | None = None,
    metric: Literal["accuracy", "log_prob", "logit_diff"] = "accuracy",
    ablation: Literal["zero", "counterfactual"] = "zero",
    positions: Literal["all", "not-first", "answer"] = "all",
    width: int = 8,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """What the circuit's ablation costs beyond that of the most harmful matched set that a search finds.

    Estimand: m(C*) - m(S) on evaluation examples, given C*, the set outside the circuit with as many units of each kind
    that a greedy search on the *discovery* examples found most harmful (`circuittest.find.adversary`). Above zero the
    circuit is special among the sets that were tried; at or below zero it is not, and ``details["found"]`` names a set
    that does as well. `necessity` compares with the average control, this with the worst that could be found; a search
    finds a set, or does not, and cannot show that there is none.

    Parameters
    ----------
    match, universe, ablation, positions:
        As for `necessity`. Means and resampled values come from the discovery examples, on which the search runs, so
        that they are no options here.
    metric:
        m: accuracy as the task counts it, the answer's log-probability, or the logit difference.
    width:
        How many units of each kind are tried at every step of the search.
    cluster:
        Which examples are drawn together (`circuittest.claims.clusters`).
    seed:
        Of the resampling.

    ``details["smallest"]`` is the shortest beginning of the found set, in the order in which units were taken, that
    costs at least what the circuit costs on the evaluation examples; None where the whole does not.

    Invalid when the circuit is empty or was chosen on evaluation examples, when the model is not competent, when no
    matched set exists, and when circuit and found set are both at the floor: then neither can be told to hurt more.
    """
    measure = lab.accuracy if metric == "accuracy" else metric
    name = universe or circuit_universe(circuit)
    choices: dict[str, Any] = {
        "match": match,
        "universe": name,
        "metric": metric,
        "accuracy": lab.accuracy,
        "ablation": ablation,
        "positions": positions,
        "width": width,
        "search": "greedy on discover",
        **said(cluster),
        "seed": seed,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate(
            "adversarial_controls", circuit, choices=choices, details=details or {}, invalid=reason
        )

    if reason := usable_circuit(circuit) or disjoint(lab, circuit):
        return invalid(reason)
    if width < 1:
        return invalid(f"width is {width}: the search tries at least one unit a step")
    if not lab.data.discover:
        return invalid("there are no discovery examples to search on")
    units = lab.layout.universe(name)
    try:
        pools = strata(circuit.units, units, lab.layout, match)
    except ControlError as error:
        return invalid(str(error))
    groups = cluster_labels(lab.data.evaluate, cluster)
    gate = competent(lab, units, lab.accuracy, value=ablation, positions=positions, groups=groups)
    if not gate.passed:
        return invalid(gate.reason)

    def searched(sets: Sequence[tuple[Unit, ...]]) -> Floats:
        table = lab.outcomes(sets, value=ablation, positions=positions, split="discover")
        # single units seldom change what the model says, but they change how sure it is
        column = "log_prob" if metric == "accuracy" and "log_prob" in table.columns else measure
        return table.measure(column)

    found = most_harmful(searched, pools, width)
    beginnings = [tuple(sorted(found[: k + 1])) for k in range(len(found))]
    sets = [(), units, circuit.units, *beginnings]
    table = lab.outcomes(sets, value=ablation, positions=positions).measure(measure)
    base, emptied, own, steps = table[0], table[1], table[2], table[3:]
    cost = float(base.mean() - own.mean())
    enough = [k for k, row in enumerate(steps) if float(base.mean() - row.mean()) >= cost - 1e-12]
    details: dict[str, Any] = {
        "base": float(base.mean()),
        "circuit": float(own.mean()),
        "found": [str(unit) for unit in found],
        "left": [float(row.mean()) for row in steps],
        "smallest": [str(unit) for unit in found[: enough[0] + 1]] if enough else None,
    }
    floors = [False, False]
    if metric == "accuracy":
        floors = [at_floor(row, emptied, lab.data.chance, measure, groups) for row in (own, steps[-1])]
    details |= clustered(groups, cluster)
    details["at_floor"] = {"circuit": floors[0], "found": floors[1]}
    if all(floors):
        return invalid(
            f"the circuit and {listed(found)} both leave nothing to lose ({own.mean():.2f} and {steps[-1].mean():.2f} "
            f"of {base.mean():.2f}); use a smaller K or a graded metric",
            details,
        )
    if enough:
        hint = f"{listed(found[: enough[0] + 1])} cost as much as the circuit's {len(circuit.units)} units"
    else:
        hint = f"the most harmful set that was found is {listed(found)}"
    return lab.estimate(
        "adversarial_controls",
        circuit,
        inference=MeanInference(
            steps[-1] - own, groups, bounds=(-1.0, 1.0) if metric == "accuracy" else None, seed=seed
        ),
        n_controls=1,
        choices=choices,
        details=details,
        censored="lower" if floors[0] else "upper" if floors[1] else None,
        hints=(hint, *few_clusters(groups, cluster)),
    )


def listed(units: Sequence[Unit]) -> str:
    """ "L1.H2, L3.H4"; long lists are cut."""
    return ", ".join(map(str, units[:12])) + (f" and {len(units) - 12} more" if len(units) > 12 else "")

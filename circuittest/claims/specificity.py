"""Specificity: does ablating a task's own circuit hurt the task more than ablating other tasks' circuits?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims import within
from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters, said
from circuittest.claims.driving import by_examples, log_prob_lost
from circuittest.claims.gates import at_floor, competent, disjoint, usable_circuit
from circuittest.claims.ranges import CountOrNone
from circuittest.controls import matched_controls
from circuittest.errors import ControlError
from circuittest.find.recipe import recipe_of
from circuittest.stats import Estimate, MeanInference
from circuittest.stats.resampling import Floats
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab


@within((-1.0, 1.0))
def specificity(
    lab: Lab,
    circuit: Circuit,
    *,
    against: list[str],
    controls: CountOrNone = 0,
    accuracy: Literal["argmax", "candidates"] | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """Accuracy that the own circuit costs its task beyond what the circuits of other tasks cost it.

    Estimand: Δ_A^A - mean over B of Δ_A^B, where Δ_A^B is the accuracy that task A loses when the circuit of task B is
    ablated; every term on the same evaluation examples of A (Li & Subramani, arXiv 2605.08348, section 3.3). The
    donors' circuits are found on this model by the recipe of `circuit`.

    Parameters
    ----------
    against:
        The donor tasks B; the estimate holds given these.
    controls:
        Matched random sets for each of the circuits, for the capacity-adjusted contrast in
        ``details["adjusted"]``; 0 leaves it out. Circuits of unequal size make the plain contrast hard to read.
    accuracy:
        "argmax" or "candidates"; by default the task's.
    cluster:
        Which examples are drawn together (`circuittest.claims.clusters`).

    Invalid when a circuit is empty, when the model is not competent at a task, and when own and foreign ablation both
    leave nothing to lose (saturation: then "not specific" cannot be told from "all destroyed").
    """
    measure = accuracy or lab.accuracy
    choices: dict[str, Any] = {
        "ablation": "zero",
        "positions": "all",
        "against": list(against),
        "controls": controls,
        "accuracy": measure,
        **said(cluster),
        "seed": seed,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("specificity", circuit, choices=choices, details=details or {}, invalid=reason)

    if reason := usable_circuit(circuit) or disjoint(lab, circuit):
        return invalid(reason)
    if not against or lab.data.task in against or len(set(against)) < len(against):
        return invalid(f"against is {against!r}: it lists other tasks than {lab.data.task!r}, each once")
    recipe = recipe_of(circuit.origin)
    if recipe is None:
        return invalid(
            "the circuit was not found by lab.shared, so there is no recipe to find the donors' circuits by"
        )
    choices |= recipe
    units = lab.layout.universe(recipe["universe"])
    groups = cluster_labels(lab.data.evaluate, cluster)
    gate = competent(lab, units, measure, groups=groups)
    if not gate.passed:
        return invalid(gate.reason)
    donors: dict[str, Circuit] = {}
    for task in against:
        other = lab.on(task)
        donors[task] = other.shared(**recipe)
        if reason := usable_circuit(donors[task]):
            return invalid(f"donor {task}: {reason}")
        judged = cluster_labels(other.data.evaluate, cluster)
        donor_gate = competent(other, units, other.accuracy, groups=judged)
        if not donor_gate.passed:
            return invalid(f"donor {task}: {donor_gate.reason}")

    ends = lab.outcomes([(), units])
    base, emptied = ends.measure(measure)
    sets = [circuit.units, *(donor.units for donor in donors.values())]
    without = lab.outcomes(sets)
    ablated = without.measure(measure)
    own, others = ablated[0], ablated[1:]
    drops = {task: float(base.mean() - row.mean()) for task, row in zip(donors, others, strict=True)}
    details: dict[str, Any] = {
        "acc_base": float(base.mean()),
        "drops": {"own": float(base.mean() - own.mean()), "others": drops},
        "circuits": {task: [str(u) for u in donor.units] for task, donor in donors.items()},
        "overlap": {task: overlap(circuit, donor, len(units)) for task, donor in donors.items()},
        **clustered(groups, cluster),
    }
    ground = max(lab.data.chance, float(emptied.mean())) if measure == "candidates" else float(emptied.mean())
    own_at_floor = at_floor(own, emptied, lab.data.chance, measure, groups)
    others_at_floor = all(at_floor(row, emptied, lab.data.chance, measure, groups) for row in others)
    details["saturated"] = {"own": own_at_floor, "others": others_at_floor}
    if own_at_floor and others_at_floor:
        return invalid(
            f"saturated: accuracy {own.mean():.2f} under the own circuit and {others.mean():.2f} under the others, "
            f"the floor is {ground:.2f}; use a smaller K or a graded metric",
            details,
        )
    if controls:
        try:
            details["adjusted"] = adjusted(lab, sets, units, controls, seed, measure, base)
        except ControlError as error:
            details["adjusted"], details["adjusted_undefined"] = None, str(error)
    pulls = others.mean(0) - own
    inference = MeanInference(pulls, groups, bounds=(-1.0, 1.0), seed=seed)
    driving = by_examples(
        lab,
        pulls,
        after=circuit.units,
        ties=log_prob_lost(ends, without),
        told=_told(circuit, donors, drops, float(base.mean() - own.mean())),
    )
    return lab.estimate(
        "specificity",
        circuit,
        driving=driving,
        inference=inference,
        choices=choices,
        details=details,
        censored="lower" if own_at_floor else "upper" if others_at_floor else None,
        hints=few_clusters(groups, cluster),
    )


def _told(
    circuit: Circuit, donors: dict[str, Circuit], drops: dict[str, float], own: float
) -> dict[str, str]:
    """What the own circuit is compared with, and the units that it shares with it."""
    lost = ", ".join(f"{drop:.2f} under that of {task}" for task, drop in drops.items())
    common = [
        f"{', '.join(map(str, (circuit & donor).units[:8]))} shared with {task}"
        for task, donor in donors.items()
        if len(circuit & donor)
    ]
    return {
        "control": f"accuracy lost: {own:.2f} under the own circuit, {lost}",
        "units": "; ".join(common) or "no unit is shared with another task's circuit",
    }


def overlap(a: Circuit, b: Circuit, n_units: int) -> dict[str, float]:
    """Jaccard index of two circuits, and its expectation for random sets of these sizes."""
    shared = len(a.units) * len(b.units) / n_units
    chance = shared / (len(a.units) + len(b.units) - shared)
    return {"jaccard": len(a & b) / len(a | b), "chance": chance}


def adjusted(
    lab: Lab,
    sets: list[tuple[Unit, ...]],
    universe: tuple[Unit, ...],
    count: int,
    seed: int,
    measure: str,
    base: Floats,
) -> float:
    """(own - C³(own)) - mean over B of (Δ_B - C³(B)): the contrast of drops beyond sets of equal size."""
    beyond = []
    for units in sets:
        drawn = matched_controls(units, universe, lab.layout, count=count, seed=seed)
        accuracy = lab.outcomes([units]).measure(measure).mean()
        control = lab.outcomes(drawn.sets).measure(measure).mean()
        beyond.append(float((base.mean() - accuracy) - (base.mean() - control)))
    return beyond[0] - float(np.mean(beyond[1:]))

"""Specificity over tasks: every Δ_A^B, the accuracy that task A loses when the circuit of task B is ablated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims import within
from circuittest.claims.beyond import ends
from circuittest.claims.clusters import Cluster, cluster_labels, few_clusters, said
from circuittest.claims.gates import at_floor, competent, usable_circuit
from circuittest.claims.ranges import CountOrNone
from circuittest.claims.specificity import adjusted, overlap
from circuittest.errors import ControlError
from circuittest.stats import Estimate, MeanInference, PairedDifferenceInference
from circuittest.stats.least import LeastInference
from circuittest.stats.resampling import Floats
from circuittest.stats.stratified import StratifiedMeanInference

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

#: Resamples of the interval of each entry of the matrix; verdicts rest on the contrasts, which have more.
CELL_DRAWS = 1999


@dataclass(frozen=True)
class Row:
    """What one task loses to each circuit.

    Attributes
    ----------
    base, emptied:
        [n] outcomes with nothing, and with the whole universe ablated.
    ablated:
        [tasks × n] with the circuit of each task ablated, in the order of the tasks.
    own:
        Position of the task itself.
    groups:
        Labels of examples that are drawn together, or None.
    """

    base: Floats
    emptied: Floats
    ablated: Floats
    own: int
    chance: float
    measure: str
    groups: list[str] | None = None

    @property
    def contrast(self) -> Floats:
        """[n] Δ_A^A - mean over B of Δ_A^B, example by example."""
        found: Floats = np.delete(self.ablated, self.own, axis=0).mean(0) - self.ablated[self.own]
        return found

    @property
    def at_floor(self) -> tuple[bool, bool]:
        """Does the own circuit leave nothing to lose, and do all the others?"""
        floors = [at_floor(row, self.emptied, self.chance, self.measure, self.groups) for row in self.ablated]
        own = floors.pop(self.own)
        return own, all(floors)


@within((-1.0, 1.0))
def specificity_matrix(
    lab: Lab,
    *,
    tasks: list[str],
    over: Literal["mean", "every"] = "mean",
    top: str = "20%",
    at: int = 95,
    universe: str = "heads",
    score: Literal["edge-abs-sum", "edge-sum", "node"] = "edge-abs-sum",
    method: str = "eap",
    controls: CountOrNone = 0,
    accuracy: Literal["argmax", "candidates"] | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """Accuracy that own circuits cost their tasks beyond what the circuits of the other tasks cost them.

    Estimand: the mean over tasks A (``over="every"``: the smallest) of Δ_A^A - mean over B ≠ A of Δ_A^B, where Δ_A^B is
    the accuracy that task A loses when the circuit of task B is ablated (Li & Subramani, arXiv 2605.08348, sec. 3.3).
    It compares *different circuits on the same task*, down a column of "circuit × task"; the same circuit on different
    tasks would compare how fragile the tasks are. The tasks are given, not sampled. The circuits are found by one
    recipe, on discovery examples; every term of a contrast is on the same evaluation examples of its task.

    ``details`` holds the whole matrix with paired intervals, each task's contrast with its interval, who is at the
    floor, and the overlap of the circuits beside what random sets of their sizes would give.

    Parameters
    ----------
    tasks:
        At least two, each once; the lab's own task need not be among them.
    over:
        "mean" over the tasks, or "every": the claim then holds for each of them.
    top, at, universe, score, method:
        The recipe; see `Lab.shared`.
    controls:
        Matched random sets for each circuit, for the capacity-adjusted contrasts in ``details["adjusted"]``; 0 leaves
        them out.
    accuracy:
        "argmax" or "candidates"; by default each task's.
    cluster:
        Which examples of a task are drawn together (`circuittest.claims.clusters`).

    Invalid when a circuit is empty, when the model is not competent at a task, and when own and foreign ablation both
    leave a task nothing to lose (saturation).
    """
    recipe: dict[str, Any] = {"method": method, "score": score, "universe": universe, "top": top, "at": at}
    choices: dict[str, Any] = {
        "ablation": "zero",
        "positions": "all",
        "tasks": list(tasks),
        "over": over,
        "controls": controls,
        "accuracy": accuracy or "each task's",
        **said(cluster),
        "seed": seed,
        **recipe,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate(
            "specificity_matrix", None, choices=choices, details=details or {}, invalid=reason
        )

    if len(tasks) < 2 or len(set(tasks)) < len(tasks):
        return invalid(f"tasks is {tasks!r}: it lists at least two tasks, each once")
    units = lab.layout.universe(universe)
    labs = {task: lab if task == lab.data.task else lab.on(task) for task in tasks}
    circuits: dict[str, Circuit] = {}
    groups: dict[str, list[str] | None] = {}
    for task, one in labs.items():
        circuits[task] = one.shared(**recipe)
        if reason := usable_circuit(circuits[task]):
            return invalid(f"{task}: {reason}")
        groups[task] = cluster_labels(one.data.evaluate, cluster)
        gate = competent(one, units, accuracy or one.accuracy, groups=groups[task])
        if not gate.passed:
            return invalid(f"{task}: {gate.reason}")

    sets = [circuit.units for circuit in circuits.values()]
    rows: dict[str, Row] = {}
    for position, (task, one) in enumerate(labs.items()):
        measure = accuracy or one.accuracy
        base, emptied = one.outcomes([(), units]).measure(measure)
        ablated = one.outcomes(sets).measure(measure)
        rows[task] = Row(base, emptied, ablated, position, one.data.chance, measure, groups[task])
    contrasts = {
        task: MeanInference(row.contrast, row.groups, bounds=(-1.0, 1.0), seed=seed)
        for task, row in rows.items()
    }
    floors = {task: row.at_floor for task, row in rows.items()}
    details: dict[str, Any] = {
        "acc_base": {task: float(row.base.mean()) for task, row in rows.items()},
        "circuits": {task: [str(u) for u in circuit.units] for task, circuit in circuits.items()},
        "drops": {task: _drops(row, tasks, seed) for task, row in rows.items()},
        "contrasts": {task: {"value": one.value, "interval": ends(one)} for task, one in contrasts.items()},
        "at_floor": {task: {"own": own, "others": others} for task, (own, others) in floors.items()},
        "overlap": {
            a: {b: overlap(circuits[a], circuits[b], len(units)) for b in tasks if b != a} for a in tasks
        },
        "n": {task: int(row.base.size) for task, row in rows.items()},
        **_clusters(groups, cluster),
    }
    if saturated := [task for task, (own, others) in floors.items() if own and others]:
        return invalid(
            f"saturated: on {', '.join(saturated)} own and foreign circuits alike leave nothing to lose, so that 'not "
            "specific' cannot be told from 'all destroyed'; use a smaller K, or leave these tasks out",
            details,
        )
    below, above = (any(floor[side] for floor in floors.values()) for side in (0, 1))
    if below and above:
        return invalid(
            "on some tasks the own circuit and on others all foreign circuits reach the floor, so that the value is a "
            "bound on neither side; use a smaller K, or leave tasks out",
            details,
        )
    if controls:
        details["adjusted"] = {
            task: _adjusted(labs[task], rows[task], sets, units, controls, seed) for task in tasks
        }
    inference = (
        LeastInference(list(contrasts.values()))
        if over == "every"
        else StratifiedMeanInference(
            [row.contrast for row in rows.values()], list(groups.values()), bounds=(-1.0, 1.0), seed=seed
        )
    )
    return lab.estimate(
        "specificity_matrix",
        None,
        inference=inference,
        n_examples=sum(row.base.size for row in rows.values()),
        choices=choices,
        details=details,
        censored="lower" if below else "upper" if above else None,
        hints=tuple(
            f"{task}: {hint}" for task, labels in groups.items() for hint in few_clusters(labels, cluster)
        ),
    )


def _clusters(groups: dict[str, list[str] | None], cluster: Cluster) -> dict[str, Any]:
    """What the record says of clusters, task by task; nothing without."""
    if cluster == "none":
        return {}
    return {
        "clusters": {
            "by": cluster,
            "count": {task: len(set(labels or ())) for task, labels in groups.items()},
        }
    }


def _drops(row: Row, tasks: list[str], seed: int) -> dict[str, Any]:
    """Δ_A^B for every B, with paired intervals."""
    found = {}
    for task, ablated in zip(tasks, row.ablated, strict=True):
        inference = PairedDifferenceInference(row.base, ablated, row.groups, seed=seed, draws=CELL_DRAWS)
        found[task] = {"value": inference.value, "interval": ends(inference)}
    return found


def _adjusted(
    lab: Lab, row: Row, sets: list[Any], universe: Any, count: int, seed: int
) -> dict[str, float | str | None]:
    """The capacity-adjusted contrast of a task, or why there is none."""
    ordered = [sets[row.own], *(units for i, units in enumerate(sets) if i != row.own)]
    try:
        return {"value": adjusted(lab, ordered, universe, count, seed, row.measure, row.base)}
    except ControlError as error:
        return {"value": None, "undefined": str(error)}

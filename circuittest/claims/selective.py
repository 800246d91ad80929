"""Selective ablation: what two circuits share, and what only one of them has, ablated by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims.beyond import draw_controls, drawn_details, ends
from circuittest.claims.gates import comparable, competent, controls_destroy, disjoint, usable_circuit
from circuittest.claims.kept import Ablation
from circuittest.claims.looks import Sets, Tables, measure_controls, planned
from circuittest.claims.ranges import Count
from circuittest.claims.specificity import overlap
from circuittest.controls import Controls
from circuittest.find.recipe import recipe_of
from circuittest.stats import Estimate, GradedNecessityInference, NecessityInference
from circuittest.stats.least import LeastInference
from circuittest.stats.resampling import Floats
from circuittest.stats.selective import SelectivityInference
from circuittest.stats.two_way import TwoWayInference

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

_SIGNS = {"own": "∖", "shared": "∩", "other": "∖"}


def selective(
    lab: Lab,
    circuit: Circuit,
    *,
    against: str,
    part: Literal["own", "shared", "other"] = "own",
    units: list[str] | None = None,
    metric: Literal["accuracy", "log_prob", "logit_diff"] = "accuracy",
    controls: Count = 40,
    match: Literal["kind", "layer"] = "kind",
    ablation: Ablation = "zero",
    positions: Literal["all", "not-first", "answer"] = "all",
    seed: int = 0,
    decide: float | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Damage beyond controls of one part of two circuits, on both their tasks.

    A is the lab's task with the circuit given, B the task `against` with its own circuit. With D_T(X) the damage that
    ablating X does on task T beyond the mean of matched sets outside A ∪ B, the estimand is

    - ``part="own"`` (X = A ∖ B): D_A(X) - D_B(X): what only A has matters for A more than for B;
    - ``part="other"`` (X = B ∖ A): D_B(X) - D_A(X): the same for B;
    - ``part="shared"`` (X = A ∩ B): the smaller of D_A(X) and D_B(X): what both have matters for both.

    Parameters
    ----------
    against:
        The task B.
    units:
        The circuit of B; by default it is found by the recipe of `circuit`.
    metric:
        "accuracy" (each task's), "log_prob" or "logit_diff", un-normalised.
    controls, match, ablation, positions, seed, decide, confidence:
        As for `necessity`; a look measures its controls on both tasks.

    Invalid when a circuit or the part is empty, when a circuit was chosen on evaluation examples, when the model is not
    competent at a task, when a task has no foils for the metric, when no matched set exists outside both circuits, and
    when the controls leave less than a quarter of what a task has to lose: beside them nothing could be told.
    """
    choices: dict[str, Any] = {
        "ablation": ablation,
        "positions": positions,
        "against": against,
        "part": part,
        "metric": metric,
        "controls": controls,
        "match": match,
        "seed": seed,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("selective", circuit, choices=choices, details=details or {}, invalid=reason)

    if reason := usable_circuit(circuit) or disjoint(lab, circuit):
        return invalid(reason)
    if against == lab.data.task:
        return invalid(f"against is {against!r}, the task of the circuit itself")
    other = lab.on(against)
    recipe = recipe_of(circuit.origin) or {}
    if units is not None:
        foreign = other.circuit(units, name=against)
    elif recipe:
        foreign = other.shared(**recipe)
        choices |= recipe
    else:
        return invalid(
            "the circuit was not found by lab.shared, so there is no recipe to find the other task's circuit by: give "
            "its 'units'"
        )
    if reason := usable_circuit(foreign) or disjoint(other, foreign):
        return invalid(f"{against}: {reason}")
    # both circuits are judged on both tasks, which may share prompts
    if reason := disjoint(other, circuit):
        return invalid(f"the circuit of {lab.data.task} on {against}: {reason}")
    if reason := disjoint(lab, foreign):
        return invalid(f"the circuit of {against} on {lab.data.task}: {reason}")
    kinds = sorted({unit.kind for unit in (*circuit.units, *foreign.units)})
    universe = lab.layout.universe(circuit.origin.get("universe") or kinds)
    a, b = set(circuit.units), set(foreign.units)
    chosen = tuple(sorted({"own": a - b, "shared": a & b, "other": b - a}[part]))
    sizes = {"own": len(a - b), "shared": len(a & b), "other": len(b - a)}
    if not chosen:
        first, second = (against, lab.data.task) if part == "other" else (lab.data.task, against)
        return invalid(f"the part {first} {_SIGNS[part]} {second} is empty (sizes: {sizes})")
    found = draw_controls(lab, chosen, universe, count=controls, match=match, seed=seed, outside=a | b)
    if isinstance(found, str):
        return invalid(found)
    drawn, _ = found
    tasks = {lab.data.task: lab, against: other}
    how: dict[str, Any] = {"value": ablation, "positions": positions}
    columns = [one.accuracy if metric == "accuracy" else metric for one in tasks.values()]
    ends_of: list[tuple[Floats, Floats]] = []
    least: list[float] = []
    for (task, one), column in zip(tasks.items(), columns, strict=True):
        if reason := comparable(one, column):
            return invalid(f"{task}: {reason}")
        gate = competent(one, universe, one.accuracy, value=ablation, positions=positions)
        if not gate.passed:
            return invalid(f"{task}: {gate.reason}")
        base, emptied = one.outcomes([(), universe], **how).measure(column)
        least.append(gate.floor if metric == "accuracy" else float(emptied.mean()))
        ends_of.append((base, one.outcomes([chosen], **how).measure(column)[0]))
    sizes_of = [base.size for base, _ in ends_of]
    n = min(sizes_of)

    def outcomes(sets: Sets) -> Tables:
        pairs = zip(tasks.values(), columns, strict=True)
        return tuple(one.outcomes(sets, **how).measure(column) for one, column in pairs)

    def beyond(tables: Tables, sets: Controls) -> list[TwoWayInference]:
        pairs = zip(ends_of, tables, strict=True)
        return [_beyond(base, ablated, table, sets, metric, seed) for (base, ablated), table in pairs]

    def infer(tables: Tables, sets: Controls) -> TwoWayInference | LeastInference:
        if part == "shared":
            return LeastInference(beyond(tables, sets))
        gains, spared = (0, 1) if part == "own" else (1, 0)
        circuits = ends_of[gains][1][:n] - ends_of[spared][1][:n]
        return _difference(circuits, tables[gains][:, :n] - tables[spared][:, :n], sets, metric, seed)

    def destroyed(tables: Tables) -> str:
        rows = zip(tasks, columns, ends_of, tables, least, strict=True)
        found = (
            (task, controls_destroy(column, float(base.mean()), float(table.mean()), low))
            for task, column, (base, _), table, low in rows
        )
        return next((f"{task}: {reason}" for task, reason in found if reason), "")

    choices |= planned(drawn, decide)
    looked = measure_controls(
        drawn,
        outcomes,
        infer,
        decide=decide,
        forwards=(3 * sum(sizes_of), sum(sizes_of)),
        confidence=confidence,
        seed=seed,
        blocked=lambda tables: bool(destroyed(tables)),
    )
    single = dict(zip(tasks, beyond(looked.tables, looked.drawn), strict=True))
    tables = {task: (*ends_of[i], looked.tables[i]) for i, task in enumerate(tasks)}
    details: dict[str, Any] = {
        "part": [str(unit) for unit in chosen],
        "sizes": sizes,
        "foreign": [str(unit) for unit in foreign.units],
        "overlap_of_circuits": overlap(circuit, foreign, len(universe)),
        "base": {task: float(base.mean()) for task, (base, _, _) in tables.items()},
        "damage": {task: float((base - ablated).mean()) for task, (base, ablated, _) in tables.items()},
        "damage_controls": {
            task: [float(base.mean() - mean) for mean in control.mean(1)]
            for task, (base, _, control) in tables.items()
        },
        "beyond": {task: {"value": one.value, "interval": ends(one)} for task, one in single.items()},
        **drawn_details(looked.drawn),
        **looked.details,
    }
    if reason := destroyed(looked.tables):
        return invalid(reason, details)
    return lab.estimate(
        "selective",
        circuit,
        inference=looked.inference,
        n_examples=n,
        n_controls=len(looked.sets),
        choices=choices,
        details=details,
        hints=looked.hints,
    )


def _beyond(
    base: Floats, ablated: Floats, controls: Floats, drawn: Controls, metric: str, seed: int
) -> TwoWayInference:
    """Damage beyond controls on one task, in the metric's unit."""
    how: dict[str, Any] = {"population": drawn.population, "enumerated": drawn.enumerated, "seed": seed}
    if metric == "accuracy":
        return NecessityInference(np.ones_like(base), ablated, controls, **how)
    return GradedNecessityInference(base, ablated, controls, normalise=False, **how)


def _difference(
    circuit: Floats, controls: Floats, drawn: Controls, metric: str, seed: int
) -> TwoWayInference:
    """Damage beyond controls on one task minus that on the other, from differences of their outcomes."""
    how: dict[str, Any] = {"population": drawn.population, "enumerated": drawn.enumerated, "seed": seed}
    if metric == "accuracy":
        return SelectivityInference(circuit, controls, **how)
    return GradedNecessityInference(np.ones_like(circuit), circuit, controls, normalise=False, **how)

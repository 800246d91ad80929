"""Necessity against C³: does ablating the circuit hurt more than ablating a matched random set?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from circuittest.claims.beyond import draw_controls, exchangeable_p
from circuittest.claims.clusters import cluster_labels, clustered, few_clusters
from circuittest.claims.driving import by_examples, control_text, log_prob_lost
from circuittest.claims.gates import (
    at_floor,
    competent,
    controls_leave_headroom,
    disjoint,
    majority,
    usable_circuit,
)
from circuittest.claims.looks import Sets, Tables, measure_controls, planned
from circuittest.claims.ranges import Count
from circuittest.claims.universe import circuit_universe
from circuittest.controls import Controls
from circuittest.stats import Competence, Estimate, NecessityInference, rank_p
from circuittest.stats.floor_normalised import FloorNormalisedInference
from circuittest.stats.inference import Floats
from circuittest.stats.two_way import TwoWayInference
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab
    from circuittest.tables import OutcomeTable


def necessity(
    lab: Lab,
    circuit: Circuit,
    *,
    controls: Count = 40,
    match: Literal["kind", "layer"] = "kind",
    universe: str | None = None,
    accuracy: Literal["argmax", "candidates"] | None = None,
    ablation: Literal["zero", "mean", "mean-positions", "counterfactual", "resample"] = "zero",
    positions: Literal["all", "not-first", "answer"] = "all",
    cluster: Literal["none", "group", "template"] = "none",
    normalise: Literal["base", "floor"] = "base",
    seed: int = 0,
    decide: float | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Accuracy lost beyond capacity-matched random controls, as a share of the base accuracy.

    Estimand: (mean over all matched sets C of acc(C) - acc(S)) / acc(∅) on evaluation examples (Li & Subramani, arXiv
    2605.08348, Eq. 5: zero ablation, there with one draw in place of the mean over many controls).

    Parameters
    ----------
    controls:
        How many control sets to draw; all of them where there are few.
    match:
        "kind": as many units of each kind; "layer": also in each layer.
    universe:
        What controls are drawn from; by default the universe that the circuit was found in, or the kinds it holds.
    accuracy:
        "argmax" over the vocabulary or "candidates" (best answer above best foil); by default the task's.
    ablation, positions:
        What ablated units are replaced by, and where (`circuittest.measure.ablation.ablate`); means and resampled
        values come from the discovery examples. Circuit, controls and the emptied universe of the competence gate are
        all ablated in this way: the floor is what this ablation can reach, and no verdict mixes two of them.
    cluster:
        Which examples are drawn together (`circuittest.claims.clusters`).
    normalise:
        "base": by acc(∅). "floor": by acc(∅) - floor, the highest floor of the competence gate (chance among the
        candidates, the most frequent answer, the emptied universe): chance-normalised necessity, which is 1 where the
        circuit's ablation leaves the floor and controls leave everything. The argmax over the vocabulary can fall below
        chance among candidates, and the value then exceeds 1; with "candidates" it means what its name says.
    seed:
        Of the control draws and of the resampling of statistics.
    decide, confidence:
        The threshold, where it is known: controls are then measured in looks, and only as many as decide it
        (`circuittest.claims.looks`). ``details["budget"]`` says what that saved.

    No verdict rests on ``details["rank_p"]``, the circuit's rank among its controls. As a p-value of "the circuit is a
    random set of its universe" it is too small, for a random set varies more than the controls outside it do;
    ``rank_p_adjusted`` allows for that (`circuittest.claims.beyond.exchangeable_p`), and for the looks.

    Invalid when the circuit is empty or was chosen on evaluation examples, when the model is not competent, when no
    matched control exists, and when the controls are on the floor too.
    """
    measure = accuracy or lab.accuracy
    name = universe or circuit_universe(circuit)
    choices: dict[str, Any] = {
        "ablation": ablation,
        "positions": positions,
        "match": match,
        "controls": controls,
        "universe": name,
        "accuracy": measure,
        "cluster": cluster,
        "normalise": normalise,
        "seed": seed,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("necessity", circuit, choices=choices, details=details or {}, invalid=reason)

    if reason := usable_circuit(circuit) or disjoint(lab, circuit):
        return invalid(reason)
    units = lab.layout.universe(name)
    found = draw_controls(lab, circuit.units, units, count=controls, match=match, seed=seed)
    if isinstance(found, str):
        return invalid(found)
    drawn, held = found

    def outcomes(sets: Sequence[Iterable[Unit]]) -> OutcomeTable:
        return lab.outcomes(sets, value=ablation, positions=positions)

    def accuracies(sets: Sets) -> Tables:
        return (outcomes(sets).measure(measure),)

    groups = cluster_labels(lab.data.evaluate, cluster)
    gate = competent(lab, units, measure, value=ablation, positions=positions, groups=groups)
    details: dict[str, Any] = {"floor": _floor(gate), **clustered(groups, cluster)}
    if not gate.passed:
        return invalid(gate.reason, details)

    ends, without = outcomes([(), units]), outcomes([circuit.units])
    base, emptied = ends.measure(measure)
    ablated = without.measure(measure)[0]
    censored = at_floor(ablated, emptied, lab.data.chance, measure)

    def too_large(table: Floats) -> str:
        return controls_leave_headroom(gate, float(table.mean()), len(circuit.units))

    def infer(tables: Tables, sets: Controls) -> TwoWayInference:
        (table,) = tables
        how: dict[str, Any] = {
            "population": sets.population,
            "enumerated": sets.enumerated,
            "groups": groups,
            "seed": seed,
        }
        if normalise == "base":
            return NecessityInference(base, ablated, table, **how)
        floors = {"chance": lab.data.chance, "majority": majority(lab), "ablated": emptied}
        return FloorNormalisedInference(base, ablated, table, floor=floors[gate.floor_name], **how)

    if normalise == "floor" and gate.lower <= 0:
        return invalid(
            f"acc(∅) - floor may be zero (lower bound {gate.lower:.2f}): nothing is divided by it", details
        )
    choices |= planned(drawn, decide)
    looked = measure_controls(
        drawn,
        accuracies,
        infer,
        decide=decide,
        forwards=(3 * base.size, base.size),
        confidence=confidence,
        seed=seed,
        refutable=not censored,
        blocked=lambda tables: bool(too_large(tables[0])),
    )
    table = looked.table
    acc_controls = [float(a) for a in table.mean(1)]
    rank = rank_p(float(ablated.mean()), acc_controls)
    worst = min(range(len(acc_controls)), key=lambda i: acc_controls[i])
    details |= {
        "acc_base": float(base.mean()),
        "acc_circuit": float(ablated.mean()),
        "acc_controls": acc_controls,
        "controls": [[str(u) for u in units] for units in looked.sets],
        "worst_control": {"units": [str(u) for u in looked.sets[worst]], "accuracy": acc_controls[worst]},
        "rank_p": rank.p,
        "rank_p_resolution": rank.resolution,
        "rank_p_adjusted": min(1.0, exchangeable_p(rank.p, held) / looked.share),
        "population": drawn.population,
        "enumerated": looked.drawn.enumerated,
        "overlap": drawn.overlap,
        **looked.details,
    }
    if reason := too_large(table):
        return invalid(reason, details)
    hints = [*few_clusters(groups, cluster), *looked.hints]
    if censored:
        hints.append(
            "the circuit's ablation is at the floor, so the value is a lower bound; a graded metric would resolve it"
        )
    if acc_controls[worst] < 0.5 * float(table.mean()):
        names = ", ".join(map(str, looked.sets[worst]))
        hints.append(f"the most harmful control ({names}) leaves accuracy {acc_controls[worst]:.2f}")
    spread = float(base.mean()) if normalise == "base" else gate.accuracy - gate.floor
    driving = by_examples(
        lab,
        (table.mean(0) - ablated) / spread,
        after=circuit.units,
        value=ablation,
        positions=positions,
        ties=log_prob_lost(ends, without),
        told={
            "control": control_text(acc_controls, "accuracy", worst=(looked.sets[worst], acc_controls[worst]))
        },
    )
    return lab.estimate(
        "necessity",
        circuit,
        driving=driving,
        inference=looked.inference,
        n_controls=len(looked.sets),
        choices=choices,
        details=details,
        censored="lower" if censored else None,
        hints=tuple(hints),
    )


def _floor(gate: Competence) -> dict[str, Any]:
    kept = ("accuracy", "floor", "floor_name", "lower", "floors", "headroom")
    return {key: value for key, value in asdict(gate).items() if key in kept}

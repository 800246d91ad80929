"""Necessity on a graded metric: damage beyond matched controls in log-probability or logit difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from circuittest.claims.beyond import Ablations, Damage, draw_controls, drawn_details, ends, exchangeable_p
from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters, said
from circuittest.claims.gates import CONTROL_HEADROOM, comparable, competent, disjoint, usable_circuit
from circuittest.claims.kept import Ablation, Range
from circuittest.claims.looks import Tables, measure_controls, planned
from circuittest.claims.ranges import Count
from circuittest.claims.universe import circuit_universe
from circuittest.controls import Controls
from circuittest.stats import Estimate
from circuittest.stats.two_way import TwoWayInference

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab


def graded_necessity(
    lab: Lab,
    circuit: Circuit,
    *,
    metric: Literal["log_prob", "logit_diff"] | None = None,
    normalise: bool = True,
    controls: Count = 40,
    match: Literal["kind", "layer"] = "kind",
    ablation: Ablation = "zero",
    positions: Literal["all", "not-first", "answer"] = "all",
    universe: str | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
    decide: float | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Log-probability or logit difference lost beyond matched random controls.

    Estimand: (mean over all matched sets C of m(C) - m(S)) / (m(∅) - m(floor)), where the floor is the whole universe
    ablated in the same way; with ``normalise=False`` the numerator alone, in nats or logits. It tells circuits apart
    whose ablation leaves the same accuracy (all right, or all wrong), and is another claim than `necessity`: neither
    stands in for the other.

    Parameters
    ----------
    metric:
        "log_prob" or "logit_diff"; by default the task's metric, or "log_prob" where that is neither.
    normalise:
        Divide by m(∅) - m(floor).
    controls, match, ablation, positions, universe, cluster, seed, decide, confidence:
        As for `necessity`, ``details["rank_p_adjusted"]`` included.

    Invalid when the circuit is empty or was chosen on evaluation examples, when the model is not competent, when no
    matched control exists, when the controls are near the floor, too, and when the interval of m(∅) - m(floor) does not
    lie above zero.
    """
    measure = metric or (lab.metric if lab.metric in ("log_prob", "logit_diff") else "log_prob")
    name = universe or circuit_universe(circuit)
    choices: dict[str, Any] = {
        "ablation": ablation,
        "positions": positions,
        "match": match,
        "controls": controls,
        "universe": name,
        "metric": measure,
        "normalise": normalise,
        **said(cluster),
        "seed": seed,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate(
            "graded_necessity", circuit, choices=choices, details=details or {}, invalid=reason
        )

    if reason := usable_circuit(circuit) or disjoint(lab, circuit):
        return invalid(reason)
    if reason := comparable(lab, measure):
        return invalid(reason)
    units = lab.layout.universe(name)
    found = draw_controls(lab, circuit.units, units, count=controls, match=match, seed=seed)
    if isinstance(found, str):
        return invalid(found)
    drawn, held = found
    groups = cluster_labels(lab.data.evaluate, cluster)
    gate = competent(lab, units, lab.accuracy, value=ablation, positions=positions, groups=groups)
    if not gate.passed:
        return invalid(gate.reason)
    ablations = Ablations(
        lab, circuit.units, units, [measure], ablation=ablation, positions=positions, groups=groups, seed=seed
    )

    def damage_of(tables: Tables, sets: Controls) -> Damage:
        (damage,) = ablations.damages(tables, sets)
        return damage

    def infer(tables: Tables, sets: Controls) -> TwoWayInference:
        damage = damage_of(tables, sets)
        return damage.beyond_share if normalise and not damage.reach.reason else damage.beyond

    reach = ablations.reaches()[0]
    if reach.reason:  # nothing will be decided
        decide = None
    choices |= planned(drawn, decide)
    looked = measure_controls(
        drawn,
        ablations.of_controls,
        infer,
        decide=decide,
        forwards=(3 * ablations.n, ablations.n),
        confidence=confidence,
        seed=seed,
        blocked=lambda tables: _leave_little(float(tables[0].mean()), reach),
    )
    drawn, damage = looked.drawn, damage_of(looked.tables, looked.drawn)
    base, floor = float(damage.base.mean()), float(damage.emptied.mean())
    of_controls = [float(m) for m in damage.controls.mean(1)]
    worst = min(range(len(of_controls)), key=lambda i: of_controls[i])
    rank = damage.rank()
    details = {
        "acc_base": gate.accuracy,
        "m_base": base,
        "m_floor": floor,
        "m_circuit": float(damage.ablated.mean()),
        "m_controls": of_controls,
        "worst_control": {"units": [str(u) for u in drawn.sets[worst]], "m": of_controls[worst]},
        "reach": reach.details()["range"],
        "rank_p": rank.p,
        "rank_p_resolution": rank.resolution,
        "rank_p_adjusted": min(1.0, exchangeable_p(rank.p, held) / looked.share),
        **drawn_details(drawn),
        **clustered(groups, cluster),
        **looked.details,
    }
    if reach.reason:
        return invalid(reach.reason, details)
    mean = sum(of_controls) / len(of_controls)
    if _leave_little(mean, reach):
        return invalid(
            f"the control destroys the model too: mean {measure} {mean:.2f} under controls, {floor:.2f} with the whole "
            f"universe ablated, {base:.2f} with nothing ablated; a circuit of {len(circuit.units)} units is too large "
            "to judge: lower K, or restrict the universe",
            details,
        )
    own = damage.own_share
    details["own_share"] = {"value": own.value, "interval": ends(own)}
    return lab.estimate(
        "graded_necessity",
        circuit,
        inference=looked.inference,
        n_controls=len(drawn.sets),
        choices=choices,
        details=details,
        hints=(*few_clusters(groups, cluster), *looked.hints),
    )


def _leave_little(mean_controls: float, reach: Range) -> bool:
    """Do the controls leave too small a share of what there is to lose?"""
    return mean_controls - float(reach.empty.mean()) < CONTROL_HEADROOM * reach.value

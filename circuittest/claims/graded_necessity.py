"""Necessity on a graded metric: damage beyond matched controls in log-probability or logit difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from circuittest.claims.beyond import damages, draw_controls, drawn_details, ends
from circuittest.claims.gates import CONTROL_HEADROOM, competent, disjoint, usable_circuit
from circuittest.claims.kept import Ablation
from circuittest.claims.necessity import circuit_universe
from circuittest.claims.ranges import Count
from circuittest.stats import Estimate

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
    seed: int = 0,
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
    controls, match, ablation, positions, universe, seed:
        As for `necessity`.

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
        "seed": seed,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate(
            "graded_necessity", circuit, choices=choices, details=details or {}, invalid=reason
        )

    if reason := usable_circuit(circuit) or disjoint(lab, circuit):
        return invalid(reason)
    units = lab.layout.universe(name)
    found = draw_controls(lab, circuit.units, units, count=controls, match=match, seed=seed)
    if isinstance(found, str):
        return invalid(found)
    drawn, _ = found
    gate = competent(lab, units, lab.accuracy, value=ablation, positions=positions)
    if not gate.passed:
        return invalid(gate.reason)
    (damage,) = damages(
        lab, circuit.units, units, drawn, [measure], ablation=ablation, positions=positions, seed=seed
    )
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
        "reach": damage.reach.details()["range"],
        "rank_p": rank.p,
        "rank_p_resolution": rank.resolution,
        **drawn_details(drawn),
    }
    if reason := damage.reach.reason:
        return invalid(reason, details)
    mean = sum(of_controls) / len(of_controls)
    if mean - floor < CONTROL_HEADROOM * (base - floor):
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
        inference=damage.beyond_share if normalise else damage.beyond,
        n_controls=len(drawn.sets),
        choices=choices,
        details=details,
    )

"""Sufficiency: how much of the behaviour is left when only the circuit is kept?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters
from circuittest.claims.curve import faithfulness_curve
from circuittest.claims.driving import by_examples
from circuittest.claims.kept import Ablation, Kept, Metric, Range, Where, keep, reach, share
from circuittest.claims.kept_edges import KeptEdges
from circuittest.claims.ranges import CountOrNone
from circuittest.controls import matched_controls
from circuittest.errors import ControlError
from circuittest.find.recipe import unit_scoring
from circuittest.stats import Estimate, rank_p

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab


def sufficiency(
    lab: Lab,
    circuit: Circuit,
    *,
    ablation: Ablation = "counterfactual",
    positions: Where = "all",
    metric: Metric | None = None,
    universe: str | None = None,
    controls: CountOrNone = 0,
    sizes: list[float] | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """Share of the behaviour that is left when of the universe only the circuit is kept (faithfulness).

    A circuit may also hold edges, such as `Lab.minimal` finds: every other edge of the model then carries what it is
    replaced by, exactly, and m(∅ kept) has all of them replaced.

    Estimand: (m(C) - m(∅ kept)) / (m(full) - m(∅ kept)), means over evaluation examples; m(C) with the universe less
    the circuit ablated, m(∅ kept) with the whole universe ablated. Units outside the universe stay untouched in all
    of them. 1 means as good as the model, above 1 better, below 0 worse than nothing kept; no value is clamped.
    (Without m(∅ kept), as in arXiv 2407.10827, the number depends on what the ablation alone does: that one is
    ``details["raw"]``.)

    Parameters
    ----------
    ablation:
        What the other units give instead: their value on the example's counterfactual prompt, the mean over
        discovery examples (also per position), the value on another discovery prompt, or zero.
    positions:
        At which positions they do: all, all but the first, or the answer's.
    metric:
        "logit_diff", "log_prob", "prob_diff", or "accuracy" (the task's); by default the task's metric.
    universe:
        What is ever removed; by default the universe that the circuit was found in, or the kinds it holds.
    controls:
        Random circuits of the same kinds and sizes, drawn from the whole universe, for ``details["controls"]``; 0
        leaves them out.
    sizes:
        Circuit sizes in percent of the universe, for CPR and CMD in ``details["curve"]`` (see
        `circuittest.claims.curve`); circuits there are the top units by mean attribution on discovery examples.
    cluster:
        Which examples are drawn together (`circuittest.claims.clusters`).
    seed:
        Of the random circuits and of the resampling.

    Invalid when the circuit is empty, holds units and edges, leaves the universe or fills it, or was chosen on
    evaluation examples; when the model is not competent; when the interval of m(full) - m(∅ kept) contains zero; and
    for options of units with a circuit of edges (universe, controls, sizes, other ablations and positions).
    """
    groups = cluster_labels(lab.data.evaluate, cluster)
    if circuit.edges:
        others = {"universe": universe is not None, "controls": bool(controls), "sizes": sizes is not None}
        wires = KeptEdges(
            lab,
            circuit,
            ablation=ablation,
            positions=positions,
            metric=metric,
            others=[name for name, given in others.items() if given],
            groups=groups,
        )
        return _of_edges(lab, circuit, wires, groups, cluster, seed)
    kept, reason = keep(
        lab, circuit, universe=universe, ablation=ablation, positions=positions, metric=metric, groups=groups
    )
    choices = kept.choices | {"controls": controls, "sizes": sizes, "cluster": cluster, "seed": seed}

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("sufficiency", circuit, choices=choices, details=details or {}, invalid=reason)

    if reason:
        return invalid(reason)
    full, empty = kept.outcomes([(), kept.universe])
    span = reach(full, empty, kept.metric, seed, groups)
    details = span.details() | clustered(groups, cluster)
    if span.reason:
        return invalid(span.reason, details)
    only = kept.outcomes([kept.without(kept.circuit)])[0]
    inference = share(only - empty, span, between=True, seed=seed)
    details |= {
        "m_circuit": float(only.mean()),
        **_raw(only, full, kept.metric, seed),
        "accuracy": _accuracy(kept),
    }
    if controls:
        details["controls"] = _random_circuits(kept, circuit, span, float(only.mean()), controls, seed)
    if sizes is not None:
        details["curve"] = faithfulness_curve(
            kept, span, sizes, scoring=unit_scoring(circuit.origin), seed=seed
        )
    told = f"{kept.metric} {full.mean():.2f} of the model, {only.mean():.2f} with the circuit kept, "
    told += f"{empty.mean():.2f} with nothing kept"
    driving = by_examples(
        lab,
        (only - empty) / span.value,
        after=kept.without(kept.circuit),
        value=ablation,
        positions=positions,
        ties=only,
        told={"control": told},
    )
    return lab.estimate(
        "sufficiency",
        circuit,
        driving=driving,
        inference=inference,
        choices=choices,
        details=details,
        hints=_hints(inference.interval()) + few_clusters(groups, cluster),
    )


def _of_edges(
    lab: Lab, circuit: Circuit, kept: KeptEdges, groups: Sequence[str] | None, cluster: Cluster, seed: int
) -> Estimate:
    how: dict[str, Any] = {"choices": kept.choices | {"cluster": cluster, "seed": seed}}
    if kept.reason:
        return lab.estimate("sufficiency", circuit, invalid=kept.reason, **how)
    span = reach(kept.full, kept.empty, kept.metric, seed, groups)
    details = span.details() | clustered(groups, cluster) | {"accuracy": kept.accuracy}
    if span.reason:
        return lab.estimate("sufficiency", circuit, invalid=span.reason, details=details, **how)
    inference = share(kept.only - kept.empty, span, between=True, seed=seed)
    details |= {"m_circuit": float(kept.only.mean()), **_raw(kept.only, kept.full, kept.metric, seed)}
    hints = _hints(inference.interval()) + few_clusters(groups, cluster)
    return lab.estimate("sufficiency", circuit, inference=inference, details=details, hints=hints, **how)


def _hints(interval: tuple[float, float]) -> tuple[str, ...]:
    if interval[0] > 1:
        return (
            "above 1: the circuit alone does better than the model; something that was removed works against it",
        )
    if interval[1] < 0:
        return ("below 0: the circuit alone does worse than nothing kept; it works against the answer",)
    return ()


def _raw(only: np.ndarray, full: np.ndarray, metric: str, seed: int) -> dict[str, Any]:
    """m(C)/m(full), where m(full) is clearly positive."""
    below = reach(full, np.zeros_like(full), metric, seed)
    if below.interval[0] > 0:
        return {"raw": float(only.mean() / full.mean())}
    return {"raw": None, "raw_undefined": f"m(full) is {full.mean():.3g}, not clearly above zero"}


def _accuracy(kept: Kept) -> dict[str, float]:
    """Accuracies beside the metric: they say what a share of a logit difference is worth."""
    measure = kept.lab.accuracy
    full, empty = kept.outcomes([(), kept.universe], measure)
    only = kept.outcomes([kept.without(kept.circuit)], measure)[0]
    return {"full": float(full.mean()), "empty": float(empty.mean()), "circuit": float(only.mean())}


def _random_circuits(
    kept: Kept, circuit: Circuit, span: Range, own: float, count: int, seed: int
) -> dict[str, Any]:
    """Sufficiency of random circuits, and the rank of the circuit among them (high is good)."""
    lab = kept.lab
    try:
        drawn = matched_controls(
            circuit.units, kept.ranked, lab.layout, count=count, seed=seed, outside=False
        )
    except ControlError as error:
        return {"undefined": str(error)}
    means = kept.outcomes([kept.without(units) for units in drawn.sets]).mean(axis=1)
    rank = rank_p(own, [float(mean) for mean in means], harmful_is="high")
    values = (means - span.empty.mean()) / span.value
    best = int(np.argmax(values))
    return {
        "sufficiency": [float(value) for value in values],
        "mean": float(values.mean()),
        "best": {"units": [str(u) for u in drawn.sets[best]], "sufficiency": float(values[best])},
        "rank_p": rank.p,
        "rank_p_resolution": rank.resolution,
        "population": drawn.population,
        "enumerated": drawn.enumerated,
        "units": [[str(u) for u in units] for units in drawn.sets],
    }

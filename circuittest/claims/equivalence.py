"""Equivalence: do the circuit alone and the model do equally well?"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims import within
from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters
from circuittest.claims.kept import Ablation, Graded, Where, keep, reach, share
from circuittest.stats import Estimate, MeanInference, RatioInference
from circuittest.stats.absolute import AbsoluteInference

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab


@within(lambda options: (0.0, 0.5 if options["test"] == "outperform" else inf))
def equivalence(
    lab: Lab,
    circuit: Circuit,
    *,
    test: Literal["outperform", "difference"] = "outperform",
    ablation: Ablation = "counterfactual",
    positions: Where = "all",
    metric: Graded | None = None,
    universe: str | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """How far the kept circuit is from doing as well as the model; the threshold is a margin a person chooses.

    With D = s(C(x)) - s(M(x)), the score of the circuit alone less that of the model on one example, the estimand is

    - "outperform": |P(D > 0) + P(D = 0)/2 - 1/2|, between 0 and 1/2: neither does better more often than the other
      (Shi et al., arXiv 2410.13032, section 3.1, whose margin is ε = 0.1; ties, which they leave out, count half);
    - "difference": |mean D| / (m(full) - m(∅ kept)): neither does better on average. A circuit that is a little worse
      on every example fails the first and may pass the second; one that gains as often as it loses, whatever the
      sizes, passes the first.

    ``equivalence <= ε`` is supported when both one-sided tests reject a larger difference (TOST), and refuted
    when Shi et al.'s test rejects a smaller one. Where theirs merely does not reject, the verdict is
    *undecided*: a difference that is not significant is not equivalence.

    Invalid as `sufficiency` is; "outperform" does not divide and needs no range.
    """
    groups = cluster_labels(lab.data.evaluate, cluster)
    kept, reason = keep(
        lab, circuit, universe=universe, ablation=ablation, positions=positions, metric=metric, groups=groups
    )
    choices = kept.choices | {"test": test, "cluster": cluster, "seed": seed}

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("equivalence", circuit, choices=choices, details=details or {}, invalid=reason)

    if reason:
        return invalid(reason)
    full, empty = kept.outcomes([(), kept.universe])
    only = kept.outcomes([kept.without(kept.circuit)])[0]
    noise = kept.noise(full, only)
    difference = only - full
    better, worse = difference > noise, difference < -noise
    span = reach(full, empty, kept.metric, seed, groups)
    details = (
        span.details()
        | clustered(groups, cluster)
        | {
            "m_circuit": float(only.mean()),
            "difference": float(difference.mean()),
            "better": float(better.mean()),
            "worse": float(worse.mean()),
            "tied": float(1 - better.mean() - worse.mean()),
            "noise": noise,
        }
    )
    signed: MeanInference | RatioInference
    if test == "outperform":
        values = (better * 0.5 - worse * 0.5).astype(np.float64)
        signed = MeanInference(values, groups, bounds=(-0.5, 0.5), seed=seed)
    elif span.reason:
        return invalid(span.reason, details)
    else:
        signed = share(difference, span, seed=seed)
    details["signed"] = signed.value
    return lab.estimate(
        "equivalence",
        circuit,
        inference=AbsoluteInference(signed),
        choices=choices,
        details=details,
        hints=few_clusters(groups, cluster),
    )

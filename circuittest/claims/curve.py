"""Sufficiency over circuit sizes: CPR and CMD of the Mechanistic Interpretability Benchmark (arXiv 2504.13151).

The k units with the largest mean attribution, by size, are kept for several k; f(k) is the sufficiency of those.
With x = k/N,

    CPR = ∫ f dx   (how much of the behaviour small circuits hold; 1 at best, if nothing overshoots),
    CMD = ∫ |1 - f| dx   (how far circuits are from the model; 0 at best),

by trapezoids between the sizes asked for and the ends, where f(0) = 0 and f(1) = 1 by definition
(`circuittest.find.sizes`). The benchmark counts edges; here units are counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from circuittest.claims.kept import Kept, Range, share
from circuittest.errors import UsageError
from circuittest.find.sizes import trapezoid, with_ends


def faithfulness_curve(
    kept: Kept, reach: Range, sizes: list[float], *, scoring: dict[str, Any], seed: int
) -> dict[str, Any]:
    """f at every size with CPR and CMD, as plain JSON types.

    Parameters
    ----------
    sizes:
        In percent of the universe; floor(size · N/100) units, at least 1. Sizes that give equally many units are one.
    scoring:
        How units are scored: arguments of `Lab.scores`.

    Raises
    ------
    UsageError
        For no sizes, and for one that is not above 0 and at most 100.
    """
    for size in sizes:
        if not 0 < size <= 100:
            raise UsageError(
                f"a circuit size of {size!r} %", "sizes are percentages of the universe", "use 1 to 100"
            )
    if not sizes:
        raise UsageError("no circuit sizes", "", "give percentages such as [1, 2, 5, 10, 20, 50]")
    table = kept.lab.scores("discover", universe=kept.choices["universe"], **scoring)
    # By size, as circuits are found: the signed score of a unit that helps is negative.
    means = np.abs(table.values.astype(np.float64).mean(axis=0))
    ranked = [table.members[i] for i in np.argsort(-means, kind="stable")]
    total = len(ranked)
    counts = sorted({max(1, int(size * total / 100 + 1e-9)) for size in sizes})
    outcomes = kept.outcomes([kept.without(ranked[:k]) for k in counts])

    shares, before, after = with_ends([k / total for k in counts])
    span = reach.full - reach.empty
    gained = np.vstack([*[np.zeros_like(span)] * before, outcomes - reach.empty, *[span] * after])
    weights = trapezoid(shares)
    cpr = share(weights @ gained, reach, between=True, seed=seed)
    values = gained.mean(axis=1) / span.mean()
    # simultaneous over the sizes (Bonferroni), so that the two areas of distances bound the true one
    level = 1 - 0.05 / len(counts)
    rows = gained[1 : len(counts) + 1]
    bands = [share(row - span, reach, seed=seed).interval(level) for row in rows]
    near = [0.0 if low <= 0 <= high else min(abs(low), abs(high)) for low, high in bands]
    far = [max(abs(low), abs(high)) for low, high in bands]
    tail = [0.0] * after
    return {
        "sizes": [float(size) for size in sizes],
        "units": counts,
        "of": total,
        "sufficiency": [float(value) for value in values[1 : len(counts) + 1]],
        "cpr": cpr.value,
        "cpr_interval": list(cpr.interval(0.95)),
        "cmd": float(weights @ np.abs(1.0 - values)),
        "cmd_interval": [float(weights @ np.array([1.0, *ends, *tail])) for ends in (near, far)],
        **scoring,
        "order": [str(unit) for unit in ranked[: counts[-1]]],
    }

"""The mean over a few given strata (tasks) of the mean over examples of each.

The strata are not a sample: the estimand is (1/K) sum_k mean_k for these K. Each has bounded values and examples of its
own, and its confidence draws are those of `circuittest.stats.mean`; draws of independent strata are averaged one by
one, which is a Bayesian bootstrap of the whole with one pseudo-observation in every stratum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import DRAWS, DrawnInference, Floats
from circuittest.stats.mean import MeanInference


class StratifiedMeanInference(DrawnInference):
    """Inference on the mean of means.

    Parameters
    ----------
    strata:
        Values [n_k] of each stratum, sizes may differ.
    groups:
        For each stratum one label per example, or None; examples of one label are drawn together.
    bounds:
        The range the values have by definition.
    seed, draws:
        Of the resampling.
    """

    def __init__(
        self,
        strata: Sequence[ArrayLike],
        groups: Sequence[Sequence[object] | None] | None = None,
        *,
        bounds: tuple[float, float],
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        if not strata:
            raise UsageError("a mean over no strata", "at least one is needed")
        self.parts = tuple(
            MeanInference(values, labels, bounds=bounds, seed=seed + 10_007 * k, draws=draws)
            for k, (values, labels) in enumerate(zip(strata, groups or [None] * len(strata), strict=True))
        )
        self.value = math.fsum(part.value for part in self.parts) / len(self.parts)
        self.n = sum(part.n for part in self.parts)
        self.limits = self.parts[0].limits
        self.method = f"{self.parts[0].method}, {len(self.parts)} strata"

    def _draw(self) -> tuple[Floats, Floats]:
        found = [part._draw() for part in self.parts]
        low, high = (np.mean([one[side] for one in found], axis=0) for side in (0, 1))
        return low, high

    def standard_error(self) -> float:
        """Of independent strata."""
        return math.sqrt(math.fsum(part.standard_error() ** 2 for part in self.parts)) / len(self.parts)

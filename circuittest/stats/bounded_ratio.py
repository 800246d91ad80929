"""Ratios of accuracies and other bounded measures: mean(numerator)/mean(denominator), both bounded differences.

A sample of twenty accuracies may hold none of the examples on which the numerator goes the other way; what lies a
little beyond the extremes of the sample (`circuittest.stats.graded`) then covers in as few as 88 % of all cases. Bounds
say what the worst unseen example is (Learned-Miller & Thomas 2019; see `circuittest.stats.mean`):

- for (c - e)/(f - e), three measures of one width: c at its least with e and f at their greatest, which takes the width
  from the numerator, or, for ratios above 1, with f alone at its greatest, which adds it to the denominator; for the
  upper bound the reverse;
- for any other numerator: the whole width from the numerator, and from or to the denominator whatever is worse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.graded import RatioInference
from circuittest.stats.inference import DRAWS
from circuittest.stats.two_way import Unseen


class BoundedRatioInference(RatioInference):
    """Inference on a ratio of two mean differences whose values lie in [-width, width].

    Parameters
    ----------
    numerator, denominator:
        Per-example values [n]; the mean of the denominator is positive.
    width:
        The largest absolute value they can have: 1 for differences of accuracies, 2 for differences of `prob_diff`.
    between:
        The ratio is (c - e)/(f - e), with the same e above and below.
    groups, seed, draws:
        As for `MeanInference`.

    Raises
    ------
    UsageError
        As `RatioInference`, and for values beyond the width.
    """

    def __init__(
        self,
        numerator: ArrayLike,
        denominator: ArrayLike,
        groups: Sequence[object] | ArrayLike | None = None,
        *,
        width: float = 1.0,
        between: bool = False,
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        super().__init__(numerator, denominator, groups, seed=seed, draws=draws)
        most = max(float(np.abs(np.asarray(values)).max()) for values in (numerator, denominator))
        if most > width + 1e-9:
            raise UsageError(
                f"a value of {most:g} where {width:g} is the most", "differences of bounded values"
            )
        self._width, self._between = width, between
        self.method = self.method.replace("pseudo-observation", "worst-case pseudo-observation")

    def _unseen(self) -> tuple[Unseen, Unseen]:
        nothing, width = np.zeros_like(self._sizes), self._width
        if not self._between:
            return Unseen(nothing, -width, (0.0, width)), Unseen(nothing, width, (0.0, -width))
        if self.value <= 1:
            return Unseen(nothing, -width, (0.0,)), Unseen(nothing, width, (0.0,))
        return Unseen(nothing, 0.0, (width,)), Unseen(nothing, 0.0, (-width,))

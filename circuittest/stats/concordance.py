"""Do two scores go together over examples? Kendall's tau-a with an interval.

Estimand: tau = P(concordant) - P(discordant) for two examples drawn at random, that is E sign(x - x') sign(y -
y'). Ties count as neither, so that tau is defined, and zero, where one score is the same on every example (a
coefficient that divides by the number of untied pairs would be undefined there).

One draw weighs examples with w ~ Dirichlet(1, ..., 1), one example more than there are; the extra one is
discordant with every other for the lower bound and concordant with every other for the upper. Where all pairs
agree this is about as wide as the exact interval of a proportion.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import DRAWS, DrawnInference, Floats
from circuittest.stats.resampling import exponential_blocks, sample


class ConcordanceInference(DrawnInference):
    """Inference on Kendall's tau-a.

    Parameters
    ----------
    first, second:
        Scores of the same examples [n].
    ties:
        Differences up to this are ties, (of the first, of the second).
    seed, draws:
        Of the resampling.

    Raises
    ------
    UsageError
        Fewer than two examples, scores of unequal number or not finite.
    """

    def __init__(
        self,
        first: ArrayLike,
        second: ArrayLike,
        ties: tuple[float, float] = (0.0, 0.0),
        *,
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        x, y = sample(first, "the first score"), sample(second, "the second score")
        if x.size != y.size or x.size < 2:
            raise UsageError(
                f"{x.size} and {y.size} scores", "two scores of at least two examples are needed"
            )
        if draws < 199:
            raise UsageError(f"{draws} draws", "an interval needs at least 199")
        order = np.lexsort((y, x))  # permuting the examples changes nothing
        x, y = x[order], y[order]
        self._agree = _signs(x, ties[0]) * _signs(y, ties[1])
        self.n = int(x.size)
        self.value = float(self._agree.sum() / (self.n * (self.n - 1)))
        self.limits = (-1.0, 1.0)
        self._seed, self._draws = seed, draws
        self.method = "Kendall's tau-a, Dirichlet weights with pseudo-observation"

    def _draw(self) -> tuple[Floats, Floats]:
        low, high = [], []
        for weights in exponential_blocks(self._seed, self._draws, self.n + 1):
            weights /= weights.sum(axis=1, keepdims=True)
            seen, extra = weights[:, :-1], weights[:, -1]
            pairs = np.einsum("bi,bi->b", seen @ self._agree, seen)
            distinct = 1.0 - np.einsum("bi,bi->b", weights, weights)
            more = 2.0 * extra * (1.0 - extra)
            low.append((pairs - more) / distinct)
            high.append((pairs + more) / distinct)
        return np.concatenate(low), np.concatenate(high)

    def standard_error(self) -> float:
        """Of the U-statistic: twice that of each example's mean agreement with the others."""
        agreement = self._agree.sum(axis=1) / (self.n - 1)
        return float(2.0 * np.std(agreement, ddof=1) / np.sqrt(self.n))


def _signs(values: Floats, tie: float) -> Floats:
    """sign(v_i - v_j) [n × n]; differences up to `tie` are 0."""
    difference = values[:, None] - values[None]
    found: Floats = np.where(np.abs(difference) <= tie, 0.0, np.sign(difference))
    return found

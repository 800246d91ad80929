"""Confidence sequences by betting: means judged after every observation, at any stopping time.

For one dimension alone: the mean over a population of control sets with the examples fixed (drawn without
replacement), or the mean over examples with the sets fixed. Values are bounded. For every candidate mean m a gambler
bets against "the mean is m" with capital K_t(m) = prod_i (1 + lambda_i (x_i - m_i)), where lambda_i depends on the
past only and m_i is what is left of the population's mean, (M m - sum of earlier x)/(M - i + 1), or m itself in an
endless population. Under the true m the capital is a non-negative martingale, so P(it ever reaches 1/a) <= a (Ville
1939): the candidates that are not yet refuted form an interval that covers at all times together (Waudby-Smith & Ramdas
2020, arXiv 2006.04347, and 2024, JRSS B 86).

Both dimensions together are judged by `circuittest.stats.sequential`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import Floats
from circuittest.stats.resampling import check_range
from circuittest.stats.verdict import Outcome

#: Bets are at most this share of what keeps the capital positive.
_BOLD = 0.5
_GRID = 1000
_TINY = 1e-9


class ConfidenceSequence:
    """Bounds on a mean that hold at all times together.

    Parameters
    ----------
    bounds:
        Of the values, by definition.
    population:
        M, the number of values of a finite population drawn without replacement; None for an endless one.
    confidence:
        Two-sided; each side alone holds at 1 - (1 - confidence)/2.

    Attributes
    ----------
    n, mean:
        Values seen, and their mean (NaN before the first).
    interval:
        The running intersection of the intervals so far.
    """

    def __init__(
        self,
        bounds: tuple[float, float] = (0.0, 1.0),
        *,
        population: int | None = None,
        confidence: float = 0.95,
    ) -> None:
        if not bounds[0] < bounds[1]:
            raise UsageError(f"bounds are {bounds!r}", "the first must be below the second")
        if population is not None and population < 1:
            raise UsageError(f"a population of {population}", "it holds at least one value")
        if not 0.0 < confidence < 1.0:
            raise UsageError(f"confidence is {confidence!r}", "it lies between 0 and 1", "say 0.95")
        self._bounds, self._population = bounds, population
        self._tail = (1.0 - confidence) / 2.0
        self._candidates = np.linspace(0.0, 1.0, _GRID + 1)
        self._up, self._down = (
            np.zeros(_GRID + 1),
            np.zeros(_GRID + 1),
        )  # log capital, betting on more and on less
        self._sum, self._squares = 0.0, 0.25  # one pseudo-value with the variance 1/4
        self._low, self._high = 0.0, 1.0
        self.n = 0

    @property
    def mean(self) -> float:
        """Mean of the values seen."""
        low, high = self._bounds
        return low + (high - low) * self._sum / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """What is not refuted yet."""
        low, high = self._bounds
        return low + (high - low) * self._low, low + (high - low) * self._high

    def update(self, values: ArrayLike) -> tuple[float, float]:
        """See further values, in the order drawn; the interval then."""
        array = np.atleast_1d(np.asarray(values, dtype=np.float64))
        check_range(array, "the sequence", self._bounds)
        if self._population is not None and self.n + array.size > self._population:
            raise UsageError(
                f"{self.n + array.size} values of a population of {self._population}", "they are distinct"
            )
        low, high = self._bounds
        for value in (array - low) / (high - low):
            self._see(float(value))
        return self.interval

    def decide(self, threshold: float) -> Outcome:
        """Is the mean at least the threshold? "supported", "refuted" or "undecided", at any time one likes to ask."""
        low, high = self.interval
        return "supported" if low >= threshold else "refuted" if high < threshold else "undecided"

    def _see(self, x: float) -> None:
        left = self._left()
        guess = (0.5 + self._sum) / (self.n + 1)
        variance = self._squares / (self.n + 1)
        self.n += 1
        # predictable plug-in bets (Waudby-Smith & Ramdas 2020, section 3.2)
        bet = math.sqrt(2.0 * math.log(1.0 / self._tail) / (variance * self.n * math.log(self.n + 1.0)))
        inside = (left > _TINY) & (left < 1.0 - _TINY)
        centre = np.where(inside, left, 0.5)
        more, less = np.minimum(bet, _BOLD / centre), np.minimum(bet, _BOLD / (1.0 - centre))
        self._up += np.where(inside, np.log1p(more * (x - centre)), 0.0)
        self._down += np.where(inside, np.log1p(-less * (x - centre)), 0.0)
        # at the ends a single value refutes: nothing above 0 has the mean 0, and no mean lies beyond the ends
        self._up[(left < -_TINY) | ((left <= _TINY) & (x > _TINY))] = np.inf
        self._down[(left > 1.0 + _TINY) | ((left >= 1.0 - _TINY) & (x < 1.0 - _TINY))] = np.inf
        self._sum += x
        self._squares += (x - guess) ** 2
        self._shrink()

    def _left(self) -> Floats:
        """The mean of what is not drawn yet, for each candidate."""
        if self._population is None:
            return self._candidates
        remaining = max(1, self._population - self.n)
        return (self._population * self._candidates - self._sum) / remaining

    def _shrink(self) -> None:
        bar = math.log(1.0 / self._tail)
        step = 1.0 / _GRID
        standing, standing_too = np.flatnonzero(self._up < bar), np.flatnonzero(self._down < bar)
        # the truth may lie between the outermost candidate that stands and the next
        low = 1.0 if standing.size == 0 else max(0.0, float(standing[0] - 1) * step)
        high = 0.0 if standing_too.size == 0 else min(1.0, float(standing_too[-1] + 1) * step)
        if self._population is not None:  # what is drawn is certain
            low = max(low, self._sum / self._population)
            high = min(high, (self._sum + self._population - self.n) / self._population)
        self._low, self._high = max(self._low, low), min(self._high, high)

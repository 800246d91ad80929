"""From which size on does a curve stay above a level?

Estimand: k*, the smallest of the sizes measured such that D(k) >= s for it and for every larger one, where D(k) =
mean(damage_k) / mean(reach) over the population of examples and D = 1 at the last size. Curves are not monotone, so
that a first crossing that does not hold is none.

k* is 1 + the last size with D < s, which makes both bounds tests of single sizes:

*Upper bound*, the smallest size from which on every D(k) >= s is established at level alpha. It is wrong only if the
one size just below k* is wrongly established: no correction for the number of sizes.

*Lower bound*, the size after the last one where D(k) < s is established at level alpha/K (Bonferroni): any of the sizes
above k* could be established wrongly.

Each single test is that of `RatioInference`, Fieller's: D(k) < s is mean(damage_k - s reach) < 0.

*The value at an end.* The value is the sample's own k*. It is the lower end where the size before it is established to
be below the level, or is none; it is the upper end where it and every larger size are established to be above. Either
is what inverted tests of a whole number give, and so is an interval of one size. Where the curve runs along the level
the value errs upwards, and far: one of many sizes falls below by chance, so that it often is the upper end. Only the
lower end allows for that. A bootstrap of k* does not: its resamples repeat the error. Where two sizes are enough, nine
run along the level and n is 40, the lower ends of its percentile intervals miss in four samples of five
(tests/stats/test_crossing.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.graded import RatioInference
from circuittest.stats.inference import Op


class CrossingInference:
    """Inference on the size from which on a curve stays above a level.

    Parameters
    ----------
    damage:
        [K × n] damage at each size, per example; the last size removes everything.
    reach:
        [n] the most there is to lose; its mean is positive.
    sizes:
        The K sizes, rising.
    level:
        s, between 0 and 1.
    unit:
        What one unit counts: 1, or 1/N for shares of N.
    groups:
        One label per example; examples of one label are drawn together.
    seed:
        Of the resampling.
    """

    def __init__(
        self,
        damage: ArrayLike,
        reach: ArrayLike,
        sizes: Sequence[int],
        *,
        level: float,
        unit: float = 1.0,
        groups: Sequence[object] | None = None,
        seed: int = 0,
    ) -> None:
        table = np.asarray(damage, dtype=np.float64)
        if (
            table.ndim != 2
            or table.shape[0] != len(sizes)
            or list(sizes) != sorted(set(sizes))
            or not len(sizes)
        ):
            raise UsageError(
                f"damage of shape {table.shape} at {len(sizes)} sizes", "one row a size, sizes rising"
            )
        if not 0.0 < level < 1.0:
            raise UsageError(f"level is {level!r}", "it is a share between 0 and 1", "say 0.8")
        self._damage, self._reach = table, np.asarray(reach, dtype=np.float64)
        self.sizes, self.level, self.unit = tuple(sizes), float(level), float(unit)
        self._groups = groups
        self._draws, self._seed = max(1999, 40 * len(sizes) - 1), seed
        self._tests: dict[int, RatioInference] = {}
        self.n = int(table.shape[1])
        self.curve = tuple(float(row.mean() / self._reach.mean()) for row in table)
        below = [k for k, value in enumerate(self.curve[:-1]) if value < self.level]
        self.value = self._size(below[-1] + 1 if below else 0)
        self.method = f"sizes tested one by one; {self._test(len(sizes) - 1).method}"

    def _size(self, position: int) -> float:
        return self.sizes[position] * self.unit

    def _test(self, position: int) -> RatioInference:
        if position not in self._tests:
            self._tests[position] = RatioInference(
                self._damage[position], self._reach, self._groups, seed=self._seed, draws=self._draws
            )
        return self._tests[position]

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Both ends are sizes that were measured."""
        last = len(self.sizes) - 1
        high = last
        while high > 0 and self._test(high - 1).interval(confidence)[0] >= self.level:
            high -= 1
        corrected = 1.0 - (1.0 - confidence) / len(self.sizes)
        low = next(
            (
                k + 1
                for k in reversed(range(last))
                if self.curve[k] < self.level and self._test(k).interval(corrected)[1] < self.level
            ),
            0,
        )
        return min(self._size(low), self.value), max(self._size(high), self.value)

    def p_value(self, op: Op, threshold: float) -> float:
        """ "k* <= t": the largest p of the sizes that must all be above; ">=": the smallest p, times K."""
        last = len(self.sizes) - 1
        if op in ("<=", "<"):
            start = self._last(threshold, inclusive=op == "<=")
            if start < 0:
                return 1.0
            return max((self._test(k).p_value(">=", self.level) for k in range(start, last)), default=0.0)
        start = self._last(threshold, inclusive=op == ">")
        if start < 0:
            return 0.0
        found = [self._test(k).p_value("<", self.level) for k in range(start, last)]
        return min(1.0, len(self.sizes) * min(found)) if found else 1.0

    def _last(self, threshold: float, *, inclusive: bool) -> int:
        """Position of the last size below (or at) the threshold; -1 where there is none."""
        limit = threshold / self.unit
        slack = 1e-9 * max(1.0, abs(limit))
        fits = [
            k
            for k, size in enumerate(self.sizes)
            if size < limit - slack or (inclusive and size <= limit + slack)
        ]
        return fits[-1] if fits else -1

    def needed(self, op: Op, threshold: float) -> Mapping[str, Any]:
        """What would decide the size on which the claim depends most."""
        start = max(0, self._last(threshold, inclusive=op in ("<=", ">")))
        positions = range(start, max(start + 1, len(self.sizes) - 1))
        distance = lambda k: abs(self.curve[k] - self.level)
        deciding = self._test(min(positions, key=distance))
        if math.isclose(deciding.value, self.level, abs_tol=1e-12):
            return {"n": None, "controls": None, "text": "none: the curve touches the level"}
        return deciding.needed(">=" if op in ("<=", "<") else "<", self.level)

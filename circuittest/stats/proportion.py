"""One accuracy, and the difference of two accuracies on the same examples."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import beta, norm

from circuittest.errors import UsageError
from circuittest.stats.inference import Op, examples_needed
from circuittest.stats.resampling import sample


class ProportionInference:
    """Inference on a proportion.

    "exact" (default): Clopper & Pearson (1934), Beta quantiles; each end is an exact one-sided bound, hence
    conservative. "wilson": Wilson (1927), the score interval; narrower, but near 0 and 1 its coverage
    falls to 84 % at some proportions, so that no verdict should rest on it.

    Parameters
    ----------
    successes, trials:
        Counts, 0 <= successes <= trials, trials >= 1.
    """

    def __init__(self, successes: int, trials: int, *, kind: Literal["exact", "wilson"] = "exact") -> None:
        if trials < 1 or not 0 <= successes <= trials or int(successes) != successes or int(trials) != trials:
            raise UsageError(f"{successes} successes in {trials} trials", "a proportion needs whole counts")
        if kind not in ("exact", "wilson"):
            raise UsageError(f"kind is {kind!r}", 'it is "exact" or "wilson"')
        self.successes, self.n, self.kind = int(successes), int(trials), kind
        self.value = successes / trials
        self.method = "Clopper-Pearson" if kind == "exact" else "Wilson"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided interval in [0, 1]."""
        return proportion_interval(self.successes, self.n, confidence, self.kind)

    def p_value(self, op: Op, threshold: float) -> float:
        """Exact binomial tail, or the score test's."""
        if op in ("<=", "<"):
            mirrored: Op = ">=" if op == "<=" else ">"
            return ProportionInference(self.n - self.successes, self.n, kind=self.kind).p_value(
                mirrored, 1.0 - threshold
            )
        if threshold < 0.0 or (threshold == 0.0 and (op == ">=" or self.successes > 0)):
            return 0.0
        if threshold >= 1.0:
            # theta < 1 can never be rejected; nor can theta <= 1
            return 1.0
        if threshold == 0.0:
            return 1.0
        if self.kind == "exact":
            if self.successes == 0:
                return 1.0
            return float(beta.cdf(threshold, self.successes, self.n - self.successes + 1))
        return float(norm.sf((self.value - threshold) / math.sqrt(threshold * (1.0 - threshold) / self.n)))

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        """The n that would decide; see `Inference`."""
        low, high = self.interval()
        half = self.value - low if self.value > threshold else high - self.value
        return examples_needed(self.n, half, abs(self.value - threshold))


def proportion_interval(
    successes: int, trials: int, confidence: float = 0.95, kind: Literal["exact", "wilson"] = "exact"
) -> tuple[float, float]:
    """Clopper-Pearson or Wilson interval of successes/trials."""
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence is {confidence!r}", "it lies between 0 and 1", "say 0.95")
    tail = (1.0 - confidence) / 2.0
    if kind == "exact":
        low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
        high = 1.0 if successes == trials else float(beta.isf(tail, successes + 1, trials - successes))
        return low, high
    z = float(norm.isf(tail))
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high


class PairedDifferenceInference:
    """Inference on the difference of two proportions measured on the same examples, first - second.

    Newcombe (1998), method 10: the Wilson intervals of the two proportions are combined by square-and-add
    with the correlation phi of the 2x2 table (with his continuity correction for positive association).

    Parameters
    ----------
    first, second:
        0/1 outcomes [n] of the same examples.
    """

    method = "Newcombe paired (method 10)"

    def __init__(self, first: ArrayLike, second: ArrayLike) -> None:
        a, b = (
            sample(first, "the first outcome", (0.0, 1.0)),
            sample(second, "the second outcome", (0.0, 1.0)),
        )
        if a.shape != b.shape:
            raise UsageError(
                f"{a.size} outcomes against {b.size}", "paired outcomes are of the same examples"
            )
        if not (np.isin(a, (0.0, 1.0)).all() and np.isin(b, (0.0, 1.0)).all()):
            raise UsageError(
                "a paired difference of proportions needs outcomes 0 and 1",
                "others are means",
                "use MeanInference",
            )
        self.n = int(a.size)
        self._both = int(np.sum(a * b))
        self._first = int(np.sum(a)) - self._both
        self._second = int(np.sum(b)) - self._both
        self._none = self.n - self._both - self._first - self._second
        self.value = (self._first - self._second) / self.n

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided interval in [-1, 1]."""
        n1, n2 = self._both + self._first, self._both + self._second
        p1, p2 = n1 / self.n, n2 / self.n
        l1, u1 = proportion_interval(n1, self.n, confidence, "wilson")
        l2, u2 = proportion_interval(n2, self.n, confidence, "wilson")
        phi = self._phi()
        low = (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2
        high = (p2 - l2) ** 2 - 2 * phi * (p2 - l2) * (u1 - p1) + (u1 - p1) ** 2
        return self.value - math.sqrt(max(low, 0.0)), self.value + math.sqrt(max(high, 0.0))

    def _phi(self) -> float:
        e, f, g, h = self._both, self._first, self._second, self._none
        product = (e + f) * (g + h) * (e + g) * (f + h)
        if product == 0:
            return 0.0
        cross = float(e * h - f * g)
        if cross > 0:
            cross = max(cross - self.n / 2, 0.0)
        return cross / math.sqrt(product)

    def p_value(self, op: Op, threshold: float) -> float:
        """The one-sided level at which the interval's end reaches the threshold."""
        if op in ("<=", "<"):
            return _invert(lambda tail: -self.interval(1 - 2 * tail)[1], -self.value, -threshold)
        return _invert(lambda tail: self.interval(1 - 2 * tail)[0], self.value, threshold)

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        """The n that would decide; see `Inference`."""
        low, high = self.interval()
        half = self.value - low if self.value > threshold else high - self.value
        return examples_needed(self.n, half, abs(self.value - threshold))


def _invert(bound: Any, value: float, threshold: float) -> float:
    """The tail at which a lower bound that rises with the tail reaches the threshold; 0.5 or more beyond the value."""
    if threshold >= value:
        return 0.5 if threshold == value else 1.0
    smallest = 1e-12
    if bound(smallest) >= threshold:
        return smallest
    return float(brentq(lambda tail: bound(tail) - threshold, smallest, 0.5 - 1e-12, xtol=1e-14))

"""What every inference offers, and the confidence draws from which most of them answer.

An inference is a point value and a family of one-sided bounds. Interval and p-values are the same bounds
read in two directions, so they can never contradict each other: the claim "theta >= t" has p <= alpha/2
exactly when the lower end of the 1 - alpha interval is at least t.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from circuittest.errors import UsageError

Op = Literal[">=", ">", "<=", "<"]
Floats = NDArray[np.float64]

#: Resamples per inference. (draws + 1) * 0.025 is a whole number, so that 95 % ends are order statistics.
DRAWS = 9999

#: Beyond this many times the present n, more data is no practical advice.
PRACTICAL = 400.0

#: Standard errors that the next sample's value may lie closer to the threshold: the normal 80 % quantile.
POWER = 0.84


@runtime_checkable
class Inference(Protocol):
    """A point value with interval, p-values and advice on the sample size."""

    @property
    def value(self) -> float:
        """The point estimate."""

    @property
    def method(self) -> str:
        """How the interval is made, in a few words; a recorded choice."""

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided interval of one-sided bounds at 1 - (1 - confidence)/2; an end may be infinite."""

    def p_value(self, op: Op, threshold: float) -> float:
        """One-sided p-value of the negation of "theta `op` threshold"."""

    def needed(self, op: Op, threshold: float) -> Mapping[str, Any]:
        """What would decide the claim: {"n": int | None, "controls": int | None, "text": str}."""


class DrawnInference:
    """Bounds read off two sets of confidence draws.

    The lower bound at one-sided level 1 - a is the k-th smallest of `low`, k = a (B + 1), the upper bound the
    k-th largest of `high`; p-values count draws beyond the threshold: p = (1 + #{low < t})/(B + 1) for ">=".
    (Davison & Hinkley 1997, sections 4.2 and 5.4.) Subclasses set `value`, `method` and `_draw`.

    Attributes
    ----------
    value, method:
        See `Inference`.
    limits:
        Logical range of the estimand; an end may be infinite.
    n:
        Number of examples.
    share:
        Part of the error probability that these bounds may spend; see `spending`.
    """

    value: float
    method: str
    limits: tuple[float, float] = (-math.inf, math.inf)
    n: int
    share: float = 1.0
    _cache: tuple[Floats, Floats] | None = None

    def _draw(self) -> tuple[Floats, Floats]:
        raise NotImplementedError

    def draws(self) -> tuple[Floats, Floats]:
        """The confidence draws (low, high), each sorted; computed once."""
        if self._cache is None:
            low, high = self._draw()
            # twelve decimals: the last bits of a matrix product depend on the machine's threads
            self._cache = np.sort(np.round(low, 12)), np.sort(np.round(high, 12))
        return self._cache

    def spending(self, share: float) -> Self:
        """The same inference as one of several looks at growing data: it may spend this share of the error probability.

        Interval and p-values are those of Bonferroni's inequality, p / share: as long as the shares of all planned
        looks sum to at most 1, the interval of the look at which measuring stops covers as it says, whatever made
        it stop (`circuittest.stats.sequential`).
        """
        if not 0.0 < share <= 1.0:
            raise UsageError(f"a share of {share!r}", "it lies between 0 and 1")
        other = copy.copy(self)
        other.share = share
        if share < 1.0:
            other.method = f"{self.method}, a look that spends {share:g} of the error probability"
        return other

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        if not 0.0 < confidence < 1.0:
            raise UsageError(f"confidence is {confidence!r}", "it lies between 0 and 1", "say 0.95")
        low, high = self.draws()
        rank = math.floor(self.share * (1.0 - confidence) / 2.0 * (low.size + 1) + 1e-9)
        if rank < 1:
            return self.limits
        # a bound beyond the point value, possible only in tiny skewed samples, is moved to it
        return min(float(low[rank - 1]), self.value), max(float(high[-rank]), self.value)

    def p_value(self, op: Op, threshold: float) -> float:
        low, high = self.draws()
        if op in (">=", ">"):
            trivial = threshold <= self.limits[0] if op == ">=" else threshold < self.limits[0]
            beyond = np.searchsorted(low, threshold, side="left" if op == ">=" else "right")
            wrong_side = self.value < threshold or (op == ">" and self.value == threshold)
        else:
            trivial = threshold >= self.limits[1] if op == "<=" else threshold > self.limits[1]
            beyond = high.size - np.searchsorted(high, threshold, side="right" if op == "<=" else "left")
            wrong_side = self.value > threshold or (op == "<" and self.value == threshold)
        if trivial:
            return 0.0
        p = (1.0 + float(beyond)) / (low.size + 1.0)
        return min(1.0, (max(p, 0.5) if wrong_side else p) / self.share)

    def standard_error(self) -> float:
        """The part of the error that shrinks like 1/sqrt(n), as a standard error; NaN where it is unknown."""
        return math.nan

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        low, high = self.interval()
        half = self.value - low if self.value > threshold else high - self.value
        error = self.stretch * self.standard_error()
        return examples_needed(self.n, half, abs(self.value - threshold), error)

    @property
    def stretch(self) -> float:
        """How many times 1.96 standard errors a bound lies from the value, because of `share`."""
        return 1.0 if self.share == 1.0 else float(-ndtri(0.025 * self.share)) / 1.96


def examples_needed(n: int, half: float, gap: float, error: float = math.nan) -> dict[str, Any]:
    """The n at which the half-width gets below the gap between value and threshold; see `growth`."""
    if not math.isfinite(half):
        return {"n": None, "controls": None, "text": "more varied data: this sample gives no bound"}
    factor = growth(half, gap, error)
    if factor > PRACTICAL:
        return nothing_needed()
    # a tenth more at least: the half-width only roughly follows the formula
    wanted = max(round_up(1.1 * n), round_up(n * factor))
    return {"n": wanted, "controls": None, "text": f"about n = {wanted} examples"}


def growth(half: float, gap: float, error: float = math.nan) -> float:
    """By which factor f a sample must grow for its half-width to shrink to the gap.

    What 1.96 standard errors explain of the half-width shrinks like 1/sqrt(f), the rest (what was not seen) like
    1/f; without a standard error all of it shrinks like 1/sqrt(f). The value of the larger sample will differ from
    this one's, too: with POWER more of the standard error four samples in five decide, if this value is the true one.
    """
    if gap <= 0.0:
        return math.inf
    root = half if math.isnan(error) else min(half, 1.96 * error)
    rest = half - root
    root *= 1.0 + POWER / 1.96
    if half / gap > 1e100:  # a gap of rounding errors, whose square would overflow
        return math.inf
    if rest <= 1e-12:
        return (root / gap) ** 2
    inverse_root = 2.0 * gap / (math.sqrt(root**2 + 4.0 * rest * gap) + root)
    return 1.0 / inverse_root**2


def nothing_needed() -> dict[str, Any]:
    """The advice when no practical amount of data would decide."""
    return {"n": None, "controls": None, "text": "none: within the margin of the threshold"}


def round_up(count: float) -> int:
    """A sample size rounded up to two significant digits; more would be pretended precision."""
    whole = math.ceil(count - 1e-9)
    if whole < 100:
        return whole
    scale: int = 10 ** (len(str(whole)) - 2)
    return -(-whole // scale) * scale

"""Student's t from subsampled replicates, for one statistic and for many at once (max-T).

The replicates are the statistic on random subsamples of the examples, without replacement (delete-d jackknife; Shao &
Wu 1989). A statistic whose error shrinks like 1/sqrt(n) varies over subsamples that keep a share k of the examples
with variance (1 - k)/k times its sampling variance, so that the standard error is the replicates' standard deviation
times sqrt(k/(1 - k)). Unlike the bootstrap a subsample repeats no example: a repeated example would look like a
reliable one to a split half. Unlike deleting one example at a time, deleting many moves ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from circuittest.errors import UsageError
from circuittest.stats.inference import Floats, Op, examples_needed
from circuittest.stats.resampling import generator

#: Draws of the largest of many t statistics. (draws + 1) * 0.025 is a whole number.
MAX_DRAWS = 3999


def subsample_error(replicates: ArrayLike, kept: float) -> Floats:
    """Standard errors [...] from replicates [R × ...] on subsamples that keep the share `kept` of the examples."""
    values = np.asarray(replicates, dtype=np.float64)
    if values.shape[0] < 2 or not 0 < kept < 1:
        raise UsageError(
            f"{values.shape[0]} replicates that keep {kept:g}", "two at least, and a share below 1"
        )
    spread: Floats = np.sqrt(values.var(axis=0, ddof=1) * kept / (1 - kept))
    return spread


class StudentInference:
    """Bounds value ± t · error, for an estimate without known limits.

    Parameters
    ----------
    value, error:
        Point value and its standard error, positive unless nothing varies.
    df:
        Degrees of freedom.
    n:
        Number of examples, for advice on how many would decide.
    method:
        How the error was found.
    """

    def __init__(self, value: float, error: float, df: float, n: int, method: str) -> None:
        if not (math.isfinite(value) and math.isfinite(error)) or error < 0 or df <= 0:
            raise UsageError(
                f"value {value:g}, standard error {error:g}, {df:g} degrees of freedom", "not usable"
            )
        self.value, self.error, self.df, self.n, self.method = (
            float(value),
            float(error),
            float(df),
            n,
            method,
        )

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        if not 0.0 < confidence < 1.0:
            raise UsageError(f"confidence is {confidence!r}", "it lies between 0 and 1", "say 0.95")
        half = float(stdtrit(self.df, 0.5 + confidence / 2)) * self.error
        return self.value - half, self.value + half

    def p_value(self, op: Op, threshold: float) -> float:
        gap = self.value - threshold if op in (">=", ">") else threshold - self.value
        if self.error == 0.0:
            return 0.0 if gap > 0 or (gap == 0 and op in (">=", "<=")) else 1.0
        return float(stdtr(self.df, -gap / self.error))

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        low, high = self.interval()
        return examples_needed(self.n, (high - low) / 2, abs(self.value - threshold), self.error)


class MaxT:
    """Simultaneous bounds for many correlated statistics.

    The largest (statistic - truth)/error of all is drawn from a normal with the replicates' correlations, divided by
    the root of a chi-squared over its degrees of freedom, and its quantile takes the place of Student's. Narrower
    than Bonferroni's where the statistics go together.

    Parameters
    ----------
    values:
        Point values [P].
    replicates:
        [R × P], from the same subsamples for all.
    kept, df:
        See `subsample_error` and `StudentInference`.
    """

    def __init__(
        self, values: ArrayLike, replicates: ArrayLike, kept: float, df: float, *, seed: int = 0
    ) -> None:
        self.values = np.asarray(values, dtype=np.float64)
        self.errors = subsample_error(replicates, kept)
        spread = np.asarray(replicates, dtype=np.float64)
        spread = spread - spread.mean(0)
        norms = np.sqrt((spread**2).sum(0))
        varied = norms > 0
        scaled = np.divide(spread, norms, out=np.zeros_like(spread), where=varied)
        rng = generator(seed)
        draws = rng.standard_normal((MAX_DRAWS, spread.shape[0])) @ scaled
        draws /= np.sqrt(rng.chisquare(df, MAX_DRAWS) / df)[:, None]
        if not varied.any():
            draws = np.zeros((MAX_DRAWS, 1))
        # what is the largest of P statistics is, with the sign turned, the smallest: one set of draws serves both sides
        self.largest = np.sort(draws.max(1))

    def critical(self, alpha: float) -> float:
        """The 1 - alpha quantile of the largest t statistic."""
        rank = math.floor(alpha * (self.largest.size + 1) + 1e-9)
        return math.inf if rank < 1 else float(self.largest[-rank])

    def tail(self, t: float) -> float:
        """p-value of a largest t statistic: (1 + draws at least as large)/(1 + draws)."""
        beyond = self.largest.size - int(np.searchsorted(self.largest, t, side="left"))
        return (1.0 + beyond) / (1.0 + self.largest.size)

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        """Lower bounds [P] that all hold at confidence 1 - alpha, and upper bounds likewise."""
        reach = self.critical(alpha) * self.errors
        return self.values - reach, self.values + reach

    def distances(self, threshold: float) -> Floats:
        """(value - threshold)/error [P]: at which critical value each lower bound reaches the threshold."""
        gap = self.values - threshold
        far = np.where(gap >= 0, np.inf, -np.inf)
        return np.divide(gap, self.errors, out=far, where=self.errors > 0)


def smallest_df(sizes: Sequence[int], replicates: int = 0) -> float:
    """Degrees of freedom of an error that comes from blocks of these sizes: those of the smallest block.

    An error from a finite number of replicates varies by itself; relative variances, 2/df each, add up.
    """
    df = float(max(1, min(sizes) - 1))
    return df if replicates < 2 else 1 / (1 / df + 1 / (replicates - 1))

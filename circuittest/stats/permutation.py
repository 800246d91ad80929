"""Permutation tests: exact where few arrangements exist, else by random ones with p = (1 + #{>=})/(1 + B).

*Paired swaps* compare two conditions on the same examples: under "which is which does not matter" the sign of every
example's difference is a coin. For outcomes 0 and 1 only the discordant examples have a sign, and the test is McNemar's
(1947) in its exact, binomial form. *Two groups* compare different examples by reassigning labels.

A permutation test tests that null hypothesis alone. Whether a difference exceeds a threshold, and how large it is, is
for an `Inference`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from circuittest.errors import UsageError
from circuittest.stats.inference import DRAWS, Floats
from circuittest.stats.resampling import generator, partition, sample

Side = Literal["greater", "less", "two-sided"]

#: Up to this many pairs (or clusters) with a difference all 2^k sign patterns are counted.
_ENUMERATE = 16
_BLOCK = 2_000_000


@dataclass(frozen=True)
class PermutationP:
    """A permutation p-value.

    Attributes
    ----------
    p:
        Share of arrangements at least as extreme, the observed one included; never 0.
    resolution:
        The smallest p that was possible.
    statistic:
        Mean of first minus mean of second.
    arrangements:
        How many were counted, the observed one included.
    exact:
        Whether these were all there are.
    """

    p: float
    resolution: float
    statistic: float
    arrangements: int
    exact: bool


def mcnemar(first: ArrayLike, second: ArrayLike, *, side: Side = "two-sided") -> PermutationP:
    """McNemar's exact test of two accuracies on the same examples.

    Parameters
    ----------
    first, second:
        Outcomes 0 and 1 [n] of the same examples.
    side:
        "greater": first is more often right; "less"; "two-sided": twice the smaller tail, at most 1.

    Raises
    ------
    UsageError
        Outcomes that are not 0 or 1, or of unequal number.
    """
    a, b = _pair(first, second)
    if not (np.isin(a, (0.0, 1.0)).all() and np.isin(b, (0.0, 1.0)).all()):
        raise UsageError("McNemar's test needs outcomes 0 and 1", "", "use paired_swaps")
    _check_side(side)
    gained, lost = int(np.sum(a > b)), int(np.sum(a < b))
    discordant = gained + lost
    greater, less = _upper_tail(gained, discordant), _upper_tail(lost, discordant)
    p = {"greater": greater, "less": less, "two-sided": min(1.0, 2.0 * min(greater, less))}[side]
    least = 0.5**discordant
    resolution = min(1.0, 2.0 * least) if side == "two-sided" else least
    return PermutationP(p, resolution, (gained - lost) / a.size, 2**discordant, True)


def paired_swaps(
    first: ArrayLike,
    second: ArrayLike,
    groups: Sequence[object] | ArrayLike | None = None,
    *,
    side: Side = "two-sided",
    draws: int = DRAWS,
    seed: int = 0,
) -> PermutationP:
    """The paired permutation test of two means: swap first and second within examples.

    Parameters
    ----------
    first, second:
        Values [n] of the same examples.
    groups:
        One label per example; examples of one label are swapped together.
    side:
        As for `mcnemar`; "two-sided" compares absolute differences.
    draws, seed:
        Of random swaps, where more than 2^16 patterns exist. The order of the examples does not matter.
    """
    a, b = _pair(first, second)
    _check_side(side)
    totals = partition(a.size, groups).totals(a - b)
    scale = float(np.abs(totals).max(initial=0.0))
    totals = np.sort(totals[np.abs(totals) > 1e-12 * max(1.0, scale)])
    observed = float(totals.sum())
    if totals.size <= _ENUMERATE:
        patterns = (np.arange(2**totals.size)[:, None] >> np.arange(totals.size)) & 1
        sums = (1.0 - 2.0 * patterns) @ totals
        count, exact = 2**totals.size, True
        beyond = _beyond(sums, observed, side, scale)
    else:
        rng = generator(seed)
        beyond, count, exact = 1, draws + 1, False
        for start in range(0, draws, size := max(1, _BLOCK // totals.size)):
            rows = min(size, draws - start)
            signs = 1.0 - 2.0 * rng.integers(0, 2, (rows, totals.size))
            beyond += _beyond(signs @ totals, observed, side, scale)
    return PermutationP(beyond / count, 1.0 / count, observed / a.size, count, exact)


def two_groups(
    first: ArrayLike, second: ArrayLike, *, side: Side = "two-sided", draws: int = DRAWS, seed: int = 0
) -> PermutationP:
    """The permutation test of two means over different examples: reassign which value belongs to which group."""
    a, b = sample(first, "the first group"), sample(second, "the second group")
    _check_side(side)
    everything = np.sort(np.concatenate((a, b)))
    scale = float(np.abs(everything).max())
    share, rest = 1.0 / a.size + 1.0 / b.size, float(everything.sum()) / b.size
    observed = math.fsum(a) / a.size - math.fsum(b) / b.size
    rng = generator(seed)
    beyond = 1
    for start in range(0, draws, size := max(1, _BLOCK // everything.size)):
        rows = min(size, draws - start)
        shuffled = rng.permuted(np.tile(everything, (rows, 1)), axis=1)
        statistic = shuffled[:, : a.size].sum(axis=1) * share - rest
        beyond += _beyond(statistic, observed, side, scale)
    return PermutationP(beyond / (draws + 1), 1.0 / (draws + 1), observed, draws + 1, False)


def _beyond(statistics: Floats, observed: float, side: Side, scale: float) -> int:
    """How many are at least as extreme; equal sums may differ in their last bits."""
    slack = 1e-9 * max(scale, 1e-300)
    if side == "greater":
        return int(np.sum(statistics >= observed - slack))
    if side == "less":
        return int(np.sum(statistics <= observed + slack))
    return int(np.sum(np.abs(statistics) >= abs(observed) - slack))


def _upper_tail(successes: int, trials: int) -> float:
    """P(Binomial(trials, 1/2) >= successes)."""
    return 1.0 if successes == 0 else float(betainc(successes, trials - successes + 1, 0.5))


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    a, b = sample(first, "the first sample"), sample(second, "the second sample")
    if a.shape != b.shape:
        raise UsageError(f"{a.size} values against {b.size}", "paired values are of the same examples")
    return a, b


def _check_side(side: str) -> None:
    if side not in ("greater", "less", "two-sided"):
        raise UsageError(f"side is {side!r}", 'it is "greater", "less" or "two-sided"')

"""Equivalence by two one-sided tests: "no change" shown, not inferred from a difference that is not significant.

Two quantities are equivalent within a margin when both "the difference is at most -margin" and "it is at least margin"
are rejected, each at level alpha (Schuirmann 1987). That is the case exactly when the interval at 1 - 2 alpha lies
strictly inside the margins; since both tests must reject, no correction for their number is needed (Berger 1982).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from circuittest.errors import UsageError
from circuittest.stats.inference import Inference

#: One-sided level of each test: that of every other verdict (half of 1 - 0.95).
ALPHA = 0.025


@dataclass(frozen=True)
class Equivalence:
    """Result of the two tests.

    Attributes
    ----------
    outcome:
        "equivalent": the interval lies inside the margins; "different": it lies wholly at or beyond one of them;
        "undecided": neither was shown.
    p:
        The larger of the two one-sided p-values; equivalent iff p <= alpha.
    p_different:
        The smaller of the one-sided p-values of the two opposite claims; different iff p_different <= alpha.
    value, interval:
        Point value, and the interval at 1 - 2 alpha.
    margins:
        (low, high), as used.
    alpha:
        Level of each one-sided test.
    """

    outcome: Literal["equivalent", "different", "undecided"]
    p: float
    p_different: float
    value: float
    interval: tuple[float, float]
    margins: tuple[float, float]
    alpha: float


def equivalence(
    inference: Inference,
    margin: float | tuple[float, float],
    *,
    centre: float = 0.0,
    alpha: float = ALPHA,
) -> Equivalence:
    """Judge whether a mean, a paired difference or a ratio is within a margin.

    Parameters
    ----------
    inference:
        `MeanInference`, `PairedDifferenceInference`, `RatioInference`, ...: whatever gives one-sided bounds.
    margin:
        m for (centre - m, centre + m), or both ends: (0.8, 1.25) for a ratio. Chosen by a person, before the data.
    centre:
        What "no change" is: 0 for differences, 1 for ratios.
    alpha:
        Of each one-sided test. The customary 0.05 gives the 90 % interval; the default is as strict as any other
        verdict of this package.

    Raises
    ------
    UsageError
        A margin that is not positive or does not hold the centre, or an alpha outside (0, 0.5).
    """
    if not 0.0 < alpha < 0.5:
        raise UsageError(f"alpha is {alpha!r}", "it lies between 0 and 0.5", "say 0.025 or 0.05")
    low, high = margin if isinstance(margin, tuple) else (centre - margin, centre + margin)
    if not low < centre < high or not math.isfinite(high - low):
        raise UsageError(
            f"margins from {low:g} to {high:g}",
            f"they lie on both sides of {centre:g}",
            "give a positive margin",
        )
    interval = inference.interval(1.0 - 2.0 * alpha)
    inside = max(inference.p_value(">", low), inference.p_value("<", high))
    beyond = min(inference.p_value("<=", low), inference.p_value(">=", high))
    outcome: Literal["equivalent", "different", "undecided"] = "undecided"
    if inside <= alpha:
        outcome = "equivalent"
    elif beyond <= alpha:
        outcome = "different"
    return Equivalence(outcome, inside, beyond, inference.value, interval, (low, high), alpha)

"""One accuracy."""

from __future__ import annotations

import math
from typing import Any, Literal

from scipy.special import betainc, betaincinv, ndtr, ndtri  # scipy.stats takes a second to import

from circuittest.errors import UsageError
from circuittest.stats.inference import Op, examples_needed


class ProportionInference:
    """Inference on a proportion.

    "exact" (default): Clopper & Pearson (1934), Beta quantiles; each end is an exact one-sided bound, hence
    conservative. "wilson": Wilson (1927), the score interval; narrower, but near 0 and 1 its coverage
    falls to 84 % at some proportions, so that no verdict should rest on it.

    Parameters
    ----------
    successes, trials:
        Counts, 0 <= successes <= trials, trials >= 1.

    Examples
    --------
    >>> [round(end, 3) for end in ProportionInference(18, 20).interval()]
    [0.683, 0.988]
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
            return float(betainc(self.successes, self.n - self.successes + 1, threshold))
        return float(ndtr((threshold - self.value) / math.sqrt(threshold * (1.0 - threshold) / self.n)))

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        """The n that would decide; see `Inference`."""
        low, high = self.interval()
        half = self.value - low if self.value > threshold else high - self.value
        error = math.sqrt(self.value * (1.0 - self.value) / self.n)
        return examples_needed(self.n, half, abs(self.value - threshold), error)


def proportion_interval(
    successes: int, trials: int, confidence: float = 0.95, kind: Literal["exact", "wilson"] = "exact"
) -> tuple[float, float]:
    """Clopper-Pearson or Wilson interval of successes/trials."""
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence is {confidence!r}", "it lies between 0 and 1", "say 0.95")
    tail = (1.0 - confidence) / 2.0
    if kind == "exact":
        low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
        high = (
            1.0 if successes == trials else 1.0 - float(betaincinv(trials - successes, successes + 1, tail))
        )
        return low, high
    z = -float(ndtri(tail))
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return low, high

"""The size of a signed quantity: |theta| <= t and |theta| >= t from bounds on theta.

*At most.* |theta| <= t is the intersection of theta <= t and theta >= -t, each tested by itself (two one-sided tests,
Schuirmann 1987): the upper bound of |theta| is the larger absolute end of the interval of theta.

*At least.* The null hypothesis |theta| <= t is rejected by large values on either side, so that its p-value is
the sum of two tails, P(beyond x | theta = t) + P(beyond x | theta = -t), which is what the binomial test of Shi
et al. (arXiv 2410.13032, the equivalence test) sums. Far from zero the second term vanishes; at t = 0 the sum
is the two-sided p-value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circuittest.errors import UsageError
from circuittest.stats.inference import Inference, Op

_MIRROR: Mapping[Op, Op] = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}


class AbsoluteInference:
    """Inference on |theta|, given an inference on theta.

    Attributes
    ----------
    signed:
        The inference on theta itself.
    value, method:
        See `Inference`.
    """

    def __init__(self, signed: Inference) -> None:
        self.signed = signed
        self.value = abs(signed.value)
        self.method = f"absolute value, two one-sided bounds: {signed.method}"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided interval; the lower end is 0 where the sign of theta is in doubt."""
        if not 0.0 < confidence < 1.0:
            raise UsageError(f"confidence is {confidence!r}", "it lies between 0 and 1", "say 0.95")
        low, high = self.signed.interval(confidence)
        return self._low((1.0 - confidence) / 2.0), max(abs(low), abs(high), self.value)

    def _low(self, alpha: float) -> float:
        """The largest t with p(|theta| >= t) <= alpha; p does not fall as t rises."""
        below, above = 0.0, self.value
        if self._at_least(">=", above) <= alpha:
            return above
        if self._at_least(">=", 1e-12 * max(1.0, above)) > alpha:
            return 0.0
        for _ in range(60):
            middle = (below + above) / 2
            if self._at_least(">=", middle) <= alpha:
                below = middle
            else:
                above = middle
        return below

    def p_value(self, op: Op, threshold: float) -> float:
        """One-sided p-value of the negation of "|theta| `op` threshold"."""
        if op in ("<=", "<"):
            if threshold < 0 or (op == "<" and threshold == 0):
                return 1.0
            return max(self.signed.p_value(op, threshold), self.signed.p_value(_MIRROR[op], -threshold))
        if threshold < 0 or (op == ">=" and threshold == 0):
            return 0.0
        return self._at_least(op, threshold)

    def _at_least(self, op: Op, threshold: float) -> float:
        if self.signed.value >= 0:
            tails = self.signed.p_value(op, threshold), self.signed.p_value(op, -threshold)
        else:
            other = _MIRROR[op]
            tails = self.signed.p_value(other, -threshold), self.signed.p_value(other, threshold)
        return min(1.0, sum(tails))

    def needed(self, op: Op, threshold: float) -> Mapping[str, Any]:
        """What would decide the claim, on the side where theta seems to be."""
        if self.signed.value >= 0:
            return self.signed.needed(op, threshold)
        return self.signed.needed(_MIRROR[op], -threshold)

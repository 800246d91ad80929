"""The smallest of a few quantities that were all measured: does every one of them reach a threshold?

Estimand: min theta_k over a family that is fixed beforehand.

*Lower bound.* min theta_k >= t holds when every theta_k >= t does. Each is tested by itself at level alpha and all must
hold (an intersection-union test, Berger 1982): the smallest of the single lower bounds, without a correction.

*Upper bound.* That the smallest is below t is shown by any one of them, so that their number must be paid for: the
smallest of the single upper bounds at level alpha/K (Bonferroni).

The point value is the smallest of the single values, which is biased downwards where several are close. (For the
largest of a family with a lead from other data see `circuittest.stats.worst`.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from circuittest.errors import UsageError
from circuittest.stats.inference import DrawnInference, Inference, Op


class LeastInference:
    """Inference on the smallest of a family, each member with an inference of its own."""

    def __init__(self, family: Sequence[Inference]) -> None:
        if not family:
            raise UsageError("the smallest of no quantities", "at least one is needed")
        self.family = tuple(family)
        self.value = min(one.value for one in self.family)
        count = len(self.family)
        self.method = self.family[0].method + (f"; smallest of {count}" if count > 1 else "")

    def spending(self, share: float) -> LeastInference:
        """As `circuittest.stats.inference.DrawnInference.spending`. Raises UsageError where a member has none."""
        if not all(isinstance(one, DrawnInference) for one in self.family):
            raise UsageError("the smallest of quantities that cannot be looked at repeatedly")
        return LeastInference([one.spending(share) for one in self.family if isinstance(one, DrawnInference)])

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Smallest lower bound, smallest upper bound at the corrected level."""
        corrected = 1.0 - (1.0 - confidence) / len(self.family)
        low = min(one.interval(confidence)[0] for one in self.family)
        return low, min(one.interval(corrected)[1] for one in self.family)

    def p_value(self, op: Op, threshold: float) -> float:
        """ ">=": the largest of all; "<=": the smallest, times their number."""
        found = [one.p_value(op, threshold) for one in self.family]
        return max(found) if op in (">=", ">") else min(1.0, len(found) * min(found))

    def needed(self, op: Op, threshold: float) -> Mapping[str, Any]:
        """What would decide the member on which the claim depends most."""
        return min(self.family, key=lambda one: one.interval()[0]).needed(op, threshold)

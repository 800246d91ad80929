"""The largest of many quantities, of which one was singled out on other data.

Estimand: the largest theta_k of a family that is fixed before the data at hand are seen (it may have been
searched for on other data).

*Upper bound.* max theta_k <= t holds when every theta_k <= t does. Where each is tested by itself at level
alpha and all must be rejected, no correction for their number is needed (an intersection-union test, Berger
1982): the upper bound is the largest of the single upper bounds.

*Lower bound.* The largest is at least as large as the one that was found to be the largest on other data, the
lead; its own lower bound therefore holds, again without a correction. Taking the largest of the single lower
bounds instead would need one.

The point value is the lead's: the largest of many noisy values is biased upwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from circuittest.errors import UsageError
from circuittest.stats.inference import Inference, Op


class WorstInference:
    """Inference on the largest of a family.

    Parameters
    ----------
    family:
        One inference for each member, on the same data.
    lead:
        Position of the member that looked largest on *other* data.
    """

    def __init__(self, family: Sequence[Inference], lead: int) -> None:
        if not 0 <= lead < len(family):
            raise UsageError(f"the lead is number {lead} of {len(family)}", "it is a member of the family")
        self.family = tuple(family)
        self.lead = lead
        self.value = self.family[lead].value
        count = len(self.family)
        of = f"largest of {count}, one found on other examples" if count > 1 else "one member"
        self.method = f"{of}; {self.family[lead].method}"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Lower bound of the lead, upper bound of the whole family."""
        low, _ = self.family[self.lead].interval(confidence)
        return low, max(one.interval(confidence)[1] for one in self.family)

    def p_value(self, op: Op, threshold: float) -> float:
        """ ">=": the lead's p-value; "<=": the largest of all."""
        if op in (">=", ">"):
            return self.family[self.lead].p_value(op, threshold)
        return max(one.p_value(op, threshold) for one in self.family)

    def needed(self, op: Op, threshold: float) -> Mapping[str, Any]:
        """What would decide the member on which the claim depends most."""
        if self.value > threshold:
            return self.family[self.lead].needed(op, threshold)
        return max(self.family, key=lambda one: one.interval()[1]).needed(op, threshold)

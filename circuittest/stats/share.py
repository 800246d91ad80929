"""The share of units that have a property, each tested by itself.

With p-values p_u against "unit u has the property" failing and Holm's step-down correction at level a, the
number of rejections is a lower bound for the number of units that have it, at confidence 1 - a (no false
rejection at all has probability 1 - a). The same with the p-values of the opposite gives the upper bound.
Nothing is assumed of the dependence between units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from circuittest.errors import UsageError
from circuittest.stats.inference import Op
from circuittest.stats.multiplicity import holm


class ShareInference:
    """Inference on a share of tested units.

    Parameters
    ----------
    has:
        Whether each unit seems to have the property (the point values).
    p_has, p_lacks:
        p-value of each unit against not having, and against having it.
    names:
        Of the units, for the advice.
    """

    def __init__(
        self, has: Sequence[bool], p_has: Sequence[float], p_lacks: Sequence[float], names: Sequence[str]
    ) -> None:
        if not has or not len(has) == len(p_has) == len(p_lacks) == len(names):
            raise UsageError(
                f"{len(has)} units, {len(p_has)} and {len(p_lacks)} p-values, {len(names)} names",
                "there is one of each for every unit",
            )
        self.names = tuple(names)
        self.adjusted_has = _adjusted(p_has)
        self.adjusted_lacks = _adjusted(p_lacks)
        self.count = len(has)
        self.value = sum(map(bool, has)) / self.count
        self.method = f"share of {self.count} units, Holm-corrected tests on both sides"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Shares that are certain: of the units that have the property, and one less those that lack it."""
        if not 0.0 < confidence < 1.0:
            raise UsageError(f"confidence is {confidence!r}", "it lies between 0 and 1", "say 0.95")
        alpha = (1.0 - confidence) / 2.0 + 1e-12
        low = sum(p <= alpha for p in self.adjusted_has) / self.count
        high = 1.0 - sum(p <= alpha for p in self.adjusted_lacks) / self.count
        return min(low, self.value), max(high, self.value)

    def p_value(self, op: Op, threshold: float) -> float:
        """The level at which Holm's procedure makes enough units certain."""
        wanted = threshold * self.count
        if op in (">=", ">"):
            least = math.ceil(wanted - 1e-9) if op == ">=" else math.floor(wanted + 1e-9) + 1
            return _at_least(self.adjusted_has, least)
        most = math.floor(wanted + 1e-9) if op == "<=" else math.ceil(wanted - 1e-9) - 1
        return _at_least(self.adjusted_lacks, self.count - most)

    def needed(self, op: Op, threshold: float) -> Mapping[str, Any]:
        """The units in doubt."""
        doubtful = [
            name
            for name, a, b in zip(self.names, self.adjusted_has, self.adjusted_lacks, strict=True)
            if min(a, b) > 0.025
        ]
        listed = ", ".join(doubtful[:5]) + (f" and {len(doubtful) - 5} more" if len(doubtful) > 5 else "")
        return {"n": None, "controls": None, "text": f"more examples or controls for {listed or 'no unit'}"}


def _adjusted(p_values: Sequence[float]) -> tuple[float, ...]:
    return tuple(p for p in holm(list(p_values)) if p is not None)


def _at_least(adjusted: Sequence[float], count: int) -> float:
    """The level at which `count` units are certain."""
    if count <= 0:
        return 0.0
    if count > len(adjusted):
        return 1.0
    return sorted(adjusted)[count - 1]

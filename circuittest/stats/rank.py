"""Where a circuit stands among its controls: a permutation p-value without any model of their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from circuittest.errors import UsageError


@dataclass(frozen=True)
class RankP:
    """A rank p-value.

    Attributes
    ----------
    p:
        (1 + number of controls at least as harmful as the circuit) / (R + 1).
    resolution:
        The smallest p that R controls can give, 1/(R + 1).
    at_least_as_harmful:
        That number.
    n_controls:
        R.
    """

    p: float
    resolution: float
    at_least_as_harmful: int
    n_controls: int


def rank_p(circuit: float, controls: Sequence[float], *, harmful_is: str = "low") -> RankP:
    """The rank of the circuit's outcome among its controls'.

    The circuit counts as one draw, so that p is never 0 (Phipson & Smyth 2010).

    Parameters
    ----------
    circuit, controls:
        Outcome with the circuit ablated, and with each control set ablated.
    harmful_is:
        "low" when a low outcome means harm (accuracy, log-probability), "high" for a loss. Ties count as
        harmful.
    """
    if harmful_is not in ("low", "high"):
        raise UsageError(f"harmful_is is {harmful_is!r}", 'it is "low" or "high"')
    count = len(controls)
    if count == 0:
        raise UsageError("a rank among no controls", "at least one control is needed")
    sign = 1.0 if harmful_is == "low" else -1.0
    # means over the same examples may differ in the last bits without differing
    harmful = sum(1 for value in controls if sign * value <= sign * circuit + 1e-12)
    return RankP((1 + harmful) / (count + 1), 1 / (count + 1), harmful, count)

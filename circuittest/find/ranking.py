"""Per-example circuits: the top K % of the units on each example, and how often each unit is among them.

Li & Subramani (arXiv 2605.08348, sections 2.2 and 3.2) rank components by absolute attribution. K % of N units is
floor(K·N/100), at least 1; equal scores are ordered canonically (by layer, heads before the MLP), and the examples
where such a tie straddles the cut are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import CircuitError, UsageError
from circuittest.tables import Member, ScoreTable

#: Scores ranked at a time.
CHUNK = 4_000_000


@dataclass(frozen=True)
class Membership:
    """Which units belong to each example's circuit.

    Attributes
    ----------
    inside:
        bool [examples × members]; every row has exactly `k` true entries.
    members, examples:
        As in the score table.
    k:
        Size of each per-example circuit.
    ties:
        Number of examples on which the last unit inside and the first outside have equal scores.
    zeros:
        Number of examples whose circuit holds a unit with score 0.
    """

    inside: NDArray[np.bool_]
    members: tuple[Member, ...]
    examples: tuple[int, ...]
    k: int
    ties: int
    zeros: int

    @property
    def counts(self) -> NDArray[np.int64]:
        """[members] on how many examples each is in the circuit."""
        return self.inside.sum(0, dtype=np.int64)

    def rows(self, positions: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """[positions × members]."""
        return self.inside[np.asarray(positions)]


def percent(value: str | int | float | Fraction, what: str) -> Fraction:
    """Read a percentage exactly: ``"20%"`` or the number 20, never the fraction 0.2.

    Raises
    ------
    UsageError
        Where it is no number, or a float strictly between 0 and 1, which could be meant either way.
    """
    text = str(value).strip()
    if isinstance(value, bool):
        raise UsageError(f"{what} is {value!r}", "a percentage was expected", 'write "20%" or 20')
    try:
        number = Fraction(text.removesuffix("%").strip())
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{what} is {value!r}", "a percentage was expected", 'write "20%" or 20') from None
    if 0 < number < 1 and not text.endswith("%"):
        raise UsageError(
            f"{what} is {value!r}",
            "a fraction or a percentage could be meant",
            f'write "{text}%" or {float(number) * 100:g}',
        )
    return number


def top_count(top: str | int | float, n_units: int) -> int:
    """K % of N units, rounded down and at least 1. Raises UsageError unless 0 < K < 100."""
    share = percent(top, "top")
    if not 0 < share < 100:
        raise UsageError(
            f"top is {top!r}", "K is more than 0 % and less than 100 % of the units", 'write "20%"'
        )
    return max(1, int(share * n_units // 100))


def per_example(table: ScoreTable, top: str | int | float) -> Membership:
    """The circuit of every example: its K % of units with the largest absolute score."""
    n_examples, n_units = table.values.shape
    if n_examples == 0:
        raise CircuitError("no circuit can be found", "the score table has no examples")
    k = top_count(top, n_units)
    inside = np.zeros(table.values.shape, dtype=bool)
    ties = zeros = 0
    rows = max(1, CHUNK // n_units)
    for start in range(0, n_examples, rows):
        size = np.abs(table.values[start : start + rows])
        order = np.argsort(-size, axis=1, kind="stable")
        np.put_along_axis(inside[start : start + rows], order[:, :k], True, axis=1)
        last = np.take_along_axis(size, order[:, k - 1 : k + 1], axis=1)
        ties += int((last[:, 0] == last[:, 1]).sum()) if k < n_units else 0
        zeros += int((last[:, 0] == 0).sum())
    return Membership(inside, table.members, table.examples, k, ties, zeros)

"""S_P: the units that belong to at least P % of the per-example circuits (arXiv 2605.08348, Eq. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import UsageError
from circuittest.find.ranking import Membership, percent
from circuittest.tables import Member

#: Where the curve of reuse over P is evaluated, in percent.
CURVE = (50, 60, 70, 75, 80, 85, 90, 95, 96, 97, 98, 99, 100)


def share_of_examples(at: str | int | float) -> Fraction:
    """P as an exact percentage. Raises UsageError unless 0 < P <= 100."""
    share = percent(at, "at")
    if not 0 < share <= 100:
        raise UsageError(f"at is {at!r}", "P is more than 0 % and at most 100 % of the examples", "write 95")
    return share


def shared(inside: NDArray[np.bool_], at: str | int | float) -> NDArray[np.bool_]:
    """bool [members]: which are in at least P % of the circuits `inside` [examples × members].

    The threshold is inclusive and computed in integers: count · 100 >= P · n.
    """
    share = share_of_examples(at)
    counts = inside.sum(0, dtype=np.int64)
    return counts * 100 * share.denominator >= share.numerator * inside.shape[0]


def coverage(inside: NDArray[np.bool_], members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[examples] |S ∩ C_i| / |C_i|, whose mean over the examples that gave S is reuse@P (arXiv 2605.08348, Eq. 2)."""
    return np.asarray((inside & members).sum(1) / inside.sum(1), dtype=np.float64)


def reuse_curve(membership: Membership, points: Sequence[int] = CURVE) -> dict[int, float]:
    """In-sample reuse@P (Eq. 2) at each P in percent."""
    return {p: float(coverage(membership.inside, shared(membership.inside, p)).mean()) for p in points}


def shared_members(membership: Membership, at: str | int | float) -> tuple[Member, ...]:
    """The members of S_P in canonical order; may be empty."""
    mask = shared(membership.inside, at)
    return tuple(m for m, keep in zip(membership.members, mask, strict=True) if keep)


def largest_nonempty(membership: Membership) -> tuple[float, tuple[Member, ...]]:
    """The largest P in percent with a non-empty S_P, and that set; it exists since no circuit is empty."""
    counts = membership.counts
    best = int(counts.max())
    n = membership.inside.shape[0]
    members = tuple(m for m, count in zip(membership.members, counts, strict=True) if count == best)
    return 100 * best / n, members


def why_empty(membership: Membership, at: str | int | float) -> str:
    """What to tell when S_P is empty: the largest P that gives a set, its size, and the curve."""
    largest, members = largest_nonempty(membership)
    curve = ", ".join(f"{p}: {value:.2f}" for p, value in reuse_curve(membership).items() if value > 0)
    text = f"no unit is in {float(share_of_examples(at)):g} % of the {len(membership.examples)} per-example circuits "
    text += f"of {membership.k} units; the largest P with a non-empty set is {largest:.4g} ({len(members)} "
    text += f"unit{'s' if len(members) > 1 else ''}: {', '.join(str(m) for m in members[:6])})"
    return text + (f"; reuse over P: {curve}" if curve else "")

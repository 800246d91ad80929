"""S_P: the units that belong to at least P % of the per-example circuits (arXiv 2605.08348, Eq. 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from circuittest.errors import UsageError
from circuittest.find.induced import Spanned
from circuittest.find.ranking import Membership, percent
from circuittest.tables import Member
from circuittest.units import Edge

#: Where the curve of reuse over P is evaluated, in percent.
CURVE = (50, 60, 70, 75, 80, 85, 90, 95, 96, 97, 98, 99, 100)
#: The grid over K and P that `sweep` covers by default: K as in arXiv 2605.08348, section 3.2.
SWEEP_TOPS = ("1%", "5%", "10%", "20%", "30%")
SWEEP_POINTS = (50, 75, 85, 90, 95, 97, 99, 100)
#: Random circuits that stand for new ones where the expectation has no closed form.
CHANCE_DRAWS = 500


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
    """[examples] |S ∩ C_i| / |C_i|, whose mean over the examples that gave S is reuse@P (arXiv 2605.08348, Eq. 2).

    NaN where C_i is empty.
    """
    sizes = inside.sum(1)
    held = (inside & members).sum(1, dtype=np.float64)
    return np.divide(held, sizes, out=np.full(held.shape, np.nan), where=sizes > 0)


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
    noun = "edge" if isinstance(members[0], Edge) else "unit"
    text = f"no {noun} is in {float(share_of_examples(at)):g} % of the {len(membership.examples)} per-example circuits "
    text += f"of {membership.k} ranked; the largest P with a non-empty set is {largest:.4g} ({len(members)} "
    text += f"{noun}{'s' if len(members) > 1 else ''}: {', '.join(str(m) for m in members[:6])})"
    return text + (f"; reuse over P: {curve}" if curve else "")


def cross_fitted(
    inside: NDArray[np.bool_], at: str | int | float, folds: int, groups: Sequence[str] | None = None
) -> NDArray[np.float64]:
    """[examples] each example's coverage by the S_P of the other folds.

    Example i is in fold i mod `folds`; with `groups` (a label per example) the i-th label to appear is, as a whole.
    NaN for an example whose circuit is empty, which only edges between few units can be.
    """
    fold = np.arange(inside.shape[0]) % folds
    if groups is not None:
        order = {label: i for i, label in enumerate(dict.fromkeys(groups))}
        fold = np.array([order[label] for label in groups]) % folds
    values = np.empty(inside.shape[0])
    for held_out in range(folds):
        mask = shared(inside[fold != held_out], at)
        values[fold == held_out] = coverage(inside[fold == held_out], mask)
    return values


def chance(n: int, k: int, n_members: int, at: str | int | float, folds: int) -> float:
    """Expected cross-fitted reuse@P of n circuits that are independent uniform sets of k among N members.

    A member is in S_P when at least P % of the m training circuits hold it, which is Binomial(m, k/N); a new circuit
    is independent of S_P, so that each of its members is covered with that probability. (In sample the circuit helps
    to elect its own members, which is part of what Eq. 2 overstates.)
    """
    fold = np.arange(n) % folds
    found = 0.0
    for held_out in range(folds):
        training = int((fold != held_out).sum())
        elected = elected_by_chance(training, k / n_members, at)
        found += float(elected) * int((fold == held_out).sum()) / n
    return found


def elected_by_chance(
    n: int, probability: float | NDArray[np.float64], at: str | int | float
) -> NDArray[np.float64]:
    """Probability that at least P % of n independent circuits hold a member that each holds with `probability`."""
    share = share_of_examples(at)
    need = -(-share.numerator * n // (100 * share.denominator))
    # the upper tail of the binomial distribution is the regularised incomplete beta function
    return np.asarray(betainc(need, n - need + 1, probability))


def chance_spanned(spanned: Spanned, k: int, n: int, at: str | int | float, folds: int, seed: int) -> float:
    """`chance` for the edges spanned by uniform sets of k units: S_P in closed form, new circuits by simulation."""
    fold = np.arange(n) % folds
    trainings, counts = np.unique([int((fold != f).sum()) for f in range(folds)], return_counts=True)
    inside = np.zeros((CHANCE_DRAWS, spanned.n_units), dtype=bool)
    rng = np.random.Generator(np.random.PCG64(seed))
    np.put_along_axis(inside, rng.random(inside.shape).argsort(1)[:, :k], True, axis=1)
    edges = spanned.of(inside)
    edges = edges[edges.any(1)]
    if not len(edges):
        return float("nan")
    probability = spanned.probability(k)
    found = 0.0
    for training, count in zip(trainings, counts, strict=True):
        elected = elected_by_chance(int(training), probability, at)
        found += float(((edges @ elected) / edges.sum(1)).mean()) * int(count) / folds
    return found


def overlap(a: Iterable[Member], b: Iterable[Member], n_members: int) -> dict[str, float | None]:
    """Jaccard index of two sets, and what two random sets of these sizes among N members are expected to have.

    Both are None where both sets are empty.
    """
    first, second = set(a), set(b)
    common = len(first) * len(second) / n_members
    if not first | second:
        return {"jaccard": None, "chance": None}
    expected = common / (len(first) + len(second) - common)
    return {"jaccard": len(first & second) / len(first | second), "chance": expected}


def sweep(
    circuits: Callable[[str], Membership],
    by_chance: Callable[[int, int], float],
    folds: int,
    tops: Sequence[str] = SWEEP_TOPS,
    points: Sequence[int] = SWEEP_POINTS,
) -> list[dict[str, str | int | float]]:
    """Reuse over K and P: cross-fitted, in sample (Eq. 2), and what random circuits of the same size give.

    Parameters
    ----------
    circuits:
        The per-example circuits at a K.
    by_chance:
        Chance level for k ranked members and P.

    Values are NaN where a per-example circuit is empty.
    """
    rows: list[dict[str, str | int | float]] = []
    for top in tops:
        found = circuits(top)
        for at in points:
            mask = shared(found.inside, at)
            rows.append(
                {
                    "top": top,
                    "at": at,
                    "k": found.k,
                    "size": int(mask.sum()),
                    "value": float(cross_fitted(found.inside, at, folds).mean()),
                    "in_sample": float(coverage(found.inside, mask).mean()),
                    "chance": by_chance(found.k, at),
                }
            )
    return rows

"""Do labels matter to things that were compared pair by pair? Dealing the labels out again, beside an error that comes
from the examples.

The B(B-1)/2 similarities of B circuits are no independent sample: each circuit is in B-1 of them, and a t-test over
pairs finds differences that are not there. What is exchangeable when labels do not matter is the circuits, so it is
their labels that are dealt out again (Mantel 1967 for matrices of distances).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circuittest.stats.inference import Floats, Op
from circuittest.stats.resampling import generator
from circuittest.stats.simultaneous import StudentInference

Labels = NDArray[np.intp]
#: Sums of equal numbers may differ in their last bits.
SLACK = 1e-9


def labellings(labels: Sequence[int], *, most: int, seed: int) -> tuple[Labels, bool]:
    """Ways to deal the same labels out [A × B], the given one first, and whether these are all different ones.

    All of them where there are at most `most`, else the given one and `most` random ones.
    """
    given = np.asarray(labels, dtype=np.intp)
    sizes = Counter(given.tolist())
    count = math.factorial(given.size) // math.prod(math.factorial(size) for size in sizes.values())
    if count <= most:
        found = np.array(list(_every(dict(sorted(sizes.items())), given.size)), dtype=np.intp)
        first = (found == given).all(1)
        return np.concatenate([found[first], found[~first]]), True
    rng = generator(seed)
    return np.stack([given, *(rng.permutation(given) for _ in range(most))]), False


def _every(left: dict[int, int], size: int) -> Iterator[tuple[int, ...]]:
    if not size:
        yield ()
        return
    for label, count in left.items():
        if count:
            for rest in _every({**left, label: count - 1}, size - 1):
                yield (label, *rest)


def within_minus_cross(
    similarity: Floats, labels: Labels, counted: NDArray[np.bool_] | None = None
) -> Floats:
    """Mean similarity of pairs with one label, less that of pairs with two labels.

    Parameters
    ----------
    similarity:
        [..., B × B].
    labels:
        [A × B]; the result is [..., A], NaN for a labelling without pairs of both kinds.
    counted:
        [B × B], symmetric: the pairs that count; by default all.
    """
    upper = np.triu_indices(similarity.shape[-1], 1)
    if counted is not None:
        chosen = counted[upper]
        upper = upper[0][chosen], upper[1][chosen]
    alike = (labels[:, upper[0]] == labels[:, upper[1]]).astype(np.float64)
    one, two = (np.where(sums > 0, sums, np.nan) for sums in (alike.sum(1), (1 - alike).sum(1)))
    weights = alike / one[:, None] - (1 - alike) / two[:, None]
    found: Floats = similarity[..., upper[0], upper[1]] @ weights.T
    return found


def first_minus_second(similarity: Floats, labels: Labels) -> Floats:
    """Mean similarity of the pairs of label 0, less that of the pairs of label 1; shapes as `within_minus_cross`."""
    upper = np.triu_indices(similarity.shape[-1], 1)
    inside = [((labels[:, upper[0]] == k) & (labels[:, upper[1]] == k)).astype(np.float64) for k in (0, 1)]
    weights = inside[0] / inside[0].sum(1, keepdims=True) - inside[1] / inside[1].sum(1, keepdims=True)
    found: Floats = similarity[..., upper[0], upper[1]] @ weights.T
    return found


def leave_one_out(similarity: Floats, labels: Labels) -> tuple[float, float]:
    """Jackknife error of `first_minus_second` for one labelling [B] over the circuits, and its degrees of freedom.

    Each label's mean over pairs is a U-statistic of its circuits, three at least; leaving out one circuit at a time
    tells how much it depends on which circuits they were. Where the labels' circuits have little in common, permuted
    labels mix pairs of another kind and do not tell.
    """
    variance, sizes = 0.0, []
    for label in (0, 1):
        own = np.flatnonzero(labels == label)
        sizes.append(own.size)
        part = similarity[np.ix_(own, own)]
        upper = np.triu_indices(own.size - 1, 1)
        means = np.array([np.delete(np.delete(part, i, 0), i, 1)[upper].mean() for i in range(own.size)])
        variance += float((own.size - 1) / own.size * ((means - means.mean()) ** 2).sum())
    return math.sqrt(variance), float(min(sizes) - 1)


class LabelledInference:
    """A difference between labels, bounded by what examples, labels and circuits leave open: the widest of intervals.

    Student's t from subsamples of the examples speaks of these circuits; a shift of the permuted differences (lower end
    above t exactly when the difference less t is beyond the permuted ones) speaks of circuits like these, and so does
    `leave_one_out` where the labels' circuits may have little in common.

    Parameters
    ----------
    student:
        The difference with its error.
    permuted:
        [A] differences under every labelling, the observed one among them.
    circuits:
        The same difference with its error over circuits.
    """

    def __init__(
        self, student: StudentInference, permuted: Floats, circuits: StudentInference | None = None
    ) -> None:
        self.student, self.permuted = student, np.sort(permuted)
        self.students = [student] if circuits is None else [student, circuits]
        self.value, self.n = student.value, student.n
        methods = "; ".join(one.method for one in self.students)
        self.method = f"the widest of: {methods}; {self.permuted.size} labellings of the circuits, shifted"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        ends = [one.interval(confidence) for one in self.students]
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        beyond = math.floor((1 - confidence) / 2 * self.permuted.size + 1e-9)
        if beyond < 1:
            return -math.inf, math.inf
        return (
            min(low, self.value - float(self.permuted[-beyond - 1]) - SLACK),
            max(high, self.value - float(self.permuted[beyond]) + SLACK),
        )

    def labels_p(self, op: Op, threshold: float = 0.0) -> float:
        """p-value of the labellings alone."""
        gap = self.value - threshold
        far = self.permuted >= gap - SLACK if op in (">=", ">") else self.permuted <= gap + SLACK
        return max(1, int(far.sum())) / self.permuted.size

    def p_value(self, op: Op, threshold: float) -> float:
        return max(*(one.p_value(op, threshold) for one in self.students), self.labels_p(op, threshold))

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        """More subtasks where the labellings leave it open, more examples where the errors do."""
        if min(self.student.p_value(op, threshold), 1 - self.student.p_value(op, threshold)) > 0.025:
            return self.student.needed(op, threshold)
        text = (
            f"more subtasks: the labels can be dealt out in {self.permuted.size} ways, p = "
            f"{self.labels_p(op, threshold):.2g}"
        )
        return {"n": None, "controls": None, "text": text}

"""Families: into how many groups of alike circuits do the subtasks of a task fall?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circuittest.claims import within
from circuittest.claims.alike import Alike, Level, Similarity
from circuittest.claims.stability import described, left_out, used
from circuittest.claims.subtasks import Subtasks, block_codes
from circuittest.find.ranking import top_count
from circuittest.find.similarity import KEPT_SHARE, top_overlap
from circuittest.stats import Estimate
from circuittest.stats.inference import Op, nothing_needed
from circuittest.stats.simultaneous import MaxT
from circuittest.tasks.partitions import MIN_SIZE, Partition

if TYPE_CHECKING:
    from circuittest.lab import Lab

Floats = NDArray[np.float64]


def components(together: NDArray[np.bool_]) -> tuple[int, ...]:
    """The connected component of each vertex of a graph [B × B], numbered in the order of their first vertex."""
    label = [-1] * len(together)
    count = 0
    for start in range(len(together)):
        if label[start] >= 0:
            continue
        waiting = [start]
        while waiting:
            vertex = waiting.pop()
            if label[vertex] < 0:
                label[vertex] = count
                waiting += [int(i) for i in np.flatnonzero(together[vertex])]
        count += 1
    return tuple(label)


def merges(similarity: Floats) -> tuple[float, ...]:
    """At which values of α families merge when α falls: the edges of the maximum spanning tree, largest first.

    B - 1 numbers; the number of families at α is 1 + how many of them are below α. (0-dimensional persistent homology.)
    """
    count = len(similarity)
    label = list(range(count))
    pairs = sorted(
        ((float(similarity[i, j]), i, j) for i in range(count) for j in range(i)),
        key=lambda p: (-p[0], p[1:]),
    )
    found = []
    for value, i, j in pairs:
        if label[i] != label[j]:
            found.append(value)
            old, new = label[i], label[j]
            label = [new if one == old else one for one in label]
    return tuple(found)


class FamiliesInference:
    """The number of connected components of {ρ >= α}, bounded through simultaneous bounds of all similarities.

    More edges never make more components. So if all lower bounds hold, the graph of {lower bound >= α} has at least as
    many components as the true one, and the graph of {upper bound >= α} at most as many. That is honest where
    resampling the number itself is not: a similarity close to α jumps.

    Parameters
    ----------
    pairs:
        The similarities of all pairs i < j, in the order of ``np.triu_indices``.
    count:
        Number of blocks B.
    alpha:
        The α of α-equivalence (arXiv 2505.24731, definition 5).
    """

    def __init__(self, pairs: MaxT, count: int, alpha: float, n: int) -> None:
        self.pairs, self.count, self.alpha, self.n = pairs, count, alpha, n
        self.value = float(max(components(self._matrix(pairs.values) >= alpha)) + 1)
        self.method = f"components under simultaneous bounds (max-T) of {pairs.values.size} similarities"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Least and greatest number of families."""
        low, high = self.pairs.bounds((1 - confidence) / 2)
        fewest = max(components(self._matrix(high) >= self.alpha)) + 1
        most = max(components(self._matrix(low) >= self.alpha)) + 1
        return float(fewest), float(most)

    def p_value(self, op: Op, threshold: float) -> float:
        """The level at which the bound reaches the threshold: the critical value is an edge of a spanning tree."""
        # at most t families: the t-th weakest of the B - 1 merges must still be certain; at least t: it must not be
        distances = self._matrix(self.pairs.distances(self.alpha))
        if op in ("<=", "<"):
            most = math.floor(threshold) if op == "<=" else math.ceil(threshold) - 1
            if most >= self.count:
                return 0.0
            if most < 1:
                return 1.0
            return self.pairs.tail(merges(distances)[self.count - 1 - most])
        least = math.ceil(threshold) if op == ">=" else math.floor(threshold) + 1
        if least <= 1:
            return 0.0
        if least > self.count:
            return 1.0
        return self.pairs.tail(-merges(distances)[self.count - least])

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        """No formula: which similarities straddle α decides."""
        low, high = self.pairs.bounds(0.025)
        open_ = int(((low < self.alpha) & (high >= self.alpha)).sum())
        if not open_:
            return nothing_needed()
        text = (
            f"more examples a block: {open_} of {low.size} similarities are not told from α = {self.alpha:g}"
        )
        return {"n": None, "controls": None, "text": text}

    def _matrix(self, pairs: Floats) -> Floats:
        matrix = np.full((self.count, self.count), np.inf)
        upper = np.triu_indices(self.count, 1)
        matrix[upper] = pairs
        matrix.T[upper] = pairs
        return matrix


@within((1.0, math.inf))
def families(
    lab: Lab,
    *,
    partition: str,
    alpha: float = 0.6,
    similarity: Similarity = "spearman",
    level: Level = "edges",
    universe: str | list[str] = "all",
    method: str = "eap",
    top: str = "10%",
    n: int | None = None,
    min_size: int = MIN_SIZE,
    cuts: int = 16,
    replicates: int = 100,
    seed: int = 0,
) -> Estimate:
    """Number of families of subtasks whose circuits are α-equivalent.

    Estimand: the number of connected components of the graph that joins subtasks with corrected similarity of at least
    α (Sun, arXiv 2505.24731, definition 5 and section 3; single linkage, so that a family may hold pairs below α: the
    smallest similarity within each is in the details). Options as for `circuittest.claims.stability.stability`.

    ``details["barcode"]`` gives the number of families as a function of α; ``details["together"]`` how often each pair
    is in one family over random subsamples.

    Invalid as stability is, and for an α that is not between 0 and 1.
    """
    how = Alike.of(locals())
    chosen = Partition.parse(partition)
    choices = {
        **how.choices,
        "partition": str(chosen),
        "alpha": alpha,
        "splits": "discover and evaluate",
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("families", None, choices=choices, details=details or {}, invalid=reason)

    if not 0 < alpha <= 1:
        return invalid(f"alpha is {alpha!r}: it is above 0 and at most 1")
    scores = how.scores(lab)
    if isinstance(scores, str):
        return invalid(scores)
    made = how.compare(scores, chosen)
    if isinstance(made, str):
        return invalid(made)
    details = described(made)
    if made.invalid:
        return invalid(made.invalid, details)
    matrix, count = made.found.corrected, len(made.blocks.labels)
    upper = np.triu_indices(count, 1)
    drawn = made.found.corrected_replicates
    pairs = MaxT(matrix[upper], drawn[:, upper[0], upper[1]], KEPT_SHARE, made.df, seed=seed)
    inference = FamiliesInference(pairs, count, alpha, made.blocks.n * count)
    label = components(matrix >= alpha)
    shares = top_overlap(
        scores.values, block_codes(made.blocks, len(scores.items)), top_count(top, scores.values.shape[1])
    )
    details |= {
        "families": _families(made, label, matrix, shares),
        "barcode": list(merges(matrix)),
        "together": _together(drawn, alpha),
    }
    return used(
        lab.estimate(
            "families",
            None,
            inference=inference,
            n_examples=inference.n,
            choices=choices,
            details=details,
            hints=tuple(left_out(made)),
        ),
        scores,
        made.blocks.rows,
    )


def _together(drawn: Floats, alpha: float) -> list[list[float]]:
    """[B × B] share of the subsamples [R × B × B] in which two subtasks are in one family."""
    labels = np.array([components(one >= alpha) for one in drawn])
    found: list[list[float]] = (labels[:, :, None] == labels[:, None, :]).mean(0).tolist()
    return found


def _families(
    made: Subtasks, label: tuple[int, ...], similarity: Floats, shares: Floats
) -> list[dict[str, Any]]:
    """Per family: its subtasks, and the smallest similarity and top overlap within it (None for a single subtask)."""
    found = []
    for family in range(max(label) + 1):
        inside = [i for i, one in enumerate(label) if one == family]
        pairs = [(i, j) for i in inside for j in inside if i < j]
        found.append(
            {
                "subtasks": [made.blocks.labels[i] for i in inside],
                "smallest": min((float(similarity[p]) for p in pairs), default=None),
                "smallest_top_overlap": min((float(shares[p]) for p in pairs), default=None),
            }
        )
    return found

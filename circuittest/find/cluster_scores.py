"""How good a clustering is: agreement of two of them, and isolation and purity of one cluster.

`adjusted_rand` and `normalised_information` compare two clusterings of the same members whatever their numbering. The
first is 0 in expectation for clusterings that have nothing to do with each other (Hubert & Arabie 1985); the second is
not, and grows with the number of clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circuittest.errors import UsageError

Floats = NDArray[np.float64]


def adjusted_rand(first: ArrayLike, second: ArrayLike) -> float:
    """Adjusted Rand index; NaN where both clusterings are one cluster, or both single members (nothing to agree on)."""
    table = _table(first, second)
    pairs = float((table * (table - 1)).sum()) / 2
    rows, columns = (float((sums * (sums - 1)).sum()) / 2 for sums in (table.sum(1), table.sum(0)))
    n = float(table.sum())
    expected = rows * columns / (n * (n - 1) / 2) if n > 1 else 0.0
    most = (rows + columns) / 2
    return (pairs - expected) / (most - expected) if most != expected else float("nan")


def normalised_information(first: ArrayLike, second: ArrayLike) -> float:
    """Mutual information over the mean of both entropies; NaN where both clusterings are one cluster."""
    share = _table(first, second)
    share /= share.sum()
    rows, columns = share.sum(1), share.sum(0)
    entropies = [-float((p[p > 0] * np.log(p[p > 0])).sum()) for p in (rows, columns)]
    apart = np.outer(rows, columns)
    joint = share > 0
    common = float((share[joint] * np.log(share[joint] / apart[joint])).sum())
    total = sum(entropies)
    return 2 * max(0.0, common) / total if total > 0 else float("nan")


def isolation(affinity: Floats, members: ArrayLike) -> float:
    """Mean affinity of pairs inside over that of pairs of a member and a stranger (Xu, arXiv 2606.09607).

    NaN for fewer than two members, for no strangers, and where no member has any affinity to a stranger.
    """
    inside = np.zeros(len(affinity), dtype=bool)
    inside[np.asarray(members)] = True
    size = int(inside.sum())
    if size < 2 or size == len(affinity):
        return float("nan")
    block = np.abs(affinity[np.ix_(inside, inside)])
    within = float(block.sum() - np.trace(block)) / (size * (size - 1))
    across = float(np.abs(affinity[np.ix_(inside, ~inside)]).mean())
    return within / across if across > 0 else float("nan")


def purity(labels: Sequence[str | None]) -> float:
    """Share of the most frequent label among the members of a cluster that have one; NaN where none has.

    None is a member without a label, and no label of its own.
    """
    known = [label for label in labels if label is not None]
    if not known:
        return float("nan")
    return max(known.count(label) for label in set(known)) / len(known)


def _table(first: ArrayLike, second: ArrayLike) -> Floats:
    """Contingency table of two clusterings."""
    one, other = np.asarray(first), np.asarray(second)
    if one.ndim != 1 or one.shape != other.shape or not one.size:
        raise UsageError(
            f"clusterings of shapes {one.shape} and {other.shape}", "both have one cluster for each member"
        )
    rows, columns = (np.unique(labels, return_inverse=True)[1] for labels in (one, other))
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1.0)
    return table

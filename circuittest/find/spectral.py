"""Spectral clustering of a matrix of affinities (Shi & Malik 2000; von Luxburg 2007), without chance in the result.

The rows of the k leading eigenvectors of D⁻¹A are clustered by k-means from many seeded starts (k-means++, Arthur &
Vassilvitskii 2007); the best one counts. Clusters are numbered by their first member.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.vq import ClusterError, kmeans2
from scipy.linalg import eigh

from circuittest.errors import UsageError
from circuittest.stats.resampling import generator

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

#: Starts of k-means, and rounds of `STEPS` iterations after each of which it is asked whether anything still moves.
STARTS, ROUNDS, STEPS = 10, 40, 5


def spectral_clusters(affinity: ArrayLike, k: int, *, starts: int = STARTS, seed: int = 0) -> Labels:
    """[F] cluster of each row of a symmetric, non-negative affinity [F × F], 0 to k - 1; its diagonal is not used.

    Raises
    ------
    UsageError
        Fewer rows than clusters, fewer than two clusters, a matrix that is no affinity, a row without any affinity.
    """
    a = np.array(affinity, dtype=np.float64)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not np.isfinite(a).all():
        raise UsageError(f"an affinity of shape {a.shape}", "a finite square matrix is needed")
    np.fill_diagonal(a, 0.0)
    if (a < 0).any() or not np.allclose(a, a.T, rtol=1e-9, atol=0.0):
        raise UsageError("the affinity is negative or not symmetric", "", "use |J|, or |r|")
    if k < 2 or k > len(a):
        raise UsageError(
            f"{k} clusters of {len(a)} heads",
            "at least two, and no more than there are heads"
            if k < 2
            else "there are fewer heads than clusters",
            "ask for fewer clusters" if k > 2 else "use at least 2",
        )
    degree = a.sum(1)
    if not (degree > 0).all():
        raise UsageError(
            f"row {int(np.flatnonzero(degree <= 0)[0])} has no affinity to any other", "", "leave it out"
        )
    root = np.sqrt(degree)
    scaled = a / root[:, None] / root
    size = len(a)
    _, vectors = eigh(scaled, subset_by_index=[size - k, size - 1])
    return k_means(vectors / root[:, None], k, starts=starts, seed=seed)


def k_means(points: ArrayLike, k: int, *, starts: int = STARTS, seed: int = 0) -> Labels:
    """[n] cluster of each of the points [n × d] by the best of several starts.

    Raises UsageError where there are fewer distinct points than clusters.
    """
    x = np.asarray(points, dtype=np.float64)
    x = x.reshape(len(x), -1)
    distinct = len(np.unique(x, axis=0))
    if k < 1 or distinct < k:
        raise UsageError(f"{k} clusters of {distinct} distinct points", "", "ask for fewer clusters")
    rng = generator(seed)
    best, least = None, np.inf
    for _ in range(starts):
        try:
            centres, labels = _settled(x, _spread(x, k, rng))
        except ClusterError:  # a cluster lost its last point: another start will do
            continue
        inertia = float(((x - centres[labels]) ** 2).sum())
        if inertia < least * (1 - 1e-9):
            best, least = labels, inertia
    if best is None:
        raise UsageError(f"no start of {starts} kept {k} clusters", "", "ask for fewer clusters")
    return in_order(best)


def _settled(x: Floats, centres: Floats) -> tuple[Floats, Labels]:
    """Centres and clusters once k-means no longer changes them. Raises ClusterError where a cluster is lost."""
    before = None
    for _ in range(ROUNDS):
        centres, labels = kmeans2(x, centres, iter=STEPS, minit="matrix", missing="raise")
        if before is not None and (labels == before).all():
            break
        before = labels
    return centres, np.asarray(labels, dtype=np.intp)


def in_order(labels: ArrayLike) -> Labels:
    """The same clusters, numbered by their first member."""
    given = np.asarray(labels)
    _, first, codes = np.unique(given, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    found: Labels = rank[codes].astype(np.intp)
    return found


def _spread(x: Floats, k: int, rng: np.random.Generator) -> Floats:
    """k of the points, each drawn with a chance in proportion to its squared distance from those before it."""
    chosen = [int(rng.integers(len(x)))]
    near = ((x - x[chosen[0]]) ** 2).sum(1)
    while len(chosen) < k:
        total = float(near.sum())
        pick = int(np.searchsorted(np.cumsum(near), rng.random() * total, side="right")) if total > 0 else 0
        chosen.append(min(pick, len(x) - 1))
        near = np.minimum(near, ((x - x[chosen[-1]]) ** 2).sum(1))
    return x[chosen]

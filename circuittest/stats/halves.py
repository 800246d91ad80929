"""Random parts of blocks of examples: the design behind split halves and subsampling.

Clusters of examples (examples that are not independent) are never torn apart, and a cluster with examples in several
blocks is in the same part everywhere. So whatever is compared across parts shares no data, neither within a block
nor between blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from circuittest.stats.resampling import Floats, generator

Parts = NDArray[np.int8]


def random_parts(
    blocks: NDArray[np.intp], clusters: NDArray[np.intp], *, parts: int, draws: int, seed: int
) -> Iterator[Parts]:
    """`draws` random assignments of N examples to `parts` parts, as int8 arrays [N].

    Clusters are dealt out in random order, block by block (a cluster counts to the block of its first example), so that
    where every cluster is one example the parts of a block differ in size by one at most.

    Parameters
    ----------
    blocks, clusters:
        Codes [N] from 0.
    """
    rng = generator(seed)
    count = int(clusters.max()) + 1
    first = np.full(count, np.iinfo(np.intp).max)
    np.minimum.at(first, clusters, blocks)
    starts = np.searchsorted(np.sort(first), np.arange(int(blocks.max()) + 1))
    for _ in range(draws):
        order = np.lexsort((rng.random(count), first))
        place = np.empty(count, dtype=np.intp)
        # each block starts to deal at a part of its own, so that none is always the larger
        place[order] = np.arange(count) - starts[first[order]]
        place += rng.integers(0, parts, starts.size)[first]
        yield (place % parts).astype(np.int8)[clusters]


def half_weights(blocks: NDArray[np.intp], half: NDArray[np.int8], n_blocks: int) -> Floats | None:
    """Weights [2 · blocks × N] whose products with scores are the means of each block's half 0, then half 1.

    `half` is 0, 1, or -1 for an example that is in neither. None where a half of a block is empty.
    """
    weights = np.zeros((2 * n_blocks, blocks.size))
    inside = np.flatnonzero(half >= 0)
    rows = half[inside].astype(np.intp) * n_blocks + blocks[inside]
    sizes = np.bincount(rows, minlength=2 * n_blocks)
    if not sizes.all():
        return None
    weights[rows, inside] = 1.0 / sizes[rows]
    return weights


def block_weights(blocks: NDArray[np.intp], n_blocks: int) -> Floats:
    """Weights [blocks × N] of the block means."""
    weights = np.zeros((n_blocks, blocks.size))
    weights[blocks, np.arange(blocks.size)] = 1.0
    return weights / weights.sum(1, keepdims=True)

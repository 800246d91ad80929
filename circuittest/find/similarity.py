"""How similar are the circuits of subtasks? Correlations between mean scores of blocks of examples, and how much of the
distance from 1 is noise.

The soft circuit of a subtask is its signed mean score of every edge (Sun, arXiv 2505.24731, definition 3). Each
similarity is a scalar product of transformed rows of unit length: ranks ("spearman"), values ("pearson"), or membership
in the top K % by size ("topk"; the product is then (overlap - K)/(1 - K), zero by chance and one when equal).

Noise in the means attenuates every one of them. All blocks are therefore cut into random halves, and only means of
halves are compared, across the cut:

    halves[s, s'] = mean over cuts of ρ(half 1 of s, half 2 of s')
    corrected[s, s'] = halves[s, s'] / √(halves[s, s] halves[s', s'])

The diagonal is the split-half reliability. Numerator and denominator are measured on the same number of examples, so
blocks that do not differ give 1 in expectation whatever the similarity and the noise. For Pearson's correlation the
ratio is Spearman's (1904) correction and estimates the correlation of the true means. Stepping the reliability up to
the whole block instead (Spearman-Brown) holds for Pearson's correlation only: where most edges have no effect, ranks
of the rest are all that repeats, the step promises more, and blocks that do not differ come out near 0.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import UsageError
from circuittest.stats.halves import block_weights, half_weights, random_parts
from circuittest.stats.resampling import generator

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

SIMILARITIES = ("spearman", "pearson", "topk")
#: A subsample keeps 6 of 8 random parts of every block; its halves are 3 parts each.
PARTS, KEPT = 8, 6
KEPT_SHARE = KEPT / PARTS
#: Which of the kept parts are half 0 in each of the cuts of one subsample.
CUTS = ((0, 1, 2), (0, 3, 4), (1, 3, 5), (2, 4, 5))
#: Bytes of means and of transformed rows held at a time.
CHUNK = 64 << 20


@dataclass(frozen=True, eq=False)
class BlockSimilarity:
    """Similarities between B blocks.

    Attributes
    ----------
    raw:
        [B × B] between the means of whole blocks; 1 on the diagonal.
    halves:
        [B × B] between means of halves, across the cut, mean over cuts; the diagonal is the reliability of a half.
    replicates:
        [R × B × B] `halves` of random subsamples that keep `KEPT_SHARE` of every block.
    """

    raw: Floats
    halves: Floats
    replicates: Floats

    @property
    def reliability(self) -> Floats:
        """[B] of the mean of half a block."""
        return np.diagonal(self.halves).copy()

    @property
    def corrected(self) -> Floats:
        """[B × B]; NaN where a reliability is not positive, 1 on the diagonal."""
        return corrected(self.halves)

    @property
    def corrected_replicates(self) -> Floats:
        """[R × B × B] the same for every subsample."""
        return corrected(self.replicates)


def corrected(halves: Floats) -> Floats:
    """[..., B, B] similarities of halves, corrected by the reliabilities on their diagonals."""
    reliability = np.diagonal(halves, axis1=-2, axis2=-1)
    root = np.sqrt(np.where(reliability > 0, reliability, np.nan))
    found: Floats = halves / (root[..., :, None] * root[..., None, :])
    return found


def mean_of_pairs(matrix: Floats) -> Floats:
    """Mean over unordered pairs of different blocks of [..., B, B]: the diagonal of ones is left out."""
    upper = np.triu_indices(matrix.shape[-1], 1)
    found: Floats = matrix[..., upper[0], upper[1]].mean(-1)
    return found


def unit_rows(values: Singles, kind: str, k: int = 0) -> Singles:
    """Rows [m × E] transformed so that similarities are scalar products; NaN where a row is constant.

    `k` is the size of the top set of "topk", ties in canonical order (columns are).
    """
    if kind not in SIMILARITIES:
        raise UsageError(f"unknown similarity {kind!r}", "", f"known are {', '.join(SIMILARITIES)}")
    made = np.empty(values.shape, dtype=np.float32)
    for row, out in zip(values, made, strict=True):
        if kind == "topk":
            row = np.abs(row)
        if row.min() == row.max():
            out.fill(np.nan)
        elif kind == "spearman":
            _ranks(row, out)
        elif kind == "pearson":
            out[:] = row / np.abs(row).max()  # squares of tiny scores would underflow
        else:
            out.fill(0.0)
            out[np.argsort(-row, kind="stable")[:k]] = 1.0
    made -= made.mean(1, keepdims=True, dtype=np.float64).astype(np.float32)
    norms = np.sqrt(np.einsum("me,me->m", made, made, dtype=np.float64))
    made /= norms.astype(np.float32)[:, None]
    return made


def _ranks(row: Singles, out: Singles) -> None:
    """Write the average ranks of a row; sorting decides, ties share their mean rank."""
    order = np.argsort(row)
    placed = row[order]
    starts = np.flatnonzero(np.concatenate(([True], placed[1:] != placed[:-1])))
    if starts.size == row.size:
        out[order] = np.arange(row.size, dtype=np.float32)
        return
    sizes = np.diff(np.append(starts, row.size))
    out[order] = np.repeat(starts + (sizes - 1) / 2, sizes).astype(np.float32)


def block_similarity(
    values: Singles,
    blocks: NDArray[np.intp],
    clusters: NDArray[np.intp],
    kind: str,
    *,
    k: int = 0,
    cuts: int = 16,
    replicates: int = 100,
    subsamples: Sequence[NDArray[np.int8]] | None = None,
    seed: int = 0,
) -> BlockSimilarity:
    """Similarities between blocks of rows of a score table.

    Parameters
    ----------
    values:
        Scores [N × E], float32.
    blocks, clusters:
        Codes [N] from 0, and -1 as the block of examples in none; examples of one cluster are never on both sides of
        a cut.
    kind, k:
        See `unit_rows`.
    cuts:
        Random cuts of every block into halves.
    replicates:
        Random subsamples, each cut four ways; 0 for none.
    subsamples:
        Instead of drawing them block by block: each subsample's part of every example [N], out of `PARTS`, the same for
        all partitions of a family.
    seed:
        Of cuts and subsamples.

    Raises
    ------
    UsageError
        For fewer than two blocks, and where a block has too few clusters to be cut.
    """
    rows = _Rows(values, blocks, clusters)
    if rows.count < 2:
        raise UsageError(f"{rows.count} block", "similarity is a matter of two or more")
    count = rows.count
    whole = unit_rows(rows.means(block_weights(rows.blocks, count)), kind, k)
    raw = np.asarray(whole @ whole.T, dtype=np.float64)
    parts = random_parts(rows.blocks, rows.clusters, parts=2, draws=cuts, seed=seed)
    halves = np.mean(list(_across(rows, parts, kind, k)), axis=0)
    subsampled: Iterable[NDArray[np.int8]]
    if subsamples is not None:
        replicates, subsampled = len(subsamples), (parts[rows.used] for parts in subsamples)
    else:
        seed += 1_000_003  # a stream of its own, so that it does not move with the number of cuts
        subsampled = random_parts(rows.blocks, rows.clusters, parts=PARTS, draws=replicates, seed=seed)
    cut = _across(rows, _cut(subsampled), kind, k)
    found = np.empty((replicates, count, count))
    for row in range(replicates):
        found[row] = np.mean(list(islice(cut, len(CUTS))), axis=0)
    return BlockSimilarity(raw, halves, found)


def permuted(
    values: Singles,
    blocks: NDArray[np.intp],
    clusters: NDArray[np.intp],
    kind: str,
    *,
    k: int = 0,
    draws: int = 199,
    seed: int = 0,
) -> Floats:
    """[draws] mean similarity of whole blocks when examples are dealt to blocks of the same sizes at random.

    Where every cluster lies within one block and all have one size, clusters are dealt, else examples.
    """
    rows = _Rows(values, blocks, clusters)
    count, own, labels = rows.count, rows.clusters, rows.blocks
    sizes = np.bincount(own)
    first = np.zeros(sizes.size, dtype=np.intp)
    first[own] = labels
    nested = bool((first[own] == labels).all()) and sizes.min() == sizes.max()
    rng = generator(seed)
    dealt = (rng.permutation(first)[own] if nested else rng.permutation(labels) for _ in range(draws))
    found = []
    for some in _chunked((block_weights(one, count) for one in dealt), values.shape[1]):
        made = unit_rows(rows.means(some.reshape(-1, labels.size)), kind, k)
        each = made.reshape(len(some), count, -1)
        found += [mean_of_pairs(np.asarray(one @ one.T, dtype=np.float64)) for one in each]
    return np.array(found)


def top_overlap(values: Singles, blocks: NDArray[np.intp], k: int) -> Floats:
    """[B × B] share of the k largest |mean scores| that two whole blocks have in common."""
    rows = _Rows(values, blocks, blocks)
    size = -np.abs(rows.means(block_weights(rows.blocks, rows.count)))
    inside = np.zeros(size.shape, dtype=np.float64)
    np.put_along_axis(inside, np.argsort(size, axis=1, kind="stable")[:, :k], 1.0, axis=1)
    return inside @ inside.T / k


def _cut(subsamples: Iterable[NDArray[np.int8]]) -> Iterator[NDArray[np.int8]]:
    """Each subsample's parts as halves 0 and 1, and -1 for what is left out, once per cut."""
    for parts in subsamples:
        for zero in CUTS:
            code = np.full(PARTS, -1, dtype=np.int8)
            code[:KEPT] = [0 if part in zero else 1 for part in range(KEPT)]
            yield code[parts]


class _Rows:
    """The rows of a table that are in a block: their codes, and means of them without copying the table."""

    def __init__(self, values: Singles, blocks: NDArray[np.intp], clusters: NDArray[np.intp]) -> None:
        self.used = used = np.flatnonzero(blocks >= 0)
        self.blocks = blocks[used]
        self.clusters = np.unique(clusters[used], return_inverse=True)[1].astype(np.intp)
        self.count = int(self.blocks.max()) + 1 if used.size else 0
        # products with a few unused rows are cheaper than a copy without them
        spread = used.size < values.shape[0] <= 2 * used.size
        self.values = values if spread or used.size == values.shape[0] else values[used]
        self.place = used if spread else None

    def means(self, weights: Floats) -> Singles:
        """weights [m × used rows] times the scores [used rows × E]."""
        factors = weights.astype(np.float32)
        if self.place is not None:
            narrow, factors = factors, np.zeros((len(weights), self.values.shape[0]), dtype=np.float32)
            factors[:, self.place] = narrow
        return np.asarray(factors @ self.values)


def _across(rows: _Rows, cuts: Iterable[NDArray[np.int8]], kind: str, k: int) -> Iterator[Floats]:
    """Per cut, similarities [B × B] of half 1 of one block and half 2 of the other, mean of both ways round."""
    count = rows.count
    weights = (_whole(half_weights(rows.blocks, half, count)) for half in cuts)
    for some in _chunked(weights, rows.values.shape[1]):
        made = unit_rows(rows.means(some.reshape(-1, rows.blocks.size)), kind, k)
        for one in made.reshape(len(some), 2 * count, -1):
            found = np.asarray(one[:count] @ one[count:].T, dtype=np.float64)
            yield (found + found.T) / 2


def _whole(weights: Floats | None) -> Floats:
    if weights is None:
        raise UsageError(
            "a block cannot be cut into parts",
            f"it has fewer independent examples than the {PARTS} parts",
            "take larger blocks",
        )
    return weights


def _chunked(weights: Iterable[Floats], width: int) -> Iterator[Floats]:
    """Weights [m × N] stacked as [few × m × N], as many as fit into CHUNK once they are means of `width` scores."""
    source = iter(weights)
    for first in source:
        few = max(1, CHUNK // (8 * len(first) * width))
        yield np.stack([first, *islice(source, few - 1)])

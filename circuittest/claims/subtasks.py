"""What claims about subtasks share: scores of all examples, blocks of one size, and similarities between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from circuittest.errors import UsageError, did_you_mean
from circuittest.find.ranking import top_count
from circuittest.find.similarity import (
    KEPT_SHARE,
    SIMILARITIES,
    BlockSimilarity,
    block_similarity,
    mean_of_pairs,
)
from circuittest.stats.simultaneous import StudentInference, smallest_df, subsample_error
from circuittest.tasks.partitions import MIN_SIZE, Blocks, Partition

if TYPE_CHECKING:
    from circuittest.lab import Lab
    from circuittest.tables import Member
    from circuittest.tasks import Item

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """Signed scores of both splits.

    Attributes
    ----------
    values:
        float32 [examples × members].
    items:
        The example of each row, discovery examples first.
    discovered:
        How many of the rows are discovery examples.
    members:
        The edge or unit of each column.
    """

    values: NDArray[np.float32]
    items: tuple[Item, ...]
    discovered: int
    members: tuple[Member, ...] = ()

    @cached_property
    def clusters(self) -> NDArray[np.intp]:
        """Codes [examples]: examples of one group are one cluster, those without a group each their own."""
        names = [item.group or f"\0{row}" for row, item in enumerate(self.items)]
        return np.unique(names, return_inverse=True)[1].astype(np.intp)

    def split(self) -> tuple[Scores, Scores]:
        """The discovery and the evaluation examples."""
        d = self.discovered
        return (
            Scores(self.values[:d], self.items[:d], d, self.members),
            Scores(self.values[d:], self.items[d:], 0, self.members),
        )

    def columns(self, chosen: NDArray[np.intp]) -> Scores:
        """Some of the members."""
        members = tuple(self.members[int(i)] for i in chosen) if self.members else ()
        return replace(self, values=np.ascontiguousarray(self.values[:, chosen]), members=members)


def signed_scores(lab: Lab, level: str, universe: str | list[str], method: str) -> Scores:
    """Signed scores of every unit or edge on the examples of both splits.

    Both splits, since nothing about a partition by features was chosen on either. A unit's signed score is the sum
    over its outgoing edges, which is its node score.
    """
    how: dict[str, Any] = {"level": "edges"} if level == "edges" else {"score": "node"}
    tables = [
        lab.scores(split, universe=universe, method=method, **how)
        for split in ("discover", "evaluate")
        if getattr(lab.data, split)
    ]
    items = (*lab.data.discover, *lab.data.evaluate)
    values = np.concatenate([t.values for t in tables])
    return Scores(values, items, len(lab.data.discover), tables[0].members)


@dataclass(frozen=True, eq=False)
class Subtasks:
    """Blocks of one partition with their similarities.

    `invalid` says why the similarities mean nothing, or is empty.
    """

    blocks: Blocks
    found: BlockSimilarity
    df: float
    invalid: str

    @property
    def errors(self) -> Floats:
        """Standard errors [B] of the reliability of half a block."""
        return subsample_error(np.diagonal(self.found.replicates, axis1=1, axis2=2), KEPT_SHARE)

    @property
    def value(self) -> float:
        """Mean corrected similarity of all pairs."""
        return float(mean_of_pairs(self.found.corrected))

    @property
    def error(self) -> float:
        """Its standard error."""
        return float(subsample_error(mean_of_pairs(self.found.corrected_replicates), KEPT_SHARE))

    def inference(self, replicates: int) -> StudentInference:
        """Bounds of `value`."""
        method = f"Student's t, {self.df:.0f} df, error from {replicates} subsamples of {KEPT_SHARE:.0%}"
        n = self.blocks.n * len(self.blocks.labels)
        return StudentInference(self.value, self.error, self.df, n, method)

    def reliability(self) -> dict[str, dict[str, float]]:
        """Per block: of half a block with its lower bound, and stepped up to the whole one (Spearman-Brown)."""
        reach = float(stdtrit(self.df, 0.975)) * self.errors
        return {
            label: {"half": float(r), "lower": float(r - d), "whole": float(2 * r / (1 + r))}
            for label, r, d in zip(self.blocks.labels, self.found.reliability, reach, strict=True)
        }


def similarities(
    scores: Scores,
    partition: Partition,
    similarity: str,
    *,
    n: int | None = None,
    min_size: int = MIN_SIZE,
    seed: int = 0,
    **how: Any,
) -> Subtasks | str:
    """Resolve a partition on examples and compare its blocks (`compared`); or the reason why that is impossible.

    Raises
    ------
    TaskError, UsageError
        For a feature that the examples lack, and for options out of range.
    """
    blocks = partition.resolve(scores.items, n=n, min_size=min_size, seed=seed)
    if len(blocks.labels) < 2:
        return (
            f"the partition {str(partition)!r} has {len(blocks.labels)} blocks of at least {n or min_size} examples "
            f"(there are {listed(blocks.sizes, blocks.sizes)}); two are needed"
        )
    return compared(scores, blocks, similarity, seed=seed, **how)


def compared(
    scores: Scores,
    blocks: Blocks,
    similarity: str,
    *,
    top: str = "10%",
    cuts: int = 16,
    replicates: int = 100,
    subsamples: Sequence[NDArray[np.int8]] | None = None,
    seed: int = 0,
) -> Subtasks | str:
    """Compare blocks of examples, all of one size; or the reason why that is impossible. Raises UsageError."""
    if similarity not in SIMILARITIES:
        raise UsageError(
            f"unknown similarity {similarity!r}", "", did_you_mean(str(similarity), SIMILARITIES)
        )
    values, codes = scores.values, block_codes(blocks, len(scores.items))
    if values.shape[1] < 3:
        return f"{values.shape[1]} scores per example: a correlation of so few means nothing"
    k = top_count(top, values.shape[1])
    try:
        found = block_similarity(
            values,
            codes,
            scores.clusters,
            similarity,
            k=k,
            cuts=cuts,
            replicates=replicates,
            subsamples=subsamples,
            seed=seed,
        )
    except UsageError as error:
        return str(error)
    sizes_in_clusters = [np.unique(scores.clusters[p]).size for p in blocks.positions]
    made = Subtasks(blocks, found, smallest_df(sizes_in_clusters, len(found.replicates)), "")
    return replace(made, invalid=unusable(made))


def listed(sizes: Mapping[str, int], labels: Iterable[str], most: int = 12) -> str:
    """Blocks with their sizes, the largest first, for messages."""
    order = sorted(labels, key=lambda label: (-sizes[label], label))
    text = ", ".join(f"{label} ({sizes[label]})" for label in order[:most])
    return text + (f" and {len(order) - most} more" if len(order) > most else "")


def block_codes(blocks: Blocks, count: int) -> NDArray[np.intp]:
    """[count] the block of each example, -1 for those in none."""
    codes = np.full(count, -1, dtype=np.intp)
    codes[blocks.rows] = blocks.codes
    return codes


def unusable(made: Subtasks) -> str:
    """Why the corrected similarities are undefined, or "": the ratio is guarded by its denominator's interval."""
    constant = np.isnan(np.diagonal(made.found.raw)) | np.isnan(made.found.reliability)
    if constant.any():
        label = made.blocks.labels[int(np.argmax(constant))]
        return f"the mean scores of the block {label!r} are all equal, so that its correlations are undefined"
    if not len(made.found.replicates):
        return ""
    reliability = made.reliability()
    low = min(reliability, key=lambda label: reliability[label]["lower"])
    lower = reliability[low]["lower"]
    if not lower > 0 or not np.isfinite(made.found.corrected_replicates).all():
        return (
            f"the block {low!r} does not agree with itself: split-half reliability {reliability[low]['half']:.2f} "
            f"(lower bound {lower:.2f}) with {made.blocks.n} examples a block, so that similarity cannot be told from "
            "noise: take more examples"
        )
    return ""

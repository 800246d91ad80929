"""Seeded, block-wise resampling weights, and the one function that turns labels into a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circuittest.errors import UsageError

Floats = NDArray[np.float64]

#: Numbers held at a time while resampling (8 bytes each).
_BLOCK = 1_000_000


def generator(seed: int) -> np.random.Generator:
    """A numpy Generator (PCG64) from an explicit seed."""
    return np.random.Generator(np.random.PCG64(seed))


def exponential_blocks(seed: int, draws: int, width: int) -> Iterator[Floats]:
    """Blocks [b × width] of standard exponentials, `draws` rows in all.

    Normalised to sum 1 a row is a draw of Dirichlet(1, ..., 1): the weights of the Bayesian bootstrap
    (Rubin 1981). The numbers do not depend on the size of the blocks.
    """
    rng = generator(seed)
    for rows in _rows(draws, width):
        yield rng.standard_exponential((rows, width))


def count_blocks(seed: int, draws: int, width: int) -> Iterator[Floats]:
    """Blocks [b × width]: how often each of `width` units occurs in an ordinary bootstrap sample."""
    rng = generator(seed)
    for rows in _rows(draws, width):
        picks = rng.integers(0, width, (rows, width)) + width * np.arange(rows)[:, None]
        yield np.bincount(picks.ravel(), minlength=rows * width).reshape(rows, width).astype(np.float64)


def _rows(draws: int, width: int) -> Iterator[int]:
    size = max(1, _BLOCK // max(1, width))
    for start in range(0, draws, size):
        yield min(size, draws - start)


@dataclass(frozen=True)
class Clusters:
    """Examples partitioned into units of resampling.

    Attributes
    ----------
    codes:
        int array [n]: the cluster of each example, 0 .. count - 1.
    sizes:
        float array [count]: examples in each cluster.
    """

    codes: NDArray[np.intp]
    sizes: Floats

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.sizes.size)

    def totals(self, values: Floats) -> Floats:
        """Sum of `values` [n] (or of each column of [n × k]) within each cluster: [count] or [count × k].

        To the last bit the same for any order of the examples: each cluster is summed from its smallest value on.
        """
        columns = values.reshape(len(values), -1).T
        codes = np.broadcast_to(self.codes, columns.shape)
        order = np.lexsort((columns, codes), axis=-1)
        out = np.zeros((self.count, len(columns)))
        np.add.at(out, np.sort(self.codes), np.take_along_axis(columns, order, axis=-1).T)
        return out.reshape(self.count, *values.shape[1:])


def partition(n: int, groups: Sequence[object] | ArrayLike | None) -> Clusters:
    """The clusters of n examples: every one its own without `groups`, else one per distinct label.

    Standard errors, degrees of freedom and resampling all read this one partition.
    """
    if groups is None:
        return Clusters(np.arange(n, dtype=np.intp), np.ones(n))
    labels = [str(label) for label in np.asarray(groups, dtype=object).ravel()]
    if len(labels) != n:
        raise UsageError(f"{len(labels)} group labels for {n} examples", "every example has one group")
    order = {label: code for code, label in enumerate(sorted(set(labels)))}
    codes = np.array([order[label] for label in labels], dtype=np.intp)
    return Clusters(codes, np.bincount(codes, minlength=len(order)).astype(np.float64))


def sample(values: ArrayLike, what: str, bounds: tuple[float, float] | None = None) -> Floats:
    """A finite, non-empty float array [n] within `bounds`, or a UsageError that names `what`."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise UsageError(f"{what} has shape {array.shape}", "one value per example is needed")
    check_range(array, what, bounds)
    return array


def check_range(array: Floats, what: str, bounds: tuple[float, float] | None) -> None:
    """Refuse values that are not finite or lie outside `bounds`."""
    if not np.isfinite(array).all():
        raise UsageError(f"{what} holds values that are not finite", "their mean is undefined")
    if bounds is None:
        return
    low, high = bounds
    if not low < high:
        raise UsageError(f"bounds are {bounds!r}", "the first must be below the second")
    if array.min() < low - 1e-9 or array.max() > high + 1e-9:
        raise UsageError(
            f"{what} lies in [{array.min():g}, {array.max():g}]",
            f"the declared bounds are [{low:g}, {high:g}]",
            "give the bounds that hold by definition, or bounds=None where there are none",
        )

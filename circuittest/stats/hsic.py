"""The Hilbert-Schmidt independence criterion with a permutation p-value (Gretton et al. 2007).

HSIC = tr(K H L H)/n² with Gaussian kernels K of the first and L of the second score, each with the median of its own
pairwise distances as bandwidth. A small p-value refutes independence; a large one shows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import Floats
from circuittest.stats.resampling import generator, sample

PERMUTATIONS = 999


@dataclass(frozen=True)
class Hsic:
    """Result of the permutation test.

    Attributes
    ----------
    statistic:
        HSIC of the data.
    p:
        (1 + number of permutations with at least that HSIC)/(1 + permutations).
    permutations:
        How many were drawn.
    """

    statistic: float
    p: float
    permutations: int


def hsic_test(
    first: ArrayLike, second: ArrayLike, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> Hsic:
    """Test whether two scores of the same examples are independent.

    Parameters
    ----------
    first, second:
        Scores [n].

    Raises
    ------
    UsageError
        Fewer than two examples, scores of unequal number or not finite, no permutations.
    """
    x, y = sample(first, "the first score"), sample(second, "the second score")
    if x.size != y.size or x.size < 2 or permutations < 1:
        raise UsageError(
            f"{x.size} and {y.size} scores, {permutations} permutations",
            "two scores of at least two examples, and at least one permutation are needed",
        )
    order = np.lexsort((y, x))  # permuting the examples changes nothing
    k, other = _centred(_kernel(x[order])), _kernel(y[order])
    rng, n = generator(seed), x.size
    observed = float(np.vdot(k, other))
    beyond = 0
    for _ in range(permutations):
        shuffled = rng.permutation(n)
        # the last bits depend on the order of summation
        beyond += float(np.vdot(k, other[np.ix_(shuffled, shuffled)])) >= observed - 1e-9 * max(
            1.0, abs(observed)
        )
    return Hsic(max(0.0, observed) / n**2, (1 + beyond) / (1 + permutations), permutations)


def _kernel(values: Floats) -> Floats:
    distance = np.abs(values[:, None] - values[None])
    apart = distance[distance > 0]
    if not apart.size:
        return np.ones_like(distance)
    kernel: Floats = np.exp(-0.5 * (distance / float(np.median(apart))) ** 2)
    return kernel


def _centred(kernel: Floats) -> Floats:
    rows = kernel.mean(axis=0)
    centred: Floats = kernel - rows[None] - rows[:, None] + float(rows.mean())
    return centred

"""Above how many of its references does a unit's mean lie?

Estimand: theta = the share of a population of references whose mean is below the unit's mean, means over the
population of examples. (With theta >= q the unit lies above the q-quantile of the references.)

One draw weighs examples with w ~ Dirichlet(1, ..., 1) and references with v ~ Dirichlet(1, ..., 1) and counts

    sum_r v_r [ sum_i w_i (x_i - y_ri) + w_{n+1} k_r > 0 ],

k_r the pseudo-example of `circuittest.stats.graded`, a quarter of the way beyond the extreme difference, or as
much on the other side where all differences are equal. With groups the clusters are weighed, not the examples: x_i -
y_ri is then the total of a cluster's differences. One more reference, which the unit does not exceed for the lower
bound and does for the upper, stands for those that were not drawn: for R of R exceeded that is the exact binomial
bound. With all references enumerated they are not resampled; above 5 % of the population they get the weights of a
Pólya urn (`circuittest.stats.two_way`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import DRAWS, DrawnInference, Floats
from circuittest.stats.mean import BEYOND
from circuittest.stats.resampling import check_range, exponential_blocks, generator, partition, sample
from circuittest.stats.two_way import FINITE_ABOVE


class ExceedanceInference(DrawnInference):
    """Inference on the share of references that a unit exceeds.

    Parameters
    ----------
    values:
        Of the unit, one per example [n].
    references:
        Of the references, [R × n], on the same examples.
    population:
        How many references exist, or None for very many; equal to R when all are there.
    groups, seed, draws:
        As for `MeanInference`.

    Raises
    ------
    UsageError
        Shapes that do not fit, values that are not finite, or more references than there are.
    """

    def __init__(
        self,
        values: ArrayLike,
        references: ArrayLike,
        population: int | None = None,
        groups: Sequence[object] | ArrayLike | None = None,
        *,
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        own = sample(values, "the unit's values")
        table = np.asarray(references, dtype=np.float64)
        if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] != own.size:
            raise UsageError(
                f"values of shape {own.shape} and references of shape {table.shape}",
                "they are [n] and [R × n] on the same examples",
            )
        check_range(table, "the references' values", None)
        self.n, self.n_controls = int(own.size), int(table.shape[0])
        if population is not None and population < self.n_controls:
            raise UsageError(f"{self.n_controls} references of {population}", "references are distinct")
        if draws < 199:
            raise UsageError(f"{draws} draws", "an interval needs at least 199")
        self.population, self.enumerated = population, population == self.n_controls
        differences = own[None] - table
        clusters = partition(self.n, groups)
        self.n_clusters = clusters.count
        totals, sizes = clusters.totals(differences.T).T, clusters.sizes
        order = np.lexsort((*totals, sizes))  # permuting the examples changes nothing
        self._totals, self._sizes = totals[:, order], sizes[order]
        self._noise = 1e-12 * max(1.0, float(np.abs(differences).max()))
        self.value = float((self._totals.sum(axis=1) > self._noise * self.n).mean())
        self.limits = (0.0, 1.0)
        self._seed, self._draws = seed, draws
        sets = f"all {self.n_controls}" if self.enumerated else f"{self.n_controls}"
        self.method = f"share of {sets} references exceeded, Dirichlet weights with pseudo-observations"
        if groups is not None:
            self.method += f", {self.n_clusters} clusters"

    def _draw(self) -> tuple[Floats, Floats]:
        means, size = self._totals / self._sizes, float(self._sizes.mean())
        least, most = means.min(axis=1), means.max(axis=1)
        middle = np.median(means, axis=1)
        equal = most - least <= self._noise
        beyond = (
            np.where(equal, -np.abs(least), least - BEYOND * (middle - least)),
            np.where(equal, np.abs(least), most + BEYOND * (most - middle)),
        )
        ends: tuple[list[Floats], list[Floats]] = ([], [])
        of_sets = self._reference_weights()
        position = 0
        for weights in exponential_blocks(self._seed, self._draws, self.n_clusters + 1):
            v = of_sets[position : position + weights.shape[0]]
            position += weights.shape[0]
            seen = weights[:, :-1] @ self._totals.T
            for side, pseudo in enumerate(beyond):
                above = seen + weights[:, -1:] * (size * pseudo) > self._noise * self.n
                share = np.einsum("br,br->b", v[:, :-1], above.astype(np.float64))
                ends[side].append(share + v[:, -1] * side)
        return np.concatenate(ends[0]), np.concatenate(ends[1])

    def _reference_weights(self) -> Floats:
        """[draws × (R + 1)], rows sum to 1; the last is the pseudo-reference's."""
        count = self.n_controls
        if self.enumerated:
            return np.tile(np.append(np.full(count, 1.0 / count), 0.0), (self._draws, 1))
        raw = np.concatenate(list(exponential_blocks(self._seed + 1_000_003, self._draws, count + 1)))
        weights: Floats = raw / raw.sum(axis=1, keepdims=True)
        if self.population is None or count <= FINITE_ABOVE * self.population:
            return weights
        rng = generator(self._seed + 2_000_003)
        filled: Floats = rng.multinomial(self.population - count, weights).astype(np.float64)
        filled[:, :-1] += 1.0
        return filled / self.population

    def standard_error(self) -> float:
        """Unknown: a count of comparisons does not shrink like a mean."""
        return math.nan

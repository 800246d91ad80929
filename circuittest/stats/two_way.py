"""The two-way bootstrap of a ratio: examples and control sets are both samples.

The statistic is (mean over sets of mean over examples of c - mean of s) / mean of b. One draw weighs examples
(or clusters) with w ~ Dirichlet(1, ..., 1) and sets with v ~ Dirichlet(1, ..., 1), independently: a smooth
form of the pigeonhole bootstrap (Owen 2007; Rubin 1981). What was not drawn is stood in for by one
pseudo-example and one pseudo-set, different for the lower and the upper bound (`Unseen`):

    (sum w_i v_r c_ri + v_{R+1} sum w_i k_i - sum w_i s_i + w_{n+1} q) / (sum w_i b_i + w_{n+1} d).

The ratio needs no expansion: {theta* < t} is {numerator* - t denominator* < 0}, Fieller's (1954) inversion.

Sets are drawn without replacement from a population of M. Above R = 5 % of M their weights are those of a Pólya
urn run until all M sets are filled in (Lo 1988), which has exactly the variance (1 - R/M) s^2/R; with all
sets enumerated the set dimension is not resampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import (
    PRACTICAL,
    DrawnInference,
    Floats,
    Op,
    examples_needed,
    growth,
    nothing_needed,
    round_up,
)
from circuittest.stats.resampling import check_range, exponential_blocks, generator, partition, sample

#: Share of the population above which sampling without replacement is corrected for (claims.md, "Controls").
FINITE_ABOVE = 0.05


@dataclass(frozen=True)
class Unseen:
    """What a bound assumes of the pseudo-set and the pseudo-example.

    Attributes
    ----------
    outcome:
        k: what the pseudo-set leaves, [clusters], summed over the examples of each.
    numerator, denominators:
        q and d: what the pseudo-example adds. Of several d the one counts that moves the bound farther out.
    """

    outcome: Floats
    numerator: float
    denominators: tuple[float, ...]


class TwoWayInference(DrawnInference):
    """Common part of `NecessityInference` and `GradedNecessityInference`.

    Parameters
    ----------
    denominator, circuit:
        b and s, [n].
    controls:
        c, [R × n].
    population, enumerated, groups, seed, draws, bounds:
        As in the two classes; `bounds` of all values.
    """

    def __init__(
        self,
        denominator: ArrayLike,
        circuit: ArrayLike,
        controls: ArrayLike,
        population: int | None,
        enumerated: bool,
        groups: Sequence[object] | ArrayLike | None,
        *,
        seed: int,
        draws: int,
        bounds: tuple[float, float] | None,
    ) -> None:
        below = sample(denominator, "the base outcome", bounds)
        ablated = sample(circuit, "the circuit's outcome", bounds)
        table = np.asarray(controls, dtype=np.float64)
        if table.ndim != 2 or table.shape[0] == 0 or not table.shape[1] == ablated.size == below.size:
            raise UsageError(
                f"outcomes of shapes base {below.shape}, circuit {ablated.shape}, controls {table.shape}",
                "they are [n], [n] and [R × n] on the same examples",
            )
        check_range(table, "the controls' outcome", bounds)
        self.n, self.n_controls = int(below.size), int(table.shape[0])
        if population is not None and population < self.n_controls:
            raise UsageError(f"{self.n_controls} sets of a population of {population}", "sets are distinct")
        if enumerated and population not in (None, self.n_controls):
            raise UsageError(f"{self.n_controls} sets of {population}", "enumerated means all of them")
        if draws < 199:
            raise UsageError(f"{draws} draws", "an interval needs at least 199")
        self.population = self.n_controls if enumerated else population
        self.enumerated = enumerated or population == self.n_controls
        self.mean_denominator = math.fsum(below) / self.n
        self.mean_circuit = math.fsum(ablated) / self.n
        self.mean_controls = tuple(math.fsum(row) / self.n for row in table)
        if self.mean_denominator <= 0.0:
            raise UsageError(
                f"the ratio is undefined: its denominator is {self.mean_denominator:g}",
                "the model does nothing on this task that could be lost",
                "check the competence gate first",
            )
        above = math.fsum(self.mean_controls) / self.n_controls - self.mean_circuit
        self.value = above / self.mean_denominator

        clusters = partition(self.n, groups)
        self.n_clusters = clusters.count
        averaged = table.mean(axis=0, keepdims=True) if self.enumerated else table
        totals = clusters.totals(np.column_stack((below, ablated, averaged.T)))
        totals = np.column_stack((clusters.sizes, totals))
        totals = totals[np.lexsort(totals.T[::-1])]  # permuting the examples changes nothing
        self._sizes, self._below, self._ablated = totals[:, 0], totals[:, 1], totals[:, 2]
        self._controls = totals[:, 3:]
        self._seed, self._draws = seed, draws

    def _unseen(self) -> tuple[Unseen, Unseen] | None:
        """The assumptions of the lower and the upper bound; None when nothing bounds what was not seen."""
        raise NotImplementedError

    @property
    def finite(self) -> bool:
        """Whether the set dimension carries a finite-population correction."""
        if self.enumerated or self.population is None:
            return False
        return self.n_controls > FINITE_ABOVE * self.population

    def sampling(self) -> str:
        """What was sampled, in words, for `method`."""
        sets = "all control sets" if self.enumerated else f"{self.n_controls} control sets"
        if self.finite:
            sets += f" of {self.population} (Pólya urn)"
        return sets if self.n_clusters == self.n else f"{sets}, {self.n_clusters} clusters"

    def _draw(self) -> tuple[Floats, Floats]:
        return self._two_way(examples=True, sets=not self.enumerated)

    def _two_way(self, *, examples: bool, sets: bool) -> tuple[Floats, Floats]:
        unseen = self._unseen()
        if unseen is None:
            return np.full(self._draws, -math.inf), np.full(self._draws, math.inf)
        size = float(self._sizes.mean())
        table = self._controls if sets else self._controls.mean(axis=1, keepdims=True)
        outcomes = [bound.outcome for bound in unseen]
        columns = np.column_stack((self._below, self._ablated, *outcomes, table))
        set_weights = self._set_weights(sets)
        ends: tuple[list[Floats], list[Floats]] = ([], [])
        position = 0
        for weights in exponential_blocks(self._seed, self._draws, self.n_clusters + 1):
            rows = weights.shape[0]
            if not examples:
                weights[:, :-1], weights[:, -1] = 1.0, 0.0
            v = set_weights[position : position + rows]
            position += rows
            seen = weights[:, :-1] @ columns
            pseudo = weights[:, -1] * size
            drawn = np.einsum("br,br->b", v[:, :-1], seen[:, 4:]) - seen[:, 1]
            for side, bound in enumerate(unseen):
                numerator = drawn + v[:, -1] * seen[:, 2 + side] + pseudo * bound.numerator
                farthest = (np.minimum, np.maximum)[side]
                reached = [
                    _divide(numerator, seen[:, 0] + pseudo * extra, (-math.inf, math.inf)[side])
                    for extra in bound.denominators
                ]
                ends[side].append(farthest.reduce(reached))
        return np.concatenate(ends[0]), np.concatenate(ends[1])

    def _set_weights(self, sets: bool) -> Floats:
        """Weights [draws × (R + 1)] that sum to 1; the last is the pseudo-set's."""
        if not sets:
            return np.tile([1.0, 0.0], (self._draws, 1))
        # a stream of its own, so that it does not move with the number of examples
        blocks = exponential_blocks(self._seed + 1_000_003, self._draws, self.n_controls + 1)
        raw = np.concatenate(list(blocks))
        weights: Floats = raw / raw.sum(axis=1, keepdims=True)
        if not self.finite or self.population is None:
            return weights
        rng = generator(self._seed + 2_000_003)
        filled: Floats = rng.multinomial(self.population - self.n_controls, weights).astype(np.float64)
        filled[:, :-1] += 1.0
        return filled / self.population

    def standard_error(self) -> float:
        """Of the examples alone, sets fixed: cluster-robust, of the linearised ratio."""
        residuals = self._controls.mean(axis=1) - self._ablated - self.value * self._below
        return _error(residuals, self._sizes.size) * self._sizes.size / float(self._below.sum())

    def _set_error(self) -> float:
        """Of the sets alone, examples fixed."""
        means = self._controls.sum(axis=0) / float(self._below.sum())
        share = self.n_controls / self.population if self.finite and self.population is not None else 0.0
        return _error(means, self.n_controls) * math.sqrt(1.0 - share)

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        """The n, or the n and R, that would decide: half-widths of the two dimensions add in squares."""
        gap, lower = abs(self.value - threshold), self.value > threshold
        error = self.stretch * self.standard_error()
        of_examples = self._half_width(lower, examples=True, sets=False)
        if self.enumerated or not math.isfinite(of_examples):
            advice = examples_needed(self.n, of_examples, gap, error)
            if self.enumerated and self.n_controls > 1 and advice["n"] is not None:
                advice["text"] += f" (the control population is exhausted: all {self.n_controls} sets are in)"
            return advice
        of_sets = self._half_width(lower, examples=False, sets=True)
        if 2 * of_sets**2 <= gap**2:
            return examples_needed(self.n, of_examples, math.sqrt(gap**2 - of_sets**2), error)
        share = gap / math.sqrt(2.0)
        more_sets, more_examples = (
            growth(of_sets, share, self.stretch * self._set_error()),
            growth(of_examples, share, error),
        )
        if self.population is not None and more_sets * self.n_controls >= self.population:
            wanted = max(self.n, round_up(self.n * min(PRACTICAL, growth(of_examples, gap, error))))
            text = f"about n = {wanted} examples and all R = {self.population} control sets"
            text += " (the control population is then exhausted)"
            return {"n": wanted, "controls": self.population, "text": text}
        if max(more_sets, more_examples) > PRACTICAL:
            return nothing_needed()
        controls = round_up(max(1.1, more_sets) * self.n_controls)
        wanted = max(self.n, round_up(self.n * more_examples))
        text = f"about n = {wanted} examples and R = {controls} controls"
        return {"n": wanted, "controls": controls, "text": text}

    def _half_width(self, lower: bool, *, examples: bool, sets: bool) -> float:
        """Distance of the 97.5 % bound (less the share spent) from the value, resampling only what is named."""
        if not examples and not sets:
            return 0.0
        low, high = (np.sort(draw) for draw in self._two_way(examples=examples, sets=sets))
        rank = max(1, math.floor(0.025 * self.share * (self._draws + 1) + 1e-9))
        return max(0.0, self.value - float(low[rank - 1]) if lower else float(high[-rank]) - self.value)


def _divide(numerator: Floats, denominator: Floats, otherwise: float) -> Floats:
    """The ratio; a denominator that may be nothing bounds nothing."""
    out: Floats = np.full(numerator.shape, otherwise)
    np.divide(numerator, denominator, out=out, where=denominator > 0.0)
    return out


def _error(values: Floats, count: int) -> float:
    """Standard error of the mean of `count` values that are centred here; NaN for one."""
    if count < 2:
        return math.nan
    return float(np.std(values, ddof=1)) / math.sqrt(count)

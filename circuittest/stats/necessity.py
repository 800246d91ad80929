"""Necessity beyond matched controls, with examples and control sets both treated as samples.

Estimand: theta = (mean over all matched sets C of acc(C) - acc(S)) / acc(empty), accuracies over the
population of examples.

Both dimensions are resampled at once: Dirichlet(1, ..., 1) weights w over the examples (or clusters) times
Dirichlet weights v over the control sets, a smooth two-way (pigeonhole) bootstrap (Owen 2007; Rubin 1981).
Resampling alone cannot cover what was not drawn: where 5 % of the matched sets destroy the model, 40 draws
contain none of them in 13 % of all cases. So each bound gets one more set and one more example in a bad
place (Learned-Miller & Thomas 2019; see `circuittest.stats.mean`):

    low  = (sum w_i v_r c_ri - sum w_i s_i - w_{n+1}) / sum w_i b_i
    high = (sum w_i v_r c_ri + v_{R+1} sum w_i b_i - sum w_i s_i + w_{n+1}) / (sum w_i b_i + w_{n+1})

that is, for the lower bound a set that makes every example wrong (v_{R+1} times 0) and an example that takes
1 from the numerator; for the upper bound a set that harms nothing and an example with base right, controls
right, circuit wrong. With identical controls the set dimension then has the exact binomial bound for R of R.
The price is width: the lower bound cannot come nearer to the value than about 3.7/R of the controls'
accuracy, unless the sets are enumerated, and coverage is mostly above 98 %.

The ratio needs no expansion: {theta* < t} is {numerator* - t denominator* < 0}, Fieller's (1954) inversion.

Sets are drawn without replacement from a population of M. Above R = 5 % of M the weights are those of a Pólya
urn run until all M sets are filled in (Lo 1988), which has exactly the variance (1 - R/M) s^2/R; with all
sets enumerated the set dimension is not resampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import (
    DRAWS,
    DrawnInference,
    Floats,
    Op,
    examples_needed,
    nothing_needed,
    round_up,
)
from circuittest.stats.proportion import proportion_interval
from circuittest.stats.resampling import check_range, exponential_blocks, generator, partition, sample

#: Share of the population above which sampling without replacement is corrected for (claims.md, "Controls").
FINITE_ABOVE = 0.05


class NecessityInference(DrawnInference):
    """Inference on necessity from outcome tables.

    Parameters
    ----------
    base, circuit:
        Outcomes [n] in [0, 1] with nothing ablated and with the circuit ablated.
    controls:
        Outcomes [R × n] with each control set ablated.
    population:
        Number M of distinct matched sets, or None for "very many".
    enumerated:
        True when `controls` holds all matched sets.
    groups:
        One label per example; examples of one label are drawn together.
    seed, draws:
        Of the resampling. The order of the examples does not matter.

    Raises
    ------
    UsageError
        Shapes that do not fit, outcomes outside [0, 1], more sets than the population holds, or a base that
        is never right (the ratio is undefined).
    """

    def __init__(
        self,
        base: ArrayLike,
        circuit: ArrayLike,
        controls: ArrayLike,
        population: int | None = None,
        enumerated: bool = False,
        groups: Sequence[object] | ArrayLike | None = None,
        *,
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        unit = (0.0, 1.0)
        right, ablated = (
            sample(base, "the base outcome", unit),
            sample(circuit, "the circuit's outcome", unit),
        )
        table = np.asarray(controls, dtype=np.float64)
        if (
            table.ndim != 2
            or table.shape[0] == 0
            or table.shape[1] != right.size
            or ablated.size != right.size
        ):
            raise UsageError(
                f"outcomes of shapes base {right.shape}, circuit {ablated.shape}, controls {table.shape}",
                "they are [n], [n] and [R × n] on the same examples",
            )
        check_range(table, "the controls' outcome", unit)
        self.n, self.n_controls = int(right.size), int(table.shape[0])
        if population is not None and population < self.n_controls:
            raise UsageError(
                f"{self.n_controls} control sets of a population of {population}", "sets are distinct"
            )
        if enumerated and population not in (None, self.n_controls):
            raise UsageError(
                f"{self.n_controls} control sets of {population}", "enumerated means all of them"
            )
        if draws < 199:
            raise UsageError(f"{draws} draws", "an interval needs at least 199")
        self.population = self.n_controls if enumerated else population
        self.enumerated = enumerated or population == self.n_controls
        self.acc_base, self.acc_circuit = math.fsum(right) / self.n, math.fsum(ablated) / self.n
        self.acc_controls = tuple(math.fsum(row) / self.n for row in table)
        if self.acc_base == 0.0:
            raise UsageError(
                "necessity is undefined",
                "the model is right on no example",
                "check the competence gate first",
            )
        self.value = (math.fsum(self.acc_controls) / self.n_controls - self.acc_circuit) / self.acc_base

        clusters = partition(self.n, groups)
        self.n_clusters = clusters.count
        averaged = table.mean(axis=0, keepdims=True) if self.enumerated else table
        columns = np.column_stack((right, ablated, averaged.T))
        totals = np.column_stack((clusters.sizes, clusters.totals(columns)))
        totals = totals[np.lexsort(totals.T[::-1])]  # permuting the examples changes nothing
        self._sizes, self._base, self._circuit, self._controls = (
            totals[:, 0],
            totals[:, 1],
            totals[:, 2],
            totals[:, 3:],
        )
        self._seed, self._draws = seed, draws
        sets = "all control sets" if self.enumerated else f"{self.n_controls} control sets"
        if self.finite:
            sets += f" of {self.population}, Pólya urn"
        self.method = f"two-way Dirichlet weights with worst-case pseudo-observations, {sets}" + (
            "" if groups is None else f", {self.n_clusters} clusters"
        )

    @property
    def finite(self) -> bool:
        """Whether the set dimension carries a finite-population correction."""
        return (
            not self.enumerated
            and self.population is not None
            and self.n_controls > FINITE_ABOVE * self.population
        )

    def denominator_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Exact interval of acc(empty), the ratio's denominator (outcomes rounded to whole successes)."""
        return proportion_interval(round(self.acc_base * self.n), self.n, confidence)

    def _draw(self) -> tuple[Floats, Floats]:
        return self._two_way(examples=True, sets=not self.enumerated)

    def _two_way(self, *, examples: bool, sets: bool) -> tuple[Floats, Floats]:
        size = float(self._sizes.mean())
        table = self._controls if sets else self._controls.mean(axis=1, keepdims=True)
        columns = np.column_stack((self._base, self._circuit, table))
        set_blocks = self._set_weights(sets)
        low, high = [], []
        position = 0
        for weights in exponential_blocks(self._seed, self._draws, self.n_clusters + 1):
            rows = weights.shape[0]
            if not examples:
                weights[:, :-1], weights[:, -1] = 1.0, 0.0
            v = set_blocks[position : position + rows]
            position += rows
            seen = weights[:, :-1] @ columns
            pseudo = weights[:, -1] * size
            base, ablated = seen[:, 0], seen[:, 1]
            drawn = np.einsum("br,br->b", v[:, :-1], seen[:, 2:])
            # a set that destroys everything adds nothing; one that destroys nothing adds what the base gets right
            low.append((drawn - ablated - pseudo) / base)
            high.append((drawn + v[:, -1] * base + pseudo - ablated) / (base + pseudo))
        return np.concatenate(low), np.concatenate(high)

    def _set_weights(self, sets: bool) -> Floats:
        """Weights [draws × (R + 1)] that sum to 1; the last is the pseudo-set's."""
        if not sets:
            return np.tile([1.0, 0.0], (self._draws, 1))
        # a stream of its own, so that it does not move with the number of examples
        raw = np.concatenate(
            list(exponential_blocks(self._seed + 1_000_003, self._draws, self.n_controls + 1))
        )
        weights: Floats = raw / raw.sum(axis=1, keepdims=True)
        if not self.finite or self.population is None:
            return weights
        rng = generator(self._seed + 2_000_003)
        unseen = rng.multinomial(self.population - self.n_controls, weights).astype(np.float64)
        unseen[:, :-1] += 1.0
        filled: Floats = unseen / self.population
        return filled

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        gap = abs(self.value - threshold)
        below = self.value > threshold
        if gap == 0.0:
            return nothing_needed()
        halves = []
        for examples, sets in ((True, False), (False, not self.enumerated)):
            low, high = (np.sort(draw) for draw in self._two_way(examples=examples, sets=sets))
            rank = max(1, math.floor(0.025 * (self._draws + 1) + 1e-9))
            halves.append(
                max(0.0, self.value - float(low[rank - 1]) if below else float(high[-rank]) - self.value)
            )
        of_examples, of_sets = halves
        if self.enumerated:
            advice = examples_needed(self.n, of_examples, gap)
            if advice["n"] is not None:
                advice["text"] += f" (the control population is exhausted: all {self.n_controls} sets are in)"
            return advice
        if 2 * of_sets**2 <= gap**2:
            return examples_needed(self.n, of_examples, math.sqrt(gap**2 - of_sets**2))
        controls = round_up(self.n_controls * 2 * (of_sets / gap) ** 2)
        if self.population is not None and controls >= self.population:
            wanted = max(self.n, round_up(self.n * (of_examples / gap) ** 2))
            return {
                "n": wanted,
                "controls": self.population,
                "text": f"about n = {wanted} examples and all R = {self.population} control sets "
                "(the control population is then exhausted)",
            }
        wanted = max(self.n, round_up(self.n * 2 * (of_examples / gap) ** 2))
        if max(controls / self.n_controls, wanted / self.n) > 400:
            return nothing_needed()
        return {
            "n": wanted,
            "controls": controls,
            "text": f"about n = {wanted} examples and R = {controls} controls",
        }

"""A mean over models, each a mean over tasks, each a mean over examples.

A suite that covers several models has no thousand independent examples: those of one model share its mechanisms, and
a statement about models rests on as many observations as there are models. So the top level is resampled first. The
means of its units already carry all noise from below, and with few of them what matters is not to pretend to know
their spread:

*sampled* (default): the models stand for others like them, and one kind of model may be missing from the sample.
For bounded values each end is the widest of the bound of `circuittest.stats.mean` over the k model means, with its
worst-case pseudo-model, and of the interval given these models. That holds for every population, and it is wide: with
k = 5 the lower end is about half the value, with k = 10 about a third below it. Values without bounds are *smooth*.

*smooth*: model means are taken to vary smoothly. Each end is the widest of Student's t over the k means with k - 1
degrees of freedom, the bootstrap-t, the Dirichlet bound for values without bounds, and the interval given these
models. Two models give next to nothing, one gives nothing. A rare kind of model that is far off and not among the k
is not covered: where one model in ten fails, a third of these intervals from 10 models miss
(benchmarks/statistics/coverage.py).

*given*: these models and tasks and no others. Examples are resampled within each leaf, with one worst-case
pseudo-observation for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import DRAWS, DrawnInference, Floats, Op, nothing_needed
from circuittest.stats.mean import BEYOND, MeanInference
from circuittest.stats.resampling import generator, partition, sample

#: Numbers held at a time while resampling.
_BLOCK = 1_000_000


class HierarchicalMeanInference(DrawnInference):
    """Inference on the mean over top-level units of the means over the units below, every unit weighted equally.

    Parameters
    ----------
    values:
        One value per example [n].
    levels:
        Labels [n] per level, the top one first: [models, tasks]. A task is one within its model: equal names under
        two models are two units.
    groups:
        One label per example; examples of one label within a leaf are drawn together.
    top:
        "sampled": the top-level units are a sample of any population; "smooth": of one without rare exceptions;
        "given": they are all there is.
    bounds:
        As for `MeanInference`.
    seed, draws:
        Of the resampling. The order of the examples does not matter.

    Attributes
    ----------
    units:
        The top-level labels, sorted.
    means:
        Their means.
    n_leaves:
        How many units the lowest level has.

    Raises
    ------
    UsageError
        Values that are empty, not finite or out of bounds; labels missing; no level.
    """

    def __init__(
        self,
        values: ArrayLike,
        levels: Sequence[Sequence[object] | ArrayLike],
        groups: Sequence[object] | ArrayLike | None = None,
        *,
        top: Literal["sampled", "smooth", "given"] = "sampled",
        bounds: tuple[float, float] | None = (0.0, 1.0),
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        array = sample(values, "the sample", bounds)
        if top not in ("sampled", "smooth", "given"):
            raise UsageError(f"top is {top!r}", 'it is "sampled", "smooth" or "given"')
        if not len(levels):
            raise UsageError("no levels", "at least the labels of the top level are needed")
        if draws < 199:
            raise UsageError(f"{draws} draws", "an interval needs at least 199")
        labels = [[str(label) for label in np.asarray(level, dtype=object).ravel()] for level in levels]
        for level in labels:
            if len(level) != array.size:
                raise UsageError(
                    f"{len(level)} labels for {array.size} examples", "every example has one per level"
                )
        paths = list(zip(*labels, strict=True))
        leaves = sorted(set(paths))
        self.n, self.n_leaves = int(array.size), len(leaves)
        self.units = tuple(sorted({path[0] for path in leaves}))
        position = {leaf: i for i, leaf in enumerate(leaves)}
        where = np.array([position[path] for path in paths])
        names = None if groups is None else np.asarray(groups, dtype=object).ravel()
        if names is not None and names.size != array.size:
            raise UsageError(
                f"{names.size} group labels for {array.size} examples", "every example has one group"
            )
        weight = _weights(leaves)
        self._leaves: list[tuple[float, Floats, Floats]] = []
        for index, leaf in enumerate(leaves):
            rows = where == index
            clusters = partition(int(rows.sum()), None if names is None else names[rows])
            totals, sizes = clusters.totals(array[rows]), clusters.sizes
            order = np.lexsort((sizes, totals))
            self._leaves.append((weight[leaf], totals[order], sizes[order]))
        leaf_means = np.array([math.fsum(totals) / float(sizes.sum()) for _, totals, sizes in self._leaves])
        shares = np.array([w for w, _, _ in self._leaves])
        owner = np.array([self.units.index(leaf[0]) for leaf in leaves])
        k = len(self.units)
        self.means = tuple(float(np.sum((k * shares * leaf_means)[owner == j])) for j in range(k))
        self.value = math.fsum(shares * leaf_means)
        self.limits = (-math.inf, math.inf) if bounds is None else (float(bounds[0]), float(bounds[1]))
        self._top, self._bounds, self._seed, self._draws = top, bounds, seed, draws
        what = f"mean over {k} units of {self.n_leaves} leaves"
        self.method = {
            "given": f"{what}, these alone: Dirichlet weights within leaves",
            "smooth": f"{what}: widest of Student's t with {k - 1} df, bootstrap-t, Dirichlet weights",
            "sampled": f"{what}: Dirichlet weights over units with worst-case pseudo-unit",
        }["smooth" if top == "sampled" and bounds is None else top]

    def _draw(self) -> tuple[Floats, Floats]:
        low, high = (np.sort(draw) for draw in self._given())
        if self._top != "given":
            worst = self._bounds if self._top == "sampled" else None
            over = MeanInference(self.means, bounds=worst, seed=self._seed, draws=self._draws)
            if worst is None and len(self.units) < 2:
                low, high = np.full(self._draws, -math.inf), np.full(self._draws, math.inf)
            elif worst is not None or over.standard_error() > 0.0:
                # smooth models that agree exactly leave the interval of the given ones
                below, above = over.draws()
                low, high = np.minimum(low, below), np.maximum(high, above)
        # what lies beyond the logical range says nothing
        return np.maximum(low, self.limits[0]), np.minimum(high, self.limits[1])

    def _given(self) -> tuple[Floats, Floats]:
        """Draws of the mean over these leaves.

        Weights are Dirichlet(a, ..., a) within each leaf of c clusters, a = (c - 4)/c, whose variance is that of
        Student's t with c - 1 degrees of freedom, s^2/c (c - 1)/(c - 3); one pseudo-observation stands for what no
        leaf showed. As many examples as would weigh equally much as the heaviest one give its weight, Beta(1, count).
        """
        drawn = np.zeros(self._draws)
        heaviest, residuals = 0.0, []
        for index, (share, totals, sizes) in enumerate(self._leaves):
            columns, count = np.column_stack((totals, sizes)), sizes.size
            rng = generator(self._seed + 1_000_003 * (index + 1))
            rows = max(1, _BLOCK // count)
            for start in range(0, self._draws, rows):
                part = drawn[start : start + rows]
                # tiny leaves: a shape of nothing would leave one example alone
                weights = rng.standard_gamma(max(0.25, (count - 4) / count), (part.size, count)) + 1e-300
                seen = np.einsum("bg,gk->bk", weights, columns)
                part += share * seen[:, 0] / seen[:, 1]
            heaviest = max(heaviest, share * float(sizes.max() / sizes.sum()))
            residuals.append(totals / sizes - float(totals.sum() / sizes.sum()))
        ends = self._bounds or _beyond(self.value + np.concatenate(residuals))
        pseudo = generator(self._seed + 500_009).beta(1.0, 1.0 / heaviest, self._draws)
        return (1.0 - pseudo) * drawn + pseudo * ends[0], (1.0 - pseudo) * drawn + pseudo * ends[1]

    def standard_error(self) -> float:
        """Of the mean over top-level units; NaN for one unit, or where they are given."""
        if self._top == "given" or len(self.units) < 2:
            return math.nan
        return float(np.std(self.means, ddof=1)) / math.sqrt(len(self.units))

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        """More top-level units where these are sampled; more examples where they are given."""
        if self._top == "given":
            return super().needed(op, threshold)
        low, high = self.interval()
        half = self.value - low if self.value > threshold else high - self.value
        gap = abs(self.value - threshold)
        k = len(self.units)
        if gap <= 0.0 or not math.isfinite(half) or k * (half / gap) ** 2 > 10_000:
            return nothing_needed()
        wanted = max(k + 1, math.ceil(k * (half / gap) ** 2))
        return {
            "n": None,
            "controls": None,
            "text": f"about {wanted} units of the top level (models) in place of {k}",
        }


def _weights(leaves: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    """Each unit shares its weight equally among those below it."""
    weight = dict.fromkeys(leaves, 1.0)
    for depth in range(len(leaves[0])):
        below: dict[tuple[str, ...], set[str]] = {}
        for leaf in leaves:
            below.setdefault(leaf[:depth], set()).add(leaf[depth])
        for leaf in leaves:
            weight[leaf] /= len(below[leaf[:depth]])
    return weight


def _beyond(values: Floats) -> tuple[float, float]:
    """Where the pseudo-observation of values without bounds lies; see `circuittest.stats.mean`."""
    least, middle, most = float(values.min()), float(np.median(values)), float(values.max())
    if values.size < 2 or most - least <= 1e-12 * max(1.0, abs(least), abs(most)):
        return -math.inf, math.inf  # nothing is known of the spread, and no bound limits it
    return least - BEYOND * (middle - least), most + BEYOND * (most - middle)

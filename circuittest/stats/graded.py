"""Ratios of graded effects: log-probabilities and logit differences, which have no bounds.

*Graded necessity*: (m(S_C) - m(S)) / (m(empty) - m(floor)), m a log-probability or a logit difference, m(S_C) its
mean over all matched control sets; or the numerator alone. *Sufficiency* and other ratios of two means over the
same examples: (m(C) - m(floor)) / (m(full) - m(floor)).

The interval is the two-way bootstrap of `circuittest.stats.two_way`, a Fieller-type interval. Since no bound limits
what was not seen, the pseudo-example and the pseudo-set lie a quarter of the way beyond the extreme of the sample,
extreme + (extreme - median)/4, in the residual numerator - value * denominator and in the sets' means. That covers
smooth variation; a rare kind of set or example that is far outside everything seen it cannot cover. Where all
examples have the same ratio, the pseudo-example loses or gains one whole denominator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import DRAWS, Floats
from circuittest.stats.mean import BEYOND
from circuittest.stats.resampling import sample
from circuittest.stats.two_way import TwoWayInference, Unseen


class _Ratio(TwoWayInference):
    def _all_or_nothing(self) -> tuple[float, float]:
        """Residuals of the pseudo-example where all examples agree: it loses, or gains, one whole denominator."""
        most = float(np.abs(self._below / self._sizes).max())
        return -most, most


class GradedNecessityInference(_Ratio):
    """Inference on graded necessity, or on the damage beyond controls in the metric's own unit.

    Parameters
    ----------
    base, circuit:
        Metric [n] with nothing ablated and with the circuit ablated; more is better.
    controls:
        Metric [R × n] with each control set ablated.
    floor:
        Metric [n] at the floor (the whole universe ablated); zero when not given.
    normalise:
        False: the numerator alone, in the metric's unit; `base` and `floor` do not enter.
    population, enumerated, groups, seed, draws:
        As for `NecessityInference`.

    Raises
    ------
    UsageError
        Shapes that do not fit, values that are not finite, or mean(base - floor) that is not positive.
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
        floor: ArrayLike | None = None,
        normalise: bool = True,
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        below = sample(base, "the base metric")
        if floor is not None:
            ground = sample(floor, "the metric at the floor")
            if ground.shape != below.shape:
                raise UsageError(
                    f"{ground.size} values at the floor for {below.size} examples", "they are the same"
                )
            below = below - ground
        if not normalise:
            below = np.ones_like(below)
        super().__init__(
            below, circuit, controls, population, enumerated, groups, seed=seed, draws=draws, bounds=None
        )
        self.normalised = normalise
        scale = "ratio" if normalise else "difference"
        self.method = f"two-way Dirichlet weights with pseudo-observations, {scale}, {self.sampling()}"

    def _unseen(self) -> tuple[Unseen, Unseen] | None:
        residuals = self._controls.mean(axis=1) - self._ablated - self.value * self._below
        examples = _beyond(residuals / self._sizes) or (self._all_or_nothing() if self.normalised else None)
        if examples is None or (self.n_controls < 2 and not self.enumerated):
            return None
        means = self._controls.sum(axis=0) / self.n
        sets = _beyond(means) or (float(means[0]), float(means[0]))
        low, high = (Unseen(k * self._sizes, q, (0.0,)) for k, q in zip(sets, examples, strict=True))
        return low, high


class RatioInference(_Ratio):
    """Inference on mean(numerator) / mean(denominator), both measured on the same examples.

    Parameters
    ----------
    numerator, denominator:
        Per-example values [n]; the mean of the denominator is positive.
    groups, seed, draws:
        As for `MeanInference`.

    Raises
    ------
    UsageError
        Shapes that do not fit, values that are not finite, or a mean denominator that is not positive.
    """

    def __init__(
        self,
        numerator: ArrayLike,
        denominator: ArrayLike,
        groups: Sequence[object] | ArrayLike | None = None,
        *,
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        above = sample(numerator, "the numerator")
        super().__init__(
            denominator,
            np.zeros_like(above),
            above[None],
            None,
            True,
            groups,
            seed=seed,
            draws=draws,
            bounds=None,
        )
        self.method = "ratio, Dirichlet weights with pseudo-observation" + (
            "" if self.n_clusters == self.n else f", {self.n_clusters} clusters"
        )

    def _unseen(self) -> tuple[Unseen, Unseen]:
        residuals = self._controls[:, 0] - self.value * self._below
        examples = _beyond(residuals / self._sizes) or self._all_or_nothing()
        nothing = np.zeros_like(self._sizes)
        return Unseen(nothing, examples[0], (0.0,)), Unseen(nothing, examples[1], (0.0,))


def _beyond(values: Floats) -> tuple[float, float] | None:
    """A quarter of the way beyond the least and the greatest value; None where the values do not vary."""
    least, middle, most = float(values.min()), float(np.median(values)), float(values.max())
    if most - least <= 1e-12 * max(1.0, abs(least), abs(most)):
        return None
    return least - BEYOND * (middle - least), most + BEYOND * (most - middle)

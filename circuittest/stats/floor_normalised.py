"""Necessity as a share of what can be lost: (mean acc(C) - acc(S)) / (acc(empty) - floor).

The floor is a number (chance) or an outcome per example (the majority answer's, that of the emptied model). Everything
else is as in `circuittest.stats.necessity`: the two-way bootstrap with one more set and one more example in a bad
place. Since the floor may be right where the base is wrong, the pseudo-example takes every denominator that can be,
whichever moves the bound farther out; the pseudo-set of the upper bound leaves every example right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.inference import DRAWS
from circuittest.stats.resampling import sample
from circuittest.stats.two_way import TwoWayInference, Unseen


class FloorNormalisedInference(TwoWayInference):
    """Inference on chance-normalised necessity from outcome tables.

    Parameters
    ----------
    base, circuit, controls, population, enumerated, groups, seed, draws:
        As for `NecessityInference`.
    floor:
        A number in [0, 1), or outcomes [n] on the same examples.

    Raises
    ------
    UsageError
        As `NecessityInference` does, and where mean(base) is not above the floor.
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
        floor: float | ArrayLike,
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        right = sample(base, "the base outcome", (0.0, 1.0))
        constant = np.ndim(floor) == 0
        ground = np.full(right.shape, floor) if constant else sample(floor, "the floor's outcome", (0.0, 1.0))
        if ground.shape != right.shape:
            raise UsageError(
                f"{ground.size} outcomes at the floor for {right.size} examples", "they are the same"
            )
        level = float(ground[0])
        self._unseen_denominators = (-level, 1.0 - level) if constant else (-1.0, 0.0, 1.0)
        super().__init__(
            right - ground, circuit, controls, population, enumerated, groups,
            seed=seed, draws=draws, bounds=(-1.0, 1.0),
        )  # fmt: skip
        self.method = f"two-way Dirichlet weights with worst-case pseudo-observations, {self.sampling()}"

    def _unseen(self) -> tuple[Unseen, Unseen]:
        rising = tuple(d for d in self._unseen_denominators if d >= 0.0)
        nothing = np.zeros_like(self._sizes)
        return Unseen(nothing, -1.0, self._unseen_denominators), Unseen(self._sizes, 1.0, rising)

"""How much more one task loses than another when the same units are ablated, beyond the same control sets.

Estimand: (mean over sets of a(C) - a(S)) - (mean over sets of b(C) - b(S)), a and b the outcomes of two tasks, the sets
C the same for both. Examples of the two tasks are independent samples of one size, so that they may be paired in any
order: the differences c_ri = a_ri - b_ri and s_i = a_i - b_i go through the two-way bootstrap of
`circuittest.stats.two_way`, whose sets then are resampled for both tasks at once.

For accuracies the pseudo-set destroys one task and leaves the other whole, and the pseudo-example goes against the
bound in both tasks. Graded measures use `circuittest.stats.graded` on the differences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from circuittest.stats.inference import DRAWS
from circuittest.stats.two_way import TwoWayInference, Unseen


class SelectivityInference(TwoWayInference):
    """Inference on the difference between two tasks of the accuracy lost beyond controls.

    Parameters
    ----------
    circuit:
        Differences [n] in [-1, 1] of the two tasks' outcomes with the circuit ablated.
    controls:
        The same [R × n] with each control set ablated.
    population, enumerated, groups, seed, draws:
        As for `NecessityInference`.
    """

    def __init__(
        self,
        circuit: ArrayLike,
        controls: ArrayLike,
        population: int | None = None,
        enumerated: bool = False,
        groups: Sequence[object] | ArrayLike | None = None,
        *,
        seed: int = 0,
        draws: int = DRAWS,
    ) -> None:
        ones = np.ones(np.shape(circuit))
        bounds = (-1.0, 1.0)
        super().__init__(
            ones, circuit, controls, population, enumerated, groups, seed=seed, draws=draws, bounds=bounds
        )
        self.limits = (-2.0, 2.0)
        self.method = f"two-way Dirichlet weights with worst-case pseudo-observations, {self.sampling()}"

    def _unseen(self) -> tuple[Unseen, Unseen]:
        return Unseen(-self._sizes, -2.0, (1.0,)), Unseen(self._sizes, 2.0, (1.0,))

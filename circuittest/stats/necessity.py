"""Necessity beyond matched controls, with examples and control sets both treated as samples.

Estimand: theta = (mean over all matched sets C of acc(C) - acc(S)) / acc(empty), accuracies over the
population of examples.

Resampling alone cannot cover what was not drawn: where 5 % of the matched sets destroy the model, 40 draws
contain none of them in 13 % of all cases. So each bound of the two-way bootstrap (`circuittest.stats.two_way`)
gets one more set and one more example in a bad place (Learned-Miller & Thomas 2019, arXiv 1905.06208; see
`circuittest.stats.mean`):

    low  = (sum w_i v_r c_ri - sum w_i s_i - w_{n+1}) / (sum w_i b_i + d w_{n+1}), d = 0 or 1, whichever is lower
    high = (sum w_i v_r c_ri + v_{R+1} sum w_i b_i - sum w_i s_i + w_{n+1}) / (sum w_i b_i + w_{n+1})

that is, for the lower bound, on which support rests, the worst there can be: a set that makes every example wrong
(v_{R+1} times 0) and an example that every control breaks and the circuit does not. For the upper bound a set that
harms nothing and an example with base right, controls right, circuit wrong; this is the worst as long as no control
repairs what the base gets wrong. With identical controls the set dimension has the exact binomial bound for R of R.

The price is width: unless all sets are enumerated, the lower bound stays about 3.7/R of the controls' accuracy
below the value, and coverage is mostly above 98 % (benchmarks/statistics/coverage.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from circuittest.stats.inference import DRAWS
from circuittest.stats.proportion import proportion_interval
from circuittest.stats.two_way import TwoWayInference, Unseen


class NecessityInference(TwoWayInference):
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

    Attributes
    ----------
    acc_base, acc_circuit, acc_controls:
        Accuracies; those of the controls in the order given.

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
        super().__init__(
            base, circuit, controls, population, enumerated, groups, seed=seed, draws=draws, bounds=(0.0, 1.0)
        )
        self.acc_base, self.acc_circuit = self.mean_denominator, self.mean_circuit
        self.acc_controls = self.mean_controls
        self.method = f"two-way Dirichlet weights with worst-case pseudo-observations, {self.sampling()}"

    def _unseen(self) -> tuple[Unseen, Unseen]:
        return Unseen(np.zeros_like(self._below), -1.0, (0.0, 1.0)), Unseen(self._below, 1.0, (1.0,))

    def denominator_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Exact interval of acc(empty), the ratio's denominator (outcomes rounded to whole successes)."""
        return proportion_interval(round(self.acc_base * self.n), self.n, confidence)

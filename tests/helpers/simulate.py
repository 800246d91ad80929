"""Small simulations: how often an interval misses a known truth, on either side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from circuittest.stats import Inference
from circuittest.stats.resampling import generator

Rng = np.random.Generator
Draw = Callable[[Rng, int], Inference]


def misses(truth: float, draw: Draw, repetitions: int = 400) -> tuple[float, float]:
    """Shares of intervals wholly above and wholly below the truth: false verdicts on either side."""
    rng = generator(7)
    above = below = 0
    for seed in range(repetitions):
        low, high = draw(rng, seed).interval(0.95)
        above += low > truth + 1e-9
        below += high < truth - 1e-9
    return above / repetitions, below / repetitions


def covers(truth: float, draw: Draw, repetitions: int = 400, tail: float = 0.025) -> None:
    """At least 93 % coverage, and no side misses more often than its nominal tail (up to 2.6 standard errors)."""
    above, below = misses(truth, draw, repetitions)
    assert 1 - above - below >= 0.93
    assert max(above, below) <= tail + 2.6 * (tail * (1 - tail) / repetitions) ** 0.5

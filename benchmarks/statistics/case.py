"""One grid point of a simulation: a population with a known truth, and how to draw a sample from it and judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circuittest.stats import Inference

Array = NDArray[np.float64]
Rng = np.random.Generator
#: rng, seed of the resampling and number of resamples → inference
Draw = Callable[[Rng, int, int], Inference]


@dataclass(frozen=True)
class Case:
    """Which statistic, in words which population, the truth, and how to draw an inference."""

    statistic: str
    population: str
    truth: float
    draw: Draw
    #: No interval is valid for every unbounded distribution: coverage is required there, size is only shown.
    sized: bool = True
    #: What no interval of this kind can cover: shown, not required.
    required: bool = True

    @property
    def name(self) -> str:
        """Statistic and population."""
        return f"{self.statistic}: {self.population}"


def hits(rng: Rng, n: int, p: float | Array) -> Array:
    """n outcomes 0 and 1."""
    found: Array = (rng.random(n) < p).astype(np.float64)
    return found

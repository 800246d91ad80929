"""Do the intervals of claims about damage beyond controls cover?

    python benchmarks/statistics/damage.py            # about five minutes of one core
    python benchmarks/statistics/damage.py --quick    # about one minute

Bars as in coverage.py: coverage of at least 93 % at every grid point, a false verdict on either side in at most 2.5 %.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.statistics.case import Case, Rng, hits
from benchmarks.statistics.control_sets import selectivity_of, two_tasks
from benchmarks.statistics.coverage import show, simulate
from circuittest.stats import Inference, MeanInference
from circuittest.stats.crossing import CrossingInference
from circuittest.stats.floor_normalised import FloorNormalisedInference
from circuittest.stats.least import LeastInference
from circuittest.stats.selective import SelectivityInference
from circuittest.stats.stratified import StratifiedMeanInference

SIZES = (20, 60, 200)


def floor_normalised(n: int, catastrophic: float, each: bool) -> Case:
    """Chance-normalised necessity with a floor of 0.5, one number or an outcome per example."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        base, circuit = hits(rng, n, 0.95), hits(rng, n, 0.6)
        rates = np.where(rng.random(40) < catastrophic, 0.5, 0.93)[:, None]
        controls = (rng.random((40, n)) < rates) * 1.0
        floor = hits(rng, n, 0.5) if each else 0.5
        if float(np.mean(base - floor)) <= 0.1:  # no gate would let it through
            base = np.ones(n)
        return FloorNormalisedInference(base, circuit, controls, floor=floor, draws=draws, seed=seed)

    truth = ((1 - catastrophic) * 0.93 + catastrophic * 0.5 - 0.6) / 0.45
    kind = "per example" if each else "a number"
    return Case(
        "necessity above the floor",
        f"{100 * catastrophic:g} % catastrophic, floor {kind}, n = {n}",
        truth,
        draw,
    )


def selectivity(n: int, catastrophic: float) -> Case:
    """Damage on one task less that on another; half of the catastrophic sets spare the second."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        circuit, first, second = two_tasks(rng, n, catastrophic)
        return SelectivityInference(circuit, first - second, draws=draws, seed=seed)

    return Case(
        "selectivity", f"{100 * catastrophic:g} % catastrophic, n = {n}", selectivity_of(catastrophic), draw
    )


def least(n: int, rates: tuple[float, ...]) -> Case:
    """The smallest of several accuracies."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        return LeastInference([MeanInference(hits(rng, n, p), draws=draws, seed=seed) for p in rates])

    return Case("smallest of several", f"{rates}, n = {n}", min(rates), draw)


def stratified(n: int, rates: tuple[float, ...]) -> Case:
    """The mean over tasks of differences of accuracies."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        strata = [hits(rng, n * (1 + k), p) - hits(rng, n * (1 + k), 0.1) for k, p in enumerate(rates)]
        return StratifiedMeanInference(strata, bounds=(-1.0, 1.0), draws=draws, seed=seed)

    return Case("mean over tasks", f"{rates}, n = {n} and more", float(np.mean(rates)) - 0.1, draw)


CURVES = {
    "along the level": ([0.3, *[0.8] * 8, 1.0], 2),
    "just below it": ([0.3, 0.79999, 0.79999, 0.95, 1.0], 4),
    "back below it": ([0.9, 0.82, 0.78, 0.9, 1.0], 4),
}


def crossing(n: int, name: str, skewed: bool) -> Case:
    """From which size on a damage curve stays above 0.8."""
    curve, truth = CURVES[name]

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        shape = (len(curve), n)
        reach = 3 + rng.normal(size=n)
        damage = np.array(curve)[:, None] * reach
        damage += rng.exponential(size=shape) - 1 if skewed else rng.normal(size=shape)
        damage[-1] = reach
        return CrossingInference(damage, reach, range(1, len(curve) + 1), level=0.8, seed=seed)

    return Case("units to a level", f"{name}, {'skewed' if skewed else 'normal'}, n = {n}", truth, draw)


def damage_cases() -> Iterator[Case]:
    """The whole grid."""
    for n, catastrophic, each in product(SIZES, (0.0, 0.05), (False, True)):
        yield floor_normalised(n, catastrophic, each)
    for n, catastrophic in product(SIZES, (0.0, 0.05)):
        yield selectivity(n, catastrophic)
    for n, rates in product(SIZES, ((0.5,) * 4, (0.95, 0.97, 1.0), (0.1, 0.9))):
        yield least(n, rates)
        yield stratified(n, rates)
    for n, name, skewed in product((40, 200), CURVES, (False, True)):
        yield crossing(n, name, skewed)


def main() -> int:
    """Run the grid; 1 when a bar is missed."""
    repetitions = 150 if "--quick" in sys.argv[1:] else 1000
    start = time.monotonic()
    rows = [simulate(case, repetitions) for case in damage_cases()]
    show(rows, repetitions, time.monotonic() - start)
    return int(any(not row.ok for row in rows))


if __name__ == "__main__":
    sys.exit(main())

"""Do the intervals of claims about a kept circuit cover, and are their tests wrong as rarely as they say?

    python benchmarks/statistics/kept_circuits.py            # about ten minutes of one core
    python benchmarks/statistics/kept_circuits.py --quick    # about one minute

Bars as in coverage.py: coverage of at least 93 % at every grid point, a false verdict on either side in at most 2.5 %.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.statistics.case import Case, Rng, hits
from benchmarks.statistics.coverage import show, simulate
from circuittest.stats import Inference, MeanInference, RatioInference
from circuittest.stats.absolute import AbsoluteInference
from circuittest.stats.bounded_ratio import BoundedRatioInference
from circuittest.stats.concordance import ConcordanceInference
from circuittest.stats.exceedance import ExceedanceInference
from circuittest.stats.share import ShareInference
from circuittest.stats.worst import WorstInference

SIZES = (20, 60, 200)


def sufficiency_of_accuracy(n: int, full: float, empty: float, kept: float, repaired: float) -> Case:
    """P(right): of the model; given it right, without the universe; of the circuit, given the model right or wrong."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        right = hits(rng, n, full)
        right[0] = 1.0  # else the ratio may be undefined
        low = right * hits(rng, n, empty)
        low[0] = 0.0
        only = (rng.random(n) < np.where(right > 0, kept, repaired)) * 1.0
        return BoundedRatioInference(only - low, right - low, between=True, draws=draws, seed=seed)

    truth = (full * kept + (1 - full) * repaired - full * empty) / (full - full * empty)
    return Case("sufficiency, accuracy", f"{full}/{empty}/{kept}/{repaired}, n = {n}", truth, draw)


def sufficiency_of_logits(n: int, truth: float) -> Case:
    """The model's gain differs from example to example, and the circuit's share of it too."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        gain = rng.gamma(4.0, 1.0, n)
        return RatioInference(truth * gain + rng.normal(0, 1.0, n), gain, draws=draws, seed=seed)

    return Case("sufficiency, logits", f"{truth}, n = {n}", truth, draw, sized=False)


def wins(n: int, theta: float, tied: float) -> Case:
    """Equivalence: share of wins less one half, in absolute value, with some examples tied."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        win = 0.5 + theta / (1 - tied)
        values = np.where(rng.random(n) < win, 0.5, -0.5) * (rng.random(n) >= tied)
        return AbsoluteInference(MeanInference(values, bounds=(-0.5, 0.5), draws=draws, seed=seed))

    return Case("equivalence, wins", f"{theta}, {100 * tied:g} % tied, n = {n}", abs(theta), draw)


def worst_of(n: int, effects: tuple[float, ...], name: str) -> Case:
    """Completeness: the largest of several shares, the lead found on as many other examples."""
    centres = np.array(effects)

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        gain = rng.gamma(4.0, 0.25, (2, 1, n))
        noise = 0.6 * rng.normal(size=(2, 1, n)) + 0.8 * rng.normal(size=(2, centres.size, n))
        search, test = centres[:, None] * gain + 0.3 * noise
        lead = int(np.argmax(np.abs(search.mean(axis=1))))
        family = [AbsoluteInference(RatioInference(row, gain[1, 0], draws=draws, seed=seed)) for row in test]
        return WorstInference(family, lead)

    return Case("completeness, worst", f"{name}, n = {n}", float(np.abs(centres).max()), draw, sized=False)


def exceeding(n: int, count: int, share: float, enumerated: bool) -> Case:
    """Minimality, one unit: the share of references whose mean is below its own."""
    centres = np.linspace(0.0, 2.0, count)

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        item = rng.exponential(size=n)
        if enumerated:
            means, own = centres, 2.0 * (share * count - 0.5) / (count - 1)
        else:
            means, own = rng.uniform(0.0, 2.0, count), 2.0 * share
        noise = 0.3 * rng.normal(size=(count + 1, n))
        references = means[:, None] * item + noise[1:]
        population = count if enumerated else None
        return ExceedanceInference(own * item + noise[0], references, population, draws=draws, seed=seed)

    name = f"{'all' if enumerated else 'some'} {count} references, {share} below, n = {n}"
    return Case("minimality, one unit", name, share, draw)


def exceeding_seldom(n: int) -> Case:
    """Minimality, one unit whose mean is that of all its references, although most examples show it above."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        return ExceedanceInference(1 - rng.exponential(size=n), np.zeros((20, n)), 20, draws=draws, seed=seed)

    return Case("minimality, one unit", f"skewed, n = {n}", 0.0, draw, sized=False)


def earning(n: int, earners: int, idle: int) -> Case:
    """Minimality: the share of units above the 90 % quantile of 40 references, all of which are there."""
    references = np.linspace(0.0, 2.0, 40)
    centres = np.array([2.2] * earners + [1.7] * idle)  # above 100 % and 85 % of them

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        item = rng.exponential(size=n)
        table = references[:, None] * item + 0.3 * rng.normal(size=(40, n))
        tests = [
            ExceedanceInference(own * item + 0.3 * rng.normal(size=n), table, 40, draws=draws, seed=seed)
            for own in centres
        ]
        return ShareInference(
            [test.value >= 0.9 for test in tests],
            [test.p_value(">=", 0.9) for test in tests],
            [test.p_value("<", 0.9) for test in tests],
            [str(i) for i in range(len(tests))],
        )

    truth = earners / (earners + idle)
    return Case("minimality, share", f"{earners} of {earners + idle} units, n = {n}", truth, draw)


def concordance(n: int, rho: float) -> Case:
    """Independence: Kendall's tau of two normal scores."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        x, y = rng.normal(size=(2, n))
        return ConcordanceInference(x, rho * x + math.sqrt(1 - rho**2) * y, draws=draws, seed=seed)

    return Case("independence, tau", f"normal, rho = {rho}, n = {n}", 2 / math.pi * math.asin(rho), draw)


def concordance_of_rare(n: int, share: float) -> Case:
    """Independence where few examples differ, in both scores alike."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        x = hits(rng, n, share)
        return ConcordanceInference(x, x, draws=draws, seed=seed)

    return Case("independence, tau", f"{100 * share:g} % differ, n = {n}", 2 * share * (1 - share), draw)


def kept_cases() -> Iterator[Case]:
    """The whole grid."""
    outcomes = (
        (0.98, 0.0, 0.98, 0.0), (0.98, 0.0, 0.5, 0.0), (0.7, 0.1, 0.95, 0.3), (0.9, 0.3, 0.9, 0.5),
        (1.0, 0.0, 0.99, 0.0), (1.0, 0.0, 0.01, 0.0), (0.9, 0.0, 1.0, 0.1),
    )  # fmt: skip
    for n, rates in product(SIZES, outcomes):
        yield sufficiency_of_accuracy(n, *rates)
    for n, truth in product(SIZES, (-0.3, 0.0, 0.9, 1.0, 1.5)):
        yield sufficiency_of_logits(n, truth)
    for n, theta, tied in product(SIZES, (0.0, 0.03, -0.1, 0.3), (0.0, 0.3)):
        yield wins(n, theta, tied)
    families = (((0.0,) * 8, "all zero"), ((0.0,) * 7 + (-0.5,), "one of eight"), ((0.3,) * 8, "all alike"))
    for n, (effects, name) in product(SIZES, families):
        yield worst_of(n, effects, name)
    for n, share, enumerated in product(SIZES, (0.5, 0.85, 0.95), (True, False)):
        yield exceeding(n, 40, share, enumerated)
    for n in SIZES:
        yield exceeding_seldom(n)
    for n, (earners, idle) in product(SIZES, ((0, 5), (3, 2), (5, 0))):
        yield earning(n, earners, idle)
    for n, rho in product(SIZES, (0.0, 0.5, 0.95)):
        yield concordance(n, rho)
    for n, share in product(SIZES, (0.02, 0.1)):
        yield concordance_of_rare(n, share)


def main() -> int:
    """Run the grid; 1 when a bar is missed."""
    repetitions = 150 if "--quick" in sys.argv[1:] else 1000
    start = time.monotonic()
    rows = [simulate(case, repetitions) for case in kept_cases()]
    show(rows, repetitions, time.monotonic() - start)
    return int(any(not row.ok for row in rows))


if __name__ == "__main__":
    sys.exit(main())

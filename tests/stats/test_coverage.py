"""Small simulations of coverage and of false verdicts; benchmarks/statistics/coverage.py runs the full grid.

Seeds are fixed, so that a failure is a change of the method, not bad luck.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from circuittest.stats import (
    GradedNecessityInference,
    Inference,
    MeanInference,
    NecessityInference,
    PairedDifferenceInference,
    ProportionInference,
    RatioInference,
    rank_p,
)
from circuittest.stats.resampling import generator

Rng = np.random.Generator
REPETITIONS = 400
DRAWS = 399


def misses(
    truth: float, draw: Callable[[Rng, int], Inference], repetitions: int = REPETITIONS
) -> tuple[float, float]:
    """Shares of intervals wholly above and wholly below the truth: false verdicts on either side."""
    rng = generator(7)
    above = below = 0
    for seed in range(repetitions):
        low, high = draw(rng, seed).interval(0.95)
        above += low > truth + 1e-9
        below += high < truth - 1e-9
    return above / repetitions, below / repetitions


def covers(truth: float, draw: Callable[[Rng, int], Inference], tail: float = 0.025) -> None:
    above, below = misses(truth, draw)
    assert 1 - above - below >= 0.93
    # the nominal tail and 2.6 standard errors of the simulation
    assert max(above, below) <= tail + 2.6 * (tail * (1 - tail) / REPETITIONS) ** 0.5


@pytest.mark.parametrize("p", [0.02, 0.5, 0.95, 0.99])
@pytest.mark.parametrize("n", [20, 50])
def test_means_of_zeros_and_ones(p: float, n: int) -> None:
    covers(p, lambda rng, seed: MeanInference((rng.random(n) < p) * 1.0, draws=DRAWS, seed=seed))


def test_means_with_rare_failures_that_the_sample_may_not_hold() -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        values = np.where(rng.random(20) < 0.05, 0.0, rng.uniform(0.89, 0.91, 20))
        return MeanInference(values, draws=DRAWS, seed=seed)

    covers(0.95 * 0.9, draw)


@pytest.mark.parametrize(("mean", "icc"), [(0.5, 0.1), (0.95, 0.3)])
def test_clustered_means(mean: float, icc: float) -> None:
    spread = (1 - icc) / icc

    def draw(rng: Rng, seed: int) -> Inference:
        labels = np.repeat(np.arange(15), rng.integers(2, 9, 15))
        rates = rng.beta(mean * spread, (1 - mean) * spread, 15)[labels]
        return MeanInference((rng.random(labels.size) < rates) * 1.0, labels, draws=DRAWS, seed=seed)

    covers(mean, draw)


@pytest.mark.parametrize("n", [20, 50])
def test_unbounded_means(n: int) -> None:
    covers(0.0, lambda rng, seed: MeanInference(rng.normal(size=n), bounds=None, draws=DRAWS, seed=seed))
    # skewed tails cannot be held to their nominal size by any method
    skewed = misses(
        1.0, lambda rng, seed: MeanInference(rng.exponential(size=n), bounds=None, draws=DRAWS, seed=seed)
    )
    assert sum(skewed) <= 0.07


@pytest.mark.parametrize("n", [20, 50, 200])
def test_exact_proportions_by_enumeration(n: int) -> None:
    from scipy.stats import binom

    bounds = np.array([ProportionInference(k, n).interval() for k in range(n + 1)])
    for p in np.concatenate(([0.001, 0.004, 0.0085], np.linspace(0.01, 0.99, 50), [0.999])):
        mass = binom.pmf(np.arange(n + 1), n, p)
        assert mass[bounds[:, 0] > p].sum() <= 0.025 + 1e-9
        assert mass[bounds[:, 1] < p].sum() <= 0.025 + 1e-9


@pytest.mark.parametrize("shares", [(0.9, 0.05, 0.05, 0.0), (0.01, 0.98, 0.0, 0.01), (0.3, 0.65, 0.05, 0.0)])
def test_paired_differences(shares: tuple[float, ...]) -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        counts = rng.multinomial(50, shares)
        first, second = np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)
        return PairedDifferenceInference(first, second, draws=DRAWS, seed=seed)

    covers(shares[1] - shares[2], draw)


@pytest.mark.parametrize(
    ("base", "circuit", "controls", "catastrophic", "spread"),
    [
        (1.0, 0.0, 1.0, 0.05, 0.0),
        (0.98, 0.05, 0.98, 0.05, 0.0),
        (0.98, 0.5, 0.98, 0.1, 0.0),
        (0.99, 0.01, 0.99, 0.0, 0.0),
        (0.97, 0.2, 0.6, 0.0, 2.0),
        (0.97, 0.931, 0.98, 0.05, 0.0),
    ],
)
@pytest.mark.parametrize("n", [20, 60])
def test_necessity(
    base: float, circuit: float, controls: float, catastrophic: float, spread: float, n: int
) -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        rates = rng.beta(controls * spread, (1 - controls) * spread, 40) if spread else np.full(40, controls)
        rates = np.where(rng.random(40) < catastrophic, 0.0, rates)
        right = (rng.random(n) < base) * 1.0
        ablated = right * (rng.random(n) < circuit)
        return NecessityInference(
            right, ablated, right * (rng.random(n) < rates[:, None]), draws=DRAWS, seed=seed
        )

    covers((1 - catastrophic) * controls - circuit, draw)


@pytest.mark.parametrize(("total", "bad"), [(45, 2), (100, 5), (40, 2)])
def test_necessity_with_few_sets(total: int, bad: int) -> None:
    population = np.where(np.arange(total) < bad, 0.0, 0.98)

    def draw(rng: Rng, seed: int) -> Inference:
        rates = rng.choice(population, 40, replace=False)
        right = (rng.random(60) < 0.98) * 1.0
        ablated = right * (rng.random(60) < 0.1)
        table = right * (rng.random(60) < rates[:, None])
        return NecessityInference(right, ablated, table, total, draws=DRAWS, seed=seed)

    covers(float(population.mean()) - 0.1, draw)


@pytest.mark.parametrize(("n", "share"), [(20, 0.1), (20, 0.16), (100, 0.02), (100, 0.035)])
def test_necessity_where_some_examples_go_the_other_way(n: int, share: float) -> None:
    # every control breaks these examples and the circuit does not; the sample may hold none of them
    def draw(rng: Rng, seed: int) -> Inference:
        other = (rng.random(n) < share) * 1.0
        return NecessityInference(np.ones(n), other, 1 - other[None], enumerated=True, draws=DRAWS, seed=seed)

    covers(1 - 2 * share, draw)


def test_graded_necessity_and_ratios() -> None:
    def graded(rng: Rng, seed: int) -> Inference:
        base = 3 + rng.normal(size=40)
        circuit = base - 2 + rng.normal(size=40)
        controls = base - rng.gamma(1.0, 0.5, (30, 1)) + 0.3 * rng.normal(size=(30, 40))
        return GradedNecessityInference(base, circuit, controls, draws=DRAWS, seed=seed)

    def ratio(rng: Rng, seed: int) -> Inference:
        full = 2 + rng.exponential(size=40)
        return RatioInference(0.7 * full + rng.normal(size=40), full, draws=DRAWS, seed=seed)

    covers(0.5, graded)
    covers(0.7, ratio)


def test_rank_p_is_a_valid_test() -> None:
    rng = generator(0)
    p = np.array([rank_p(values[0], list(values[1:])).p for values in rng.integers(0, 12, (2000, 21)) * 1.0])
    for level in (0.05, 0.1, 0.25):
        assert (p <= level).mean() <= level + 2.6 * (level * (1 - level) / 2000) ** 0.5

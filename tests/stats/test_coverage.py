"""Small simulations of coverage and of false verdicts; benchmarks/statistics/coverage.py runs the full grid.

Seeds are fixed, so that a failure is a change of the method, not bad luck.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.statistics.case import Case
from benchmarks.statistics.control_sets import (
    POPULATIONS,
    graded,
    necessity,
    necessity_of_contrary_examples,
    necessity_of_few_sets,
    necessity_of_templates,
)
from benchmarks.statistics.in_looks import (
    few_sets_in_looks,
    graded_in_looks,
    necessity_in_looks,
    selective_in_looks,
    stopped,
)
from benchmarks.statistics.samples import (
    TABLES,
    clustered,
    given_models,
    means,
    models,
    paired,
    rare_models,
    ratio,
    unbounded,
    unbounded_clustered,
)
from circuittest.stats import ProportionInference, rank_p
from circuittest.stats.resampling import generator

REPETITIONS = 200
DRAWS = 399
TAIL = 0.025


def grid() -> list[Case]:
    cases = [*means(20), *clustered(10)]
    cases += [paired(50, shares) for shares in TABLES[1::3]]
    cases += [unbounded(n, shape) for n, shape in product((20, 50), ("normal", "exponential"))]
    cases += [unbounded_clustered(10), ratio(50, "normal"), graded(50, 40, 4.0)]
    cases += [necessity(20, 40, sets) for sets in POPULATIONS[::3]]
    cases += [necessity_of_few_sets(45, 2, 40, 50), necessity_of_templates(10, 0.5, 0.0)]
    cases += [necessity_of_contrary_examples(n, share) for n, share in ((20, 0.16), (200, 0.018))]
    cases += [necessity_in_looks(50, sets, 0.0) for sets in POPULATIONS[1:12:5]]
    cases += [necessity_in_looks(50, POPULATIONS[1], -0.3), few_sets_in_looks(45, 2, -0.3)]
    cases += [graded_in_looks(50, 4.0, 0.0), selective_in_looks(50, 0.05, 0.0)]
    cases += [models(5, (8.0, 2.0), "sampled"), rare_models(5, "sampled"), given_models((0.5, 0.9, 0.99), 10)]
    return cases


@pytest.mark.parametrize("case", grid(), ids=lambda case: case.name)
def test_intervals_cover(case: Case) -> None:
    rng, above, below = generator(7), 0, 0
    for seed in range(REPETITIONS):
        low, high = case.draw(rng, seed, DRAWS).interval(0.95)
        above += low > case.truth + 1e-9
        below += high < case.truth - 1e-9
    assert 1 - (above + below) / REPETITIONS >= 0.93
    if case.sized:  # skewed tails cannot be held to their nominal size by any method
        # the nominal tail and 2.6 standard errors of the simulation
        assert max(above, below) / REPETITIONS <= TAIL + 2.6 * (TAIL * (1 - TAIL) / REPETITIONS) ** 0.5


@pytest.mark.parametrize("sets", POPULATIONS[1:6:2], ids=lambda sets: sets.name)
def test_looks_save_controls_where_the_claim_is_clear(sets) -> None:
    rng, used = generator(8), []
    for seed in range(20):
        looked = stopped(sets.outcomes(rng, 100, sets.rates(rng, 40)), sets.truth - 0.6, seed, DRAWS)
        assert looked.inference.interval()[0] > sets.truth - 0.6
        used.append(len(looked.sets))
    assert np.mean(used) <= 20


@pytest.mark.parametrize("n", [20, 50, 200])
def test_exact_proportions_by_enumeration(n: int) -> None:
    from scipy.stats import binom

    bounds = np.array([ProportionInference(k, n).interval() for k in range(n + 1)])
    for p in np.concatenate(([0.001, 0.004, 0.0085], np.linspace(0.01, 0.99, 50), [0.999])):
        mass = binom.pmf(np.arange(n + 1), n, p)
        assert mass[bounds[:, 0] > p].sum() <= 0.025 + 1e-9
        assert mass[bounds[:, 1] < p].sum() <= 0.025 + 1e-9


def test_rank_p_is_a_valid_test() -> None:
    rng = generator(0)
    p = np.array([rank_p(values[0], list(values[1:])).p for values in rng.integers(0, 12, (2000, 21)) * 1.0])
    for level in (0.05, 0.1, 0.25):
        assert (p <= level).mean() <= level + 2.6 * (level * (1 - level) / 2000) ** 0.5

"""The smallest of several means, and the mean over given strata: known values, corrections, and simulated errors."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.stats import Inference, MeanInference
from circuittest.stats.least import LeastInference
from circuittest.stats.resampling import generator
from circuittest.stats.stratified import StratifiedMeanInference
from tests.helpers.simulate import Rng, covers

DRAWS = 399


def mean(p: float, n: int = 40) -> MeanInference:
    values = np.zeros(n)
    values[: round(p * n)] = 1
    return MeanInference(values)


def test_the_smallest_needs_every_lower_bound_and_one_corrected_upper_bound() -> None:
    family = [mean(0.9), mean(0.3), mean(0.5)]
    found = LeastInference(family)
    assert found.value == 0.3
    assert found.interval()[0] == family[1].interval()[0]
    assert found.interval()[1] == family[1].interval(1 - 0.05 / 3)[1] > family[1].interval()[1]
    assert found.p_value(">=", 0.2) == family[1].p_value(">=", 0.2)
    assert found.p_value("<=", 0.5) == min(1.0, 3 * family[1].p_value("<=", 0.5))
    assert isinstance(found, Inference)
    with pytest.raises(UsageError):
        LeastInference([])


def test_one_member_is_itself() -> None:
    one = mean(0.4)
    found = LeastInference([one])
    assert found.interval() == one.interval()
    assert found.p_value("<", 0.6) == one.p_value("<", 0.6)
    assert found.needed(">=", 0.35) == one.needed(">=", 0.35)


def test_strata_weigh_the_same_whatever_their_sizes() -> None:
    found = StratifiedMeanInference([[0.0] * 10, [1.0] * 90], bounds=(-1.0, 1.0))
    assert found.value == 0.5
    assert found.n == 100
    low, high = found.interval()
    assert -1 < low < 0.5 < high < 1
    # one stratum is the ordinary mean
    alone = StratifiedMeanInference([[0.0, 1.0, 1.0] * 9], bounds=(-1.0, 1.0))
    assert alone.interval() == MeanInference([0.0, 1.0, 1.0] * 9, bounds=(-1.0, 1.0)).interval()
    with pytest.raises(UsageError):
        StratifiedMeanInference([], bounds=(0.0, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("rates", [(0.5, 0.5, 0.5, 0.5), (0.95, 0.97, 1.0)])
def test_the_smallest_of_equal_means_is_covered(rates: tuple[float, ...]) -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        return LeastInference(
            [MeanInference((rng.random(30) < p) * 1.0, draws=DRAWS, seed=seed) for p in rates]
        )

    covers(min(rates), draw)


@pytest.mark.slow
def test_the_mean_over_strata_is_covered() -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        strata = [
            (rng.random(n) < p) * 1.0 - (rng.random(n) < 0.1) for n, p in ((20, 0.9), (40, 0.3), (30, 0.05))
        ]
        return StratifiedMeanInference(strata, bounds=(-1.0, 1.0), draws=DRAWS, seed=seed)

    covers((0.9 + 0.3 + 0.05) / 3 - 0.1, draw)


def test_independent_strata_are_drawn_independently() -> None:
    values = generator(0).random(50)
    one = StratifiedMeanInference([values], bounds=(0.0, 1.0)).interval()
    four = StratifiedMeanInference([values] * 4, bounds=(0.0, 1.0)).interval()
    assert (four[1] - four[0]) / (one[1] - one[0]) == pytest.approx(0.5, abs=0.08)

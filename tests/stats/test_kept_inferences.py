"""Bounds of absolute values, worst cases, shares of units, exceedance and concordance: algebra, errors, simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, kendalltau

from circuittest.errors import UsageError
from circuittest.stats import Inference, MeanInference
from circuittest.stats.absolute import AbsoluteInference
from circuittest.stats.bounded_ratio import BoundedRatioInference
from circuittest.stats.concordance import ConcordanceInference
from circuittest.stats.exceedance import ExceedanceInference
from circuittest.stats.hsic import hsic_test
from circuittest.stats.resampling import generator
from circuittest.stats.share import ShareInference
from circuittest.stats.worst import WorstInference

Rng = np.random.Generator
DRAWS, REPETITIONS = 399, 300
#: The nominal tail and 2.6 standard errors of the simulation.
TAIL = 0.025 + 2.6 * (0.025 * 0.975 / REPETITIONS) ** 0.5


def misses(truth: float, draw: Callable[[Rng, int], Inference]) -> tuple[float, float]:
    """Shares of intervals wholly above and wholly below the truth."""
    rng = generator(11)
    above = below = 0
    for seed in range(REPETITIONS):
        low, high = draw(rng, seed).interval(0.95)
        above += low > truth + 1e-9
        below += high < truth - 1e-9
    return above / REPETITIONS, below / REPETITIONS


def mean(values: np.ndarray, seed: int = 0) -> MeanInference:
    return MeanInference(values, bounds=None, draws=DRAWS, seed=seed)


# Absolute values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [-0.6, -0.02, 0.0, 0.3, 2.0])
def test_absolute_value_and_its_p_values_agree_with_its_interval(shift: float) -> None:
    found = AbsoluteInference(mean(generator(0).normal(shift, 1.0, 60)))
    low, high = found.interval(0.95)
    assert 0 <= low <= found.value <= high
    for threshold in (low - 1e-6, low + 1e-6, high - 1e-6, high + 1e-6, 0.0, 5.0):
        assert (found.p_value(">=", threshold) <= 0.025) == (threshold <= low)
        assert (found.p_value("<=", threshold) <= 0.025) == (threshold >= high)
    mirrored = AbsoluteInference(mean(-generator(0).normal(shift, 1.0, 60)))
    assert mirrored.value == found.value


def test_absolute_value_at_zero_is_a_two_sided_test() -> None:
    signed = mean(generator(3).normal(0.3, 1.0, 60))
    one_sided = signed.p_value(">", 0.0)
    assert AbsoluteInference(signed).p_value(">", 0.0) == pytest.approx(2 * one_sided)
    assert AbsoluteInference(signed).p_value(">=", 0.0) == 0.0
    assert AbsoluteInference(signed).p_value("<", 0.0) == 1.0
    assert AbsoluteInference(signed).p_value("<=", -1.0) == 1.0


@pytest.mark.parametrize("theta", [0.0, 0.05, -0.1, 0.25])
def test_share_of_wins_against_one_half(theta: float) -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        wins = np.where(rng.random(60) < 0.5 + theta, 0.5, -0.5)
        return AbsoluteInference(MeanInference(wins, bounds=(-0.5, 0.5), draws=DRAWS, seed=seed))

    above, below = misses(abs(theta), draw)
    assert max(above, below) <= TAIL


def test_the_published_test_of_equivalence_is_the_refuting_side() -> None:
    """Shi et al. sum binomial tails on both sides at 1/2 + ε. (Their code puts a mean difference of scores for the share.)"""
    n, epsilon = 60, 0.1
    for wins in (24, 30, 40, 44, 50):
        values = np.repeat([0.5, -0.5], [wins, n - wins])
        ours = AbsoluteInference(MeanInference(values, bounds=(-0.5, 0.5))).p_value(">", epsilon)
        k = np.arange(n + 1)
        theirs = float(
            binom.pmf(k, n, 0.5 + epsilon)[np.abs(k / n - 0.5) >= abs(wins / n - 0.5) - 1e-12].sum()
        )
        # the pseudo-observation makes ours a little larger, as the exact interval is
        assert theirs - 0.01 <= ours <= theirs + 0.12 or (theirs > 0.5 and ours > 0.5)


# Ratios of accuracies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("full", "empty", "kept", "repaired"),
    [(0.98, 0.0, 0.98, 0.0), (0.7, 0.1, 0.95, 0.3), (0.9, 0.3, 0.9, 0.5), (1.0, 0.0, 0.01, 0.0)],
)
def test_shares_of_accuracies_cover_at_twenty_examples(
    full: float, empty: float, kept: float, repaired: float
) -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        right = (rng.random(20) < full) * 1.0
        right[0] = 1.0  # else the ratio is undefined
        low = right * (rng.random(20) < empty)
        low[0] = 0.0
        only = (rng.random(20) < np.where(right > 0, kept, repaired)) * 1.0
        return BoundedRatioInference(only - low, right - low, between=True, draws=DRAWS, seed=seed)

    truth = (full * kept + (1 - full) * repaired - full * empty) / (full - full * empty)
    above, below = misses(truth, draw)
    assert max(above, below) <= TAIL


def test_differences_of_accuracies_may_be_any() -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        difference = rng.choice([-1.0, 0.0, 1.0], 30, p=[0.05, 0.94, 0.01])
        return BoundedRatioInference(difference, np.ones(30), draws=DRAWS, seed=seed)

    above, below = misses(-0.04, draw)
    assert max(above, below) <= TAIL
    for bad in (([2.0, 0.0], [1.0, 1.0]), ([1.0, 0.0], [-1.0, 0.0])):
        with pytest.raises(UsageError):
            BoundedRatioInference(*bad)
    assert BoundedRatioInference([2.0, 0.0], [1.0, 1.0], width=2.0).value == 1.0


# Worst cases ---------------------------------------------------------------------------------------------------------


def test_worst_is_the_lead_with_the_family_s_upper_end() -> None:
    family = [mean(generator(i).normal(0.1 * i, 1.0, 50)) for i in range(4)]
    found = WorstInference(family, 2)
    low, high = found.interval(0.95)
    assert low == family[2].interval(0.95)[0]
    assert high == max(one.interval(0.95)[1] for one in family)
    assert found.p_value(">=", 0.1) == family[2].p_value(">=", 0.1)
    assert found.p_value("<=", 0.9) == max(one.p_value("<=", 0.9) for one in family)
    assert "text" in found.needed("<=", 0.5)
    with pytest.raises(UsageError):
        WorstInference(family, 4)


@pytest.mark.parametrize("effects", [(0.0,) * 4, (0.0, 0.0, 0.0, 0.5)])
def test_worst_covers(effects: tuple[float, ...]) -> None:
    centres = np.array(effects)

    def draw(rng: Rng, seed: int) -> Inference:
        shared = rng.normal(size=(2, 1, 40))
        search, test = centres[:, None] + 0.6 * shared + 0.8 * rng.normal(size=(2, len(centres), 40))
        lead = int(np.argmax(np.abs(search.mean(axis=1))))
        return WorstInference([AbsoluteInference(mean(row, seed)) for row in test], lead)

    above, below = misses(float(np.abs(centres).max()), draw)
    assert max(above, below) <= TAIL


# Shares of units -----------------------------------------------------------------------------------------------------


def test_share_counts_what_is_certain() -> None:
    found = ShareInference(
        [True, True, False, True], [1e-4, 0.005, 0.8, 0.2], [1.0, 1.0, 0.001, 0.8], list("abcd")
    )
    assert found.value == 0.75
    assert found.interval(0.95) == (0.5, 0.75)
    assert found.p_value(">=", 0.5) == pytest.approx(3 * 0.005)
    assert found.p_value(">=", 1.0) == 0.8
    assert found.p_value(">", 1.0) == 1.0
    assert found.p_value("<", 1.0) == pytest.approx(4 * 0.001)
    assert found.p_value("<=", 1.0) == 0.0
    assert found.p_value(">=", 0.0) == 0.0
    assert found.needed(">=", 1.0)["text"] == "more examples or controls for d"
    with pytest.raises(UsageError):
        ShareInference([], [], [], [])


def test_false_shares_are_rare_whatever_the_dependence() -> None:
    rng = generator(4)
    false = 0
    for _ in range(2000):
        shared = rng.normal()
        p = [0.5 * math.erfc((0.9 * shared + 0.436 * z) / math.sqrt(2)) for z in rng.normal(size=6)]
        found = ShareInference([x < 0.5 for x in p], p, [1 - x for x in p], list("abcdef"))
        false += found.interval(0.95)[0] > 0  # no unit has the property
    assert false / 2000 <= 0.025 + 2.6 * (0.025 * 0.975 / 2000) ** 0.5


# Exceedance ----------------------------------------------------------------------------------------------------------


def test_exceedance_counts_references() -> None:
    references = np.array([[0.0] * 20, [1.0] * 20, [2.0] * 20, [3.0] * 20])
    found = ExceedanceInference(np.full(20, 2.0), references, 4)
    assert found.value == 0.5  # a tie is not exceeded
    assert found.interval() == (0.5, 0.5)
    assert ExceedanceInference(np.full(20, 0.0), np.zeros((30, 20)), 30).value == 0.0
    sampled = ExceedanceInference(np.full(20, 5.0), np.zeros((30, 20)))
    assert sampled.value == 1.0
    # the exact binomial bound for 30 of 30, one-sided at 97.5 %
    assert sampled.interval()[0] == pytest.approx(0.025 ** (1 / 30), abs=0.01)
    finite = ExceedanceInference(np.full(20, 5.0), np.zeros((30, 20)), 40)
    assert finite.interval()[0] > sampled.interval()[0]


def test_exceedance_of_clusters() -> None:
    rng = generator(2)
    own, references = 0.3 + rng.normal(size=12), 0.5 * rng.normal(size=(25, 12))
    alone = ExceedanceInference(own, references, 25, draws=DRAWS)
    # four examples of each cluster that are all alike say no more than one
    copies = ExceedanceInference(
        np.repeat(own, 4), np.repeat(references, 4, axis=1), 25, np.repeat(np.arange(12), 4), draws=DRAWS
    )
    apart = ExceedanceInference(np.repeat(own, 4), np.repeat(references, 4, axis=1), 25, draws=DRAWS)
    assert copies.value == alone.value
    assert copies.interval() == alone.interval()
    assert copies.method.endswith("12 clusters")
    assert apart.interval()[0] > copies.interval()[0]
    single = ExceedanceInference(own, references, 25, list("abcdefghijkl"), draws=DRAWS)
    assert single.interval() == alone.interval()


def test_exceedance_refuses() -> None:
    for bad in (([1.0, 2.0], [[1.0]]), ([1.0], [1.0]), ([1.0], [[math.nan]]), ([1.0], np.zeros((0, 1)))):
        with pytest.raises(UsageError):
            ExceedanceInference(*bad)
    with pytest.raises(UsageError):
        ExceedanceInference([1.0], [[1.0], [2.0]], 1)


@pytest.mark.parametrize("n", [20, 60])
def test_a_unit_below_the_quantile_seldom_earns(n: int) -> None:
    centres = np.linspace(0.0, 2.0, 40)
    own = (centres[33] + centres[34]) / 2  # above 85 % of the references, where 90 % are needed

    def draw(rng: Rng, seed: int) -> Inference:
        item = rng.exponential(size=n)
        values = own * item + 0.3 * rng.normal(size=n)
        return ExceedanceInference(
            values, centres[:, None] * item + 0.3 * rng.normal(size=(40, n)), 40, draws=DRAWS, seed=seed
        )

    rng = generator(5)
    false = sum(draw(rng, seed).p_value(">=", 0.9) <= 0.025 for seed in range(REPETITIONS))
    assert false / REPETITIONS <= TAIL


@pytest.mark.parametrize("n", [15, 30])
def test_rare_examples_that_go_the_other_way_are_allowed_for(n: int) -> None:
    # the unit's mean is that of its references, but most examples show it above
    rng = generator(3)
    false = 0
    for seed in range(REPETITIONS):
        own = 1.0 - rng.exponential(size=n)
        found = ExceedanceInference(own, np.zeros((20, n)), 20, draws=DRAWS, seed=seed)
        false += found.p_value(">=", 0.9) <= 0.025
    assert false / REPETITIONS <= TAIL


def test_drawn_references_stand_for_their_population() -> None:
    # 85 % of a very large population are below the unit
    def draw(rng: Rng, seed: int) -> Inference:
        references = np.where(rng.random(50) < 0.85, 0.0, 2.0)[:, None] + 0.1 * rng.normal(size=(50, 30))
        return ExceedanceInference(np.ones(30), references, draws=DRAWS, seed=seed)

    above, below = misses(0.85, draw)
    assert max(above, below) <= TAIL


# Concordance and HSIC ------------------------------------------------------------------------------------------------


def test_concordance_is_kendall_s_tau() -> None:
    rng = generator(1)
    x, y = rng.normal(size=(2, 50))
    assert ConcordanceInference(x, y).value == pytest.approx(kendalltau(x, y).statistic)
    assert ConcordanceInference(x, x).value == 1.0
    assert ConcordanceInference(x, -x).value == -1.0
    assert ConcordanceInference(x, np.zeros(50)).value == 0.0
    assert ConcordanceInference(x, 1e-9 * y, (0.0, 1e-6)).value == 0.0
    low, high = ConcordanceInference(x, np.zeros(50)).interval()
    assert -0.2 < low < 0 < high < 0.2
    order = rng.permutation(50)
    assert ConcordanceInference(x, y).interval() == ConcordanceInference(x[order], y[order]).interval()
    with pytest.raises(UsageError):
        ConcordanceInference([1.0], [1.0])


@pytest.mark.parametrize(("rho", "n"), [(0.0, 20), (0.0, 60), (0.5, 20), (0.5, 60), (0.95, 60)])
def test_concordance_covers(rho: float, n: int) -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        x, y = rng.normal(size=(2, n))
        return ConcordanceInference(x, rho * x + math.sqrt(1 - rho**2) * y, draws=DRAWS, seed=seed)

    above, below = misses(2 / math.pi * math.asin(rho), draw)
    assert max(above, below) <= TAIL


def test_concordance_covers_with_ties() -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        x = (rng.random(40) < 0.1) * 1.0
        return ConcordanceInference(x, x, draws=DRAWS, seed=seed)

    above, below = misses(2 * 0.1 * 0.9, draw)
    assert max(above, below) <= TAIL


def test_hsic() -> None:
    rng = generator(2)
    x = rng.normal(size=60)
    assert (
        hsic_test(x, x**2 + 0.1 * rng.normal(size=60), permutations=199).p == 1 / 200
    )  # τ does not see this one
    assert hsic_test(x, np.ones(60), permutations=99).p == 1.0
    false = sum(hsic_test(*rng.normal(size=(2, 25)), permutations=39, seed=i).p <= 0.05 for i in range(400))
    assert false / 400 <= 0.05 + 2.6 * (0.05 * 0.95 / 400) ** 0.5
    with pytest.raises(UsageError):
        hsic_test([1.0], [2.0])

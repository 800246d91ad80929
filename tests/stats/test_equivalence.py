"""Two one-sided tests: the margin's edge, agreement with the interval, and false "equivalent" at the edge."""

from __future__ import annotations

import pytest

from circuittest.errors import UsageError
from circuittest.stats import MeanInference, PairedDifferenceInference, RatioInference, equivalence
from circuittest.stats.resampling import generator


def test_the_three_outcomes() -> None:
    rng = generator(0)
    same = MeanInference(rng.normal(0.0, 0.1, 200), bounds=None)
    assert equivalence(same, 0.1).outcome == "equivalent"
    assert equivalence(same, 0.01).outcome == "undecided"
    other = MeanInference(rng.normal(0.5, 0.1, 200), bounds=None)
    found = equivalence(other, 0.1)
    assert found.outcome == "different"
    assert found.p > 0.5
    assert found.p_different <= 0.025
    assert equivalence(MeanInference(rng.normal(-0.5, 0.1, 200), bounds=None), 0.1).outcome == "different"


def test_no_significant_difference_is_no_equivalence() -> None:
    noisy = MeanInference(generator(1).normal(0.0, 1.0, 20), bounds=None)
    low, high = noisy.interval()
    assert low < 0 < high
    assert equivalence(noisy, 0.1).outcome == "undecided"


@pytest.mark.parametrize("alpha", [0.025, 0.05])
def test_it_is_the_interval_inside_the_margins(alpha: float) -> None:
    rng = generator(2)
    for _ in range(40):
        inference = MeanInference(rng.normal(0.0, 0.2, 30), bounds=None, draws=999)
        found = equivalence(inference, 0.1, alpha=alpha)
        low, high = inference.interval(1 - 2 * alpha)
        assert (found.outcome == "equivalent") == (low > -0.1 and high < 0.1) == (found.p <= alpha)
        assert found.interval == (low, high)


def test_ratios_have_their_own_centre_and_margins() -> None:
    rng = generator(3)
    full = 3 + rng.normal(0, 0.3, 100)
    ratio = RatioInference(full + rng.normal(0, 0.2, 100), full)
    assert equivalence(ratio, 0.1, centre=1.0).margins == pytest.approx((0.9, 1.1))
    assert equivalence(ratio, (0.8, 1.25), centre=1.0).outcome == "equivalent"
    assert equivalence(ratio, 0.1, centre=0.0).outcome == "different"


@pytest.mark.parametrize(
    ("margin", "centre", "alpha"),
    [(0.0, 0.0, 0.05), (-0.1, 0.0, 0.05), ((0.1, 0.2), 0.0, 0.05), (0.1, 0.0, 0.5)],
)
def test_margins_that_make_no_sense(margin: float, centre: float, alpha: float) -> None:
    with pytest.raises(UsageError, match="margin|alpha"):
        equivalence(MeanInference([0.1, 0.2]), margin, centre=centre, alpha=alpha)


@pytest.mark.parametrize(("n", "first", "second"), [(50, 0.95, 0.85), (200, 0.95, 0.85), (200, 0.5, 0.6)])
def test_false_equivalence_at_the_margin(n: int, first: float, second: float) -> None:
    rng, false, repetitions = generator(4), 0, 400
    for seed in range(repetitions):
        level = rng.random(n)  # paired: the same examples are hard in both
        inference = PairedDifferenceInference(level < first, level < second, draws=399, seed=seed)
        false += equivalence(inference, 0.1).outcome == "equivalent"
    assert false / repetitions <= 0.025 + 2.6 * (0.025 * 0.975 / repetitions) ** 0.5


def test_false_equivalence_of_unbounded_means_at_the_margin() -> None:
    rng, false, repetitions = generator(5), 0, 400
    for seed in range(repetitions):
        inference = MeanInference(rng.normal(0.3, 0.5, 40), bounds=None, draws=399, seed=seed)
        false += equivalence(inference, 0.3, alpha=0.05).outcome == "equivalent"
    assert false / repetitions <= 0.05 + 2.6 * (0.05 * 0.95 / repetitions) ** 0.5


def test_equivalence_can_be_shown() -> None:
    rng = generator(6)
    shown = [
        equivalence(MeanInference(rng.normal(0.0, 0.2, 100), bounds=None, draws=399), 0.1).outcome
        for _ in range(50)
    ]
    assert shown.count("equivalent") > 40

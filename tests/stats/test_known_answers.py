"""Numbers that are known from theory or from the literature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from circuittest.errors import UsageError
from circuittest.stats import (
    MeanInference,
    PairedDifferenceInference,
    ProportionInference,
    competence,
    holm,
    rank_p,
)
from circuittest.stats.inference import POWER, examples_needed, growth, round_up
from circuittest.stats.resampling import count_blocks, exponential_blocks, partition


# Newcombe (1998), Statistics in Medicine 17:857-872, Table I, methods 3 (Wilson) and 5 (Clopper-Pearson)
@pytest.mark.parametrize(
    ("successes", "trials", "wilson", "exact"),
    [
        (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
        (15, 148, (0.0624, 0.1605), (0.0578, 0.1617)),
        (0, 20, (0.0, 0.1611), (0.0, 0.1684)),
        (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
    ],
)
def test_proportions_of_newcombes_table(
    successes: int, trials: int, wilson: tuple[float, float], exact: tuple[float, float]
) -> None:
    assert ProportionInference(successes, trials, kind="wilson").interval() == pytest.approx(wilson, abs=6e-5)
    assert ProportionInference(successes, trials).interval() == pytest.approx(exact, abs=6e-5)
    low, high = ProportionInference(trials - successes, trials).interval()
    assert (1 - high, 1 - low) == pytest.approx(exact, abs=6e-5)


def test_exact_p_values_are_binomial_tails() -> None:
    # 8 of 10: P(X >= 8 | 1/2) = 56/1024
    assert ProportionInference(8, 10).p_value(">=", 0.5) == pytest.approx(56 / 1024)
    assert ProportionInference(8, 10).p_value("<=", 0.5) == pytest.approx(1013 / 1024)
    assert ProportionInference(10, 10).p_value(">", 0.0) == 0.0
    assert ProportionInference(0, 10).p_value(">", 0.0) == 1.0
    assert ProportionInference(0, 10).p_value(">=", 0.0) == 0.0
    assert ProportionInference(10, 10).p_value(">", 1.0) == 1.0


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 20), (1, 20), (10, 20), (20, 20), (195, 200), (200, 200)]
)
def test_the_dirichlet_bound_of_zeros_and_ones_is_the_exact_one(successes: int, trials: int) -> None:
    values = np.repeat([1.0, 0.0], [successes, trials - successes])
    low, high = MeanInference(values).interval()
    exact = ProportionInference(successes, trials).interval()
    # the quantile of 9999 draws has an error; 0.35 percentage points of tail probability on either side
    tails = (0.0215, 0.0285)
    if successes:
        assert (
            beta.ppf(tails[0], successes, trials - successes + 1)
            <= low
            <= beta.ppf(tails[1], successes, trials - successes + 1)
        )
    if successes < trials:
        assert (
            beta.isf(tails[1], successes + 1, trials - successes)
            <= high
            <= beta.isf(tails[0], successes + 1, trials - successes)
        )
    assert (low, high) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_equal_values_have_width(value: float) -> None:
    n = 200
    low, high = MeanInference(np.full(n, value)).interval()
    # the pseudo-observation's weight is Beta(1, n)
    weight = 1 - 0.025 ** (1 / n)
    assert low == pytest.approx(value * (1 - weight), abs=0.002)
    assert high == pytest.approx(value + (1 - value) * weight, abs=0.002)


def test_bounds_scale_with_the_values() -> None:
    values = np.random.default_rng(0).random(40)
    low, high = MeanInference(values).interval()
    scaled = MeanInference(2 * values - 1, bounds=(-1.0, 1.0)).interval()
    assert scaled == pytest.approx((2 * low - 1, 2 * high - 1), abs=1e-9)
    unbounded = MeanInference(values, bounds=None)
    moved = MeanInference(3 * values + 7, bounds=None)
    assert moved.interval() == pytest.approx(tuple(3 * end + 7 for end in unbounded.interval()), abs=1e-9)


def test_unbounded_intervals_are_at_least_students() -> None:
    values = np.random.default_rng(1).normal(size=25)
    mean, error = values.mean(), values.std(ddof=1) / 5
    inference = MeanInference(values, bounds=None)
    assert inference.standard_error() == pytest.approx(error)
    low, high = inference.interval()
    assert low <= mean - 2.0639 * error + 1e-6
    assert high >= mean + 2.0639 * error - 1e-6
    assert high - low < 1.5 * 2 * 2.0639 * error


def test_clusters_not_examples_are_the_sample() -> None:
    cluster_means = np.array([0.2, 0.9, 0.5, 0.7, 0.4, 0.8])
    repeated, labels = np.repeat(cluster_means, 50), np.repeat(np.arange(6), 50)
    assert MeanInference(repeated, labels).interval() == MeanInference(cluster_means).interval()
    assert MeanInference(repeated, labels, bounds=None).standard_error() == pytest.approx(
        cluster_means.std(ddof=1) / math.sqrt(6)
    )
    assert MeanInference(repeated, labels).n == 300
    assert MeanInference(repeated, labels).n_clusters == 6
    own = MeanInference(cluster_means, ["f", "e", "d", "c", "b", "a"])
    assert own.interval() == MeanInference(cluster_means).interval()


def test_unequal_clusters_weigh_by_size() -> None:
    values, labels = np.array([1.0, 1.0, 1.0, 0.0]), ["a", "a", "a", "b"]
    assert MeanInference(values, labels).value == 0.75


def test_newcombes_paired_interval_by_hand() -> None:
    # e = 36, f = 12, g = 2, h = 0; phi is cut to 0 because of an empty margin cell product or its correction
    first = np.repeat([1, 1, 0, 0], [36, 12, 2, 0])
    second = np.repeat([1, 0, 1, 0], [36, 12, 2, 0])
    inference = PairedDifferenceInference(first, second, kind="newcombe")
    assert inference.value == pytest.approx(0.2)
    (l1, u1), (l2, u2) = (ProportionInference(k, 50, kind="wilson").interval() for k in (48, 38))
    phi = (36 * 0 - 12 * 2) / math.sqrt(48 * 2 * 38 * 12)
    low = 0.2 - math.sqrt((0.96 - l1) ** 2 - 2 * phi * (0.96 - l1) * (u2 - 0.76) + (u2 - 0.76) ** 2)
    high = 0.2 + math.sqrt((u1 - 0.96) ** 2 - 2 * phi * (0.76 - l2) * (u1 - 0.96) + (0.76 - l2) ** 2)
    assert inference.interval() == pytest.approx((low, high))


def test_paired_difference_without_discordance_has_width() -> None:
    for kind in ("dirichlet", "newcombe"):
        low, high = PairedDifferenceInference(np.ones(50), np.ones(50), kind=kind).interval()
        assert -0.2 < low < -0.05
        assert 0.05 < high < 0.2
    low, high = PairedDifferenceInference(np.ones(200), np.zeros(200)).interval()
    assert low == pytest.approx(1 - 2 * (1 - 0.025 ** (1 / 200)), abs=0.004)
    assert high == 1.0


def test_rank_p() -> None:
    rank = rank_p(0.2, [0.9, 0.8, 0.2, 0.1, 0.95])
    assert (rank.p, rank.resolution, rank.at_least_as_harmful, rank.n_controls) == (3 / 6, 1 / 6, 2, 5)
    assert rank_p(2.0, [1.0, 3.0, 2.0], harmful_is="high").at_least_as_harmful == 2
    assert rank_p(0.1 + 0.2, [0.3]).at_least_as_harmful == 1  # the last bits are no difference
    assert rank_p(0.0, [1.0] * 40).p == pytest.approx(1 / 41)
    with pytest.raises(UsageError):
        rank_p(0.1, [])
    with pytest.raises(UsageError):
        rank_p(0.1, [0.2], harmful_is="bad")


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, None, 0.04]) == [pytest.approx(0.03), None, pytest.approx(0.08)]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(UsageError):
        holm([1.5])


def test_competence_names_the_floor_that_fails() -> None:
    right = np.repeat([1.0, 0.0], [95, 5])
    good = competence(right, chance=0.5, majority=0.3, ablated=np.zeros(100))
    assert (good.passed, good.floor, good.floor_name, good.reason) == (True, 0.5, "chance", "")
    assert good.lower == pytest.approx(ProportionInference(95, 100).interval()[0] - 0.5)
    assert good.lowers["ablated"] > good.lower
    weak = competence(right, ablated=np.repeat([1.0, 0.0], [80, 20]))
    assert not weak.passed
    assert weak.floor_name == "ablated"
    assert "ablated floor 0.80" in weak.reason
    constant = competence(right, majority=np.repeat([0.0, 1.0], [10, 90]))
    assert not constant.passed
    assert constant.floors["majority"] == 0.9
    # 30 of 100 against nothing: 0.21 is a lower bound above the headroom, 29 is not
    assert competence(np.repeat([1.0, 0.0], [30, 70])).passed
    assert not competence(np.repeat([1.0, 0.0], [27, 73])).passed
    with pytest.raises(UsageError):
        competence(right, headroom=20)
    with pytest.raises(UsageError):
        competence(right, ablated=np.zeros(99))


def test_fractional_outcomes_pass_the_gate_too() -> None:
    assert competence(np.full(100, 0.9), chance=0.5).passed


@pytest.mark.parametrize(
    "make",
    [
        lambda: MeanInference([]),
        lambda: MeanInference([[0.5]]),
        lambda: MeanInference([0.5, float("nan")]),
        lambda: MeanInference([0.5, 1.5]),
        lambda: MeanInference([0.5, 0.6], groups=["a"]),
        lambda: MeanInference([0.5, 0.6], bounds=(1.0, 0.0)),
        lambda: MeanInference([0.5, 0.6], draws=10),
        lambda: ProportionInference(3, 2),
        lambda: ProportionInference(0, 0),
        lambda: ProportionInference(1, 2, kind="wald"),  # type: ignore[arg-type]
        lambda: PairedDifferenceInference([1, 0], [1]),
        lambda: PairedDifferenceInference([1, 0], [1, 0.5], kind="newcombe"),
    ],
)
def test_bad_samples_are_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]


def test_advice_follows_the_square_root() -> None:
    # twice the half-width, and 0.84 standard errors more for what the next value may be: (2 · 2.8/1.96)² = 8.16
    assert examples_needed(100, 0.1, 0.05) == {"n": 820, "controls": None, "text": "about n = 820 examples"}
    assert examples_needed(100, 0.1, 0.0999, 0.0)["n"] == 110
    assert examples_needed(100, 0.1, 0.001)["n"] is None
    assert examples_needed(100, math.inf, 0.1)["n"] is None
    assert [round_up(x) for x in (3.2, 99.0, 101.0, 12345.0)] == [4, 99, 110, 13000]


def test_what_was_not_seen_shrinks_faster_than_the_root() -> None:
    power = 1 + POWER / 1.96
    assert growth(0.1, 0.05) == pytest.approx(4.0 * power**2)
    assert growth(0.1, 0.05, 0.0) == pytest.approx(2.0)  # all of it like 1/f
    mixed = growth(0.1, 0.05, 0.05 / 1.96)
    assert power * 0.05 / mixed**0.5 + 0.05 / mixed == pytest.approx(0.05)
    assert growth(0.1, 0.0) == math.inf
    assert growth(0.9, 1e-218) == math.inf  # its square is beyond floats
    assert growth(0.1, 1e-20, 0.05 / 1.96) > 1e30  # a gap that a difference of roots would lose
    # 50 of 50: the exact bound at n is 0.025^(1/n), so 0.97 needs n = 122
    wanted = ProportionInference(50, 50).needed(">=", 0.97)["n"]
    assert 110 <= wanted <= 140
    assert ProportionInference(wanted, wanted).interval()[0] == pytest.approx(0.97, abs=0.003)


def test_resampling_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(exponential_blocks(3, 50, 7)))
    counts = np.concatenate(list(count_blocks(3, 50, 7)))
    assert (counts.sum(1) == 7).all()
    monkeypatch.setattr("circuittest.stats.resampling._BLOCK", 20)
    assert len(list(exponential_blocks(3, 50, 7))) == 25
    assert (np.concatenate(list(exponential_blocks(3, 50, 7))) == whole).all()
    assert (np.concatenate(list(count_blocks(3, 50, 7))) == counts).all()


def test_partition() -> None:
    clusters = partition(4, ["b", "a", "b", "b"])
    assert clusters.codes.tolist() == [1, 0, 1, 1]
    assert clusters.sizes.tolist() == [1, 3]
    assert clusters.totals(np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [2.0, 8.0]
    assert partition(3, None).count == 3


@pytest.mark.parametrize("op", ["<=", ">="])
def test_newcombe_at_a_threshold_that_rounding_hardly_tells_from_the_value(op: Any) -> None:
    same = PairedDifferenceInference([1.0, 0.0], [0.0, 1.0], kind="newcombe")
    assert same.value == 0.0
    assert same.p_value(op, 1e-297 if op == "<=" else -1e-297) == 0.5

"""Random parts, errors from subsamples, and bounds that hold for many statistics at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from circuittest.errors import UsageError
from circuittest.stats import Inference
from circuittest.stats.halves import block_weights, half_weights, random_parts
from circuittest.stats.resampling import generator
from circuittest.stats.simultaneous import MaxT, StudentInference, smallest_df, subsample_error


@given(st.lists(st.integers(2, 30), min_size=1, max_size=5), st.integers(2, 8), st.integers(0, 99))
def test_parts_of_a_block_differ_by_one_at_most(sizes: list[int], parts: int, seed: int) -> None:
    blocks = np.repeat(np.arange(len(sizes)), sizes)
    (drawn,) = random_parts(blocks, np.arange(blocks.size), parts=parts, draws=1, seed=seed)
    for block in range(len(sizes)):
        counts = np.bincount(drawn[blocks == block], minlength=parts)
        assert counts.max() - counts.min() <= 1


@given(st.integers(0, 999))
def test_clusters_are_never_torn_apart(seed: int) -> None:
    rng = generator(seed)
    blocks, clusters = rng.integers(0, 3, 40), rng.integers(0, 12, 40)
    clusters = np.unique(clusters, return_inverse=True)[1]
    for parts in random_parts(blocks, clusters, parts=4, draws=3, seed=seed):
        assert all(np.unique(parts[clusters == c]).size == 1 for c in np.unique(clusters))


def test_parts_are_random_and_seeded() -> None:
    blocks = np.repeat([0, 1], 10)
    draws = [list(random_parts(blocks, np.arange(20), parts=2, draws=50, seed=s)) for s in (0, 0, 1)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    together = np.mean([(one[:, None] == one[None, :]) for one in draws[0]], axis=0)
    assert together[0, 1:10].min() > 0.2
    assert together[0, 1:10].max() < 0.7


def test_weights_make_means() -> None:
    blocks, half = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 1, 0, -1, 1], dtype=np.int8)
    values = np.array([1.0, 2, 4, 8, 16, 32])
    assert (block_weights(blocks, 2) @ values).tolist() == pytest.approx([7 / 3, 56 / 3])
    weights = half_weights(blocks, half, 2)
    assert weights is not None
    assert (weights @ values).tolist() == [1, 8, 3, 32]
    assert half_weights(blocks, np.array([0, 0, 0, 0, 1, 1], dtype=np.int8), 2) is None


def test_the_error_of_a_mean_is_that_of_the_textbook() -> None:
    rng = generator(3)
    values = rng.exponential(size=80)
    kept = [rng.permutation(values)[:60].mean() for _ in range(4000)]
    assert float(subsample_error(kept, 0.75)) == pytest.approx(values.std(ddof=1) / np.sqrt(80), rel=0.05)
    with pytest.raises(UsageError):
        subsample_error([1.0], 0.75)


def test_student_bounds_agree_with_their_p_values() -> None:
    found = StudentInference(0.7, 0.05, 12, 100, "t")
    assert isinstance(found, Inference)
    low, high = found.interval()
    assert (low, high) == pytest.approx((0.7 - 2.1788 * 0.05, 0.7 + 2.1788 * 0.05), abs=1e-4)
    assert found.p_value(">=", low) == pytest.approx(0.025)
    assert found.p_value("<", high) == pytest.approx(0.025)
    assert found.needed(">", 0.65)["n"] > 100
    exact = StudentInference(1.0, 0.0, 3, 10, "t")
    assert exact.interval() == (1.0, 1.0)
    assert (exact.p_value(">=", 1.0), exact.p_value(">", 1.0)) == (0.0, 1.0)
    with pytest.raises(UsageError):
        StudentInference(float("nan"), 0.1, 3, 10, "t")


def test_max_t_lies_between_one_test_and_bonferroni() -> None:
    rng = generator(0)
    alike = rng.standard_normal((200, 1)) + 1e-3 * rng.standard_normal((200, 30))
    apart = rng.standard_normal((200, 30))
    one = stats.t.ppf(0.975, 40)
    for replicates, expected in ((alike, one), (apart, stats.t.ppf(1 - 0.025 / 30, 40))):
        found = MaxT(np.zeros(30), replicates, 0.75, 40)
        assert found.critical(0.025) == pytest.approx(expected, rel=0.08)
    assert MaxT(np.zeros(30), apart, 0.75, 40).critical(0.025) > 1.2 * MaxT(
        np.zeros(30), alike, 0.75, 40
    ).critical(0.025)


def test_all_bounds_hold_at_once_as_often_as_they_say() -> None:
    rng = generator(5)
    missed = 0
    for seed in range(200):
        data = rng.standard_normal((40, 1)) + rng.standard_normal((40, 10))
        replicates = np.stack([data[rng.permutation(40)[:30]].mean(0) for _ in range(60)])
        found = MaxT(data.mean(0), replicates, 0.75, 39, seed=seed)
        missed += bool((found.bounds(0.025)[0] > 0).any())
    assert missed / 200 <= 0.025 + 2.6 * (0.025 * 0.975 / 200) ** 0.5


def test_statistics_that_do_not_vary_have_bounds_of_no_width() -> None:
    found = MaxT([0.5, 0.7], np.full((20, 2), 0.5), 0.75, 9)
    assert found.bounds(0.025)[0].tolist() == [0.5, 0.7]
    assert found.distances(0.6).tolist() == [-np.inf, np.inf]
    assert found.tail(np.inf) < 0.001
    assert found.tail(-np.inf) == 1.0


def test_degrees_of_freedom_are_those_of_the_smallest_block() -> None:
    assert smallest_df([30, 12, 40]) == 11
    assert smallest_df([30, 12, 40], 12) == pytest.approx(5.5)
    assert smallest_df([30, 12, 40], 10**6) == pytest.approx(11, abs=1e-3)

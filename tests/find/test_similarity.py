"""Similarities between blocks: known correlations, ties, attenuation, and what Spearman-Brown gets wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from circuittest.errors import UsageError
from circuittest.find.similarity import (
    block_similarity,
    corrected,
    mean_of_pairs,
    permuted,
    top_overlap,
    unit_rows,
)
from tests.helpers.score_lab import correlated, noisy

rows = hnp.arrays(np.float32, (3, 12), elements=st.floats(-4, 4, width=16))


@given(rows)
def test_spearman_and_pearson_are_those_of_scipy(values: np.ndarray) -> None:
    for kind, reference in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        made = unit_rows(values, kind)
        found = made @ made.T
        for i, j in ((0, 1), (0, 2), (1, 2)):
            if np.ptp(values[i]) == 0 or np.ptp(values[j]) == 0:
                assert np.isnan(found[i, j])
            else:
                assert found[i, j] == pytest.approx(reference(values[i], values[j])[0], abs=2e-4)


def test_top_overlap_is_zero_by_chance_and_one_when_equal() -> None:
    a = np.zeros((3, 10), dtype=np.float32)
    a[0, :4], a[1, :4], a[2, 2:6] = [4, -3, 2, 1], [-1, 2, 3, 4], [1, 1, 1, 1]
    found = unit_rows(a, "topk", 4) @ unit_rows(a, "topk", 4).T
    assert found[0, 1] == pytest.approx(1)  # sizes, not signs
    assert found[0, 2] == pytest.approx((2 / 4 - 0.4) / 0.6)
    assert top_overlap(a, np.arange(3), 4)[0].tolist() == [1, 1, 0.5]


def test_unknown_similarities_are_refused() -> None:
    with pytest.raises(UsageError, match="(?i)known are"):
        unit_rows(np.ones((1, 3), dtype=np.float32), "kendall")


def blocks_of(count: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(count), n), np.arange(count * n)


def measured(means: np.ndarray, n: int, noise: float, kind: str, seed: int = 0, **more: int):
    codes, clusters = blocks_of(len(means), n)
    values = noisy(means, codes, noise, seed).astype(np.float32)
    return block_similarity(values, codes, clusters, kind, seed=seed, **{"replicates": 20, **more})


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_noise_is_taken_out(rho: float, kind: str) -> None:
    means = correlated(rho, 3, 4000) * np.sqrt(4000)
    found = measured(means, 20, 4.0, kind)
    assert mean_of_pairs(found.raw) < 0.65 * rho + 0.05
    assert mean_of_pairs(found.corrected) == pytest.approx(rho, abs=0.06)


def test_the_diagonal_does_not_count() -> None:
    # five independent circuits: 0, and not the 1/5 that a mean with the diagonal gives
    found = measured(correlated(0.0, 5, 2000) * np.sqrt(2000), 20, 0.5, "spearman")
    assert mean_of_pairs(found.corrected) == pytest.approx(0.0, abs=0.03)
    assert found.corrected.mean() == pytest.approx(0.2, abs=0.03)


def test_stepping_the_reliability_up_would_make_equal_blocks_differ() -> None:
    # nine of ten edges have no effect: their ranks never repeat, however many examples there are
    means = np.zeros((1, 4000))
    means[0, :400] = 3.0
    found = measured(np.repeat(means, 2, axis=0), 40, 0.5, "spearman")
    whole = 2 * found.reliability / (1 + found.reliability)
    assert found.raw[0, 1] / np.sqrt(whole.prod()) < 0.75
    assert found.corrected[0, 1] == pytest.approx(1.0, abs=0.1)


def test_the_replicates_vary_as_much_as_new_samples_do() -> None:
    means = correlated(0.6, 2, 300) * np.sqrt(300)
    values = [measured(means, 30, 2.0, "pearson", seed=s, replicates=0, cuts=8) for s in range(60)]
    spread = np.std([mean_of_pairs(one.corrected) for one in values], ddof=1)
    drawn = measured(means, 30, 2.0, "pearson", seed=99, replicates=150)
    error = mean_of_pairs(drawn.corrected_replicates).std(ddof=1) * np.sqrt(3)
    assert 0.85 * spread < error < 2.2 * spread


def test_clusters_do_not_pass_for_reliability() -> None:
    # each prompt occurs ten times with the same scores, and blocks have nothing in common
    rng = np.random.default_rng(0)
    codes, clusters = np.repeat([0, 1], 100), np.repeat(np.arange(20), 10)
    values = rng.standard_normal((20, 500))[clusters].astype(np.float32)
    together = block_similarity(values, codes, clusters, "pearson", replicates=0).reliability
    torn = block_similarity(values, codes, np.arange(200), "pearson", replicates=0).reliability
    assert np.abs(together).max() < 0.1
    assert torn.min() > 0.6


def test_rows_outside_every_block_do_not_count() -> None:
    means = correlated(0.5, 2, 200) * 10
    codes, clusters = blocks_of(2, 20)
    values = noisy(means, codes, 1.0).astype(np.float32)
    alone = block_similarity(values, codes, clusters, "spearman", replicates=20)
    padded = np.concatenate([values[:20], np.full((7, 200), 9, dtype=np.float32), values[20:]])
    outside = np.concatenate([codes[:20], np.full(7, -1), codes[20:]])
    labels = np.concatenate([clusters[:20], np.arange(90, 97), clusters[20:]])
    same = block_similarity(padded, outside, labels, "spearman", replicates=20)
    assert np.allclose(alone.halves, same.halves, atol=1e-5)
    assert np.allclose(alone.replicates, same.replicates, atol=1e-5)


def test_constant_rows_are_undefined_and_negative_reliability_is_no_number() -> None:
    codes, clusters = blocks_of(2, 10)
    values = np.ones((20, 5), dtype=np.float32)
    assert np.isnan(block_similarity(values, codes, clusters, "spearman", replicates=0).raw).all()
    assert np.isnan(corrected(np.array([[-0.1, 0.2], [0.2, 0.5]]))[0]).all()


def test_too_few_blocks_or_clusters_are_refused() -> None:
    values = np.random.default_rng(0).standard_normal((20, 5)).astype(np.float32)
    with pytest.raises(UsageError, match="1 block"):
        block_similarity(values, np.zeros(20, dtype=np.intp), np.arange(20), "pearson")
    codes = np.repeat([0, 1], 10)
    with pytest.raises(UsageError, match="cannot be cut"):
        block_similarity(values, codes, codes, "pearson")


def test_random_blocks_are_the_null_of_blocks_that_do_not_differ() -> None:
    codes, clusters = blocks_of(2, 20)
    alike = noisy(correlated(1.0, 2, 300) * 17, codes, 2.0).astype(np.float32)
    apart = noisy(correlated(0.3, 2, 300) * 17, codes, 2.0).astype(np.float32)
    for values, low in ((alike, False), (apart, True)):
        null = permuted(values, codes, clusters, "spearman", draws=99)
        raw = mean_of_pairs(block_similarity(values, codes, clusters, "spearman", replicates=0).raw)
        assert ((null <= raw).mean() < 0.02) == low

"""Spectral clustering: planted blocks come back, and nothing depends on chance or on the order of rows."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.find.spectral import in_order, k_means, spectral_clusters


def blocks(
    sizes: tuple[int, ...], inside: float = 1.0, across: float = 0.1, noise: float = 0.05
) -> np.ndarray:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    a = np.where(labels[:, None] == labels, inside, across)
    jitter = np.random.default_rng(0).random(a.shape) * noise
    return a + jitter + jitter.T


@pytest.mark.parametrize("sizes", [(5, 5), (3, 8, 4), (4, 4, 4, 4, 4)])
def test_planted_blocks_come_back(sizes: tuple[int, ...]) -> None:
    expected = np.repeat(np.arange(len(sizes)), sizes)
    np.testing.assert_array_equal(spectral_clusters(blocks(sizes), len(sizes)), expected)


def test_blocks_without_any_affinity_across() -> None:
    a = blocks((3, 4, 5), across=0.0, noise=0.0)
    np.testing.assert_array_equal(spectral_clusters(a, 3), np.repeat([0, 1, 2], (3, 4, 5)))


def test_the_order_of_rows_changes_only_the_numbers() -> None:
    a = blocks((4, 6, 5), across=0.5, noise=0.3)
    order = np.random.default_rng(1).permutation(15)
    plain, shuffled = spectral_clusters(a, 3), spectral_clusters(a[np.ix_(order, order)], 3)
    np.testing.assert_array_equal(in_order(plain[order]), shuffled)


def test_the_same_seed_gives_the_same_clusters_and_the_diagonal_counts_nothing() -> None:
    a = blocks((4, 6, 5), across=0.8, noise=0.9)
    first = spectral_clusters(a, 4)
    np.testing.assert_array_equal(first, spectral_clusters(a, 4))
    np.fill_diagonal(a, 100.0)
    np.testing.assert_array_equal(first, spectral_clusters(a, 4))


def test_k_means_finds_the_best_of_its_starts() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [10, 0], [0, 10], [10, 10], [5, 20]])
    points = np.repeat(centres, 20, axis=0) + rng.standard_normal((100, 2))
    np.testing.assert_array_equal(k_means(points, 5), np.repeat(np.arange(5), 20))


def test_clusters_are_numbered_by_their_first_member() -> None:
    np.testing.assert_array_equal(in_order([7, 7, 2, 9, 2]), [0, 0, 1, 2, 1])


@pytest.mark.parametrize(
    ("affinity", "k", "words"),
    [
        (blocks((2, 2)), 5, "5 clusters of 4 heads: there are fewer heads than clusters. Ask for fewer"),
        (blocks((2, 2)), 1, "at least two"),
        (-blocks((2, 2)), 2, "negative"),
        (np.triu(blocks((2, 2))), 2, "not symmetric"),
        (np.zeros((3, 3)), 2, "row 0 has no affinity"),
        (np.full((3, 3), np.nan), 2, "finite"),
    ],
)
def test_bad_affinities_are_refused(affinity: np.ndarray, k: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        spectral_clusters(affinity, k)


def test_fewer_points_than_clusters_are_refused() -> None:
    with pytest.raises(UsageError, match="3 clusters of 2 distinct points"):
        k_means([[0.0], [1.0], [1.0]], 3)

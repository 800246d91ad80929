"""Agreement of clusterings, isolation and purity: values known from the literature, by hand, and by counting."""

from __future__ import annotations

from itertools import combinations
from math import isnan, log

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.find.cluster_scores import adjusted_rand, isolation, normalised_information, purity


def test_adjusted_rand_of_known_clusterings() -> None:
    assert adjusted_rand([0, 0, 1, 1], [1, 1, 0, 0]) == 1.0
    assert adjusted_rand([0, 0, 1, 2], [0, 0, 1, 1]) == pytest.approx(4 / 7)
    assert adjusted_rand([0, 0, 0, 0], [0, 1, 2, 3]) == 0.0
    assert adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)


def test_adjusted_rand_by_counting_pairs() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, 30), rng.integers(0, 3, 30)
    pairs = list(combinations(range(30), 2))
    same_a = np.array([a[i] == a[j] for i, j in pairs])
    same_b = np.array([b[i] == b[j] for i, j in pairs])
    both, expected = (same_a & same_b).sum(), same_a.sum() * same_b.sum() / len(pairs)
    assert adjusted_rand(a, b) == pytest.approx(
        (both - expected) / ((same_a.sum() + same_b.sum()) / 2 - expected)
    )


def test_adjusted_rand_of_unrelated_clusterings_is_zero_on_average() -> None:
    rng = np.random.default_rng(0)
    base = np.repeat(np.arange(5), 8)
    values = [adjusted_rand(base, rng.permutation(base)) for _ in range(400)]
    assert abs(np.mean(values)) < 4 * np.std(values) / 20


def test_normalised_information_of_known_clusterings() -> None:
    assert normalised_information([0, 0, 1, 1], [5, 5, 3, 3]) == pytest.approx(1.0)
    assert normalised_information([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(0.0, abs=1e-12)
    # I = ln 2, H = ln 2 and 1.5 ln 2
    assert normalised_information([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx(log(2) / (1.25 * log(2)))


def test_undefined_is_undefined() -> None:
    assert isnan(adjusted_rand([0, 0, 0], [1, 1, 1]))
    assert isnan(adjusted_rand([0, 1, 2], [2, 0, 1]))
    assert isnan(normalised_information([0, 0, 0], [1, 1, 1]))
    assert isnan(purity([None, None]))
    assert isnan(isolation(np.ones((3, 3)), [1]))
    assert isnan(isolation(np.ones((3, 3)), [0, 1, 2]))
    assert isnan(isolation(np.eye(3), [0, 1]))
    with pytest.raises(UsageError, match="one cluster for each member"):
        adjusted_rand([0, 1], [0, 1, 1])


def test_isolation_by_hand() -> None:
    a = np.array([[9.0, -2, 1, 0], [-2, 9, 1, 2], [1, 1, 9, 0], [0, 2, 0, 9]])
    assert isolation(a, [0, 1]) == pytest.approx(2 / ((1 + 0 + 1 + 2) / 4))
    assert isolation(a, [0, 1, 2]) == pytest.approx(((2 + 1 + 1) / 3) / ((0 + 2 + 0) / 3))


def test_purity_leaves_members_without_a_label_out() -> None:
    assert purity(["induction", "induction", "self", None]) == pytest.approx(2 / 3)

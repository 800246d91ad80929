"""Permutation tests against counting by hand, against scipy, and at their nominal size."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest

from circuittest.errors import UsageError
from circuittest.stats import mcnemar, paired_swaps, two_groups
from circuittest.stats.resampling import generator


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (5, 0), (9, 3), (4, 4), (30, 12)])
def test_mcnemar_is_the_binomial_test_of_the_discordant(gained: int, lost: int) -> None:
    first = np.array([1] * gained + [0] * lost + [1] * 5 + [0] * 2)
    second = np.array([0] * gained + [1] * lost + [1] * 5 + [0] * 2)
    for side in ("greater", "less", "two-sided"):
        expected = binomtest(gained, gained + lost, 0.5, side).pvalue if gained + lost else 1.0
        assert mcnemar(first, second, side=side).p == pytest.approx(expected)
    assert mcnemar(first, second).statistic == pytest.approx((gained - lost) / first.size)


def test_mcnemar_wants_zeros_and_ones() -> None:
    with pytest.raises(UsageError, match="paired_swaps"):
        mcnemar([0.5, 1], [0, 1])
    with pytest.raises(UsageError, match="same examples"):
        mcnemar([1, 1], [0])
    with pytest.raises(UsageError, match="side"):
        mcnemar([1, 1], [0, 1], side="both")  # type: ignore[arg-type]


def test_few_pairs_are_counted_one_by_one() -> None:
    first, second = np.array([3.0, 1.0, 4.0, 1.0, 5.0]), np.array([2.0, 1.5, 1.0, 1.0, 3.0])
    differences = first - second
    sums = [np.dot(signs, differences) for signs in product((1, -1), repeat=5)]
    for side, count in (
        ("greater", sum(s >= differences.sum() - 1e-9 for s in sums)),
        ("less", sum(s <= differences.sum() + 1e-9 for s in sums)),
        ("two-sided", sum(abs(s) >= abs(differences.sum()) - 1e-9 for s in sums)),
    ):
        found = paired_swaps(first, second, side=side)
        assert found.exact
        assert found.p == pytest.approx(count / 32)
    assert paired_swaps(first, second).resolution == 1 / 16  # one pair has no difference


def test_swaps_of_zeros_and_ones_are_mcnemar() -> None:
    rng = generator(0)
    few, many = ((rng.random((2, n)) < [[0.8], [0.6]]) * 1.0 for n in (25, 200))
    for side in ("greater", "less", "two-sided"):
        assert paired_swaps(*few, side=side).p == pytest.approx(mcnemar(*few, side=side).p)
        assert paired_swaps(*many, side=side).p == pytest.approx(mcnemar(*many, side=side).p, abs=0.01)


def test_p_is_never_zero_and_order_does_not_matter() -> None:
    rng = generator(1)
    a, b = rng.random(60) + 5, rng.random(60)
    found = paired_swaps(a, b, draws=999)
    assert found.p == 1 / 1000
    order = rng.permutation(60)
    assert paired_swaps(a[order], b[order], draws=999) == found
    assert two_groups(a, b, draws=999).p == 1 / 1000
    assert two_groups(a[order], b, draws=999) == two_groups(a, b, draws=999)


def test_nothing_to_swap_is_no_evidence() -> None:
    assert paired_swaps(np.ones(10), np.ones(10)).p == 1.0
    assert mcnemar(np.ones(10), np.ones(10)).p == 1.0
    assert two_groups(np.ones(10), np.ones(5)).p == 1.0


def test_groups_are_swapped_together() -> None:
    labels = np.repeat(np.arange(4), 10)
    first, second = np.ones(40), np.zeros(40)
    assert paired_swaps(first, second, labels).p == 2 / 2**4
    assert paired_swaps(first, second, labels, side="greater").resolution == 1 / 2**4


@pytest.mark.parametrize("clustered", [False, True])
def test_size_under_the_null(clustered: bool) -> None:
    rng, repetitions = generator(2), 600
    labels = np.repeat(np.arange(20), 3) if clustered else None
    p = []
    for seed in range(repetitions):
        shift = rng.normal(size=20)[np.repeat(np.arange(20), 3)] if clustered else 0.0
        first = rng.exponential(size=60) + shift
        p.append(paired_swaps(first, rng.exponential(size=60), labels, draws=199, seed=seed).p)
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2.6 * (0.05 * 0.95 / repetitions) ** 0.5


def test_size_of_two_groups() -> None:
    rng, repetitions = generator(3), 600
    p = [
        two_groups(rng.exponential(size=12), rng.exponential(size=30), draws=199, seed=seed).p
        for seed in range(repetitions)
    ]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2.6 * (0.05 * 0.95 / repetitions) ** 0.5

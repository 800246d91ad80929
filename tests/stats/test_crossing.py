"""From which size on a curve stays above a level: known curves, both kinds of errors, and thresholds in between."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.stats import Inference
from circuittest.stats.crossing import CrossingInference
from circuittest.stats.resampling import generator
from tests.helpers.simulate import Rng, misses


def of(curve: list[float], noise: float = 0.2, n: int = 100, **more: object) -> CrossingInference:
    """A curve with noise of mean zero; the last size removes everything."""
    rng = np.random.default_rng(0)
    reach = np.full(n, 4.0)
    error = noise * rng.normal(size=(len(curve), n))
    damage = np.array(curve)[:, None] * reach + error - error.mean(1, keepdims=True)
    damage[-1] = reach
    return CrossingInference(damage, reach, range(1, len(curve) + 1), level=0.8, **more)  # type: ignore[arg-type]


def test_a_first_crossing_that_does_not_hold_is_none() -> None:
    found = of([0.9, 0.5, 0.7, 0.95, 0.9, 1.0])
    assert found.value == 4
    assert found.interval() == (4, 4)
    assert isinstance(found, Inference)
    assert of([0.95, 0.99, 1.0]).value == 1
    assert of([0.1, 0.2, 1.0]).interval() == (3, 3)


def test_close_to_the_level_the_interval_is_wide() -> None:
    found = of([0.2, 0.79, 0.81, 0.805, 0.99, 1.0], noise=1.0)
    assert found.value == 3
    low, high = found.interval()
    assert (low, high) == (2, 5)


def test_p_values_agree_with_the_interval() -> None:
    found = of([0.2, 0.79, 0.81, 0.805, 0.99, 1.0], noise=1.0)
    low, high = found.interval()
    for t in (0, 1, 1.5, 2, 2.5, 3, 4, 5, 5.5, 6, 7):
        assert (found.p_value("<=", t) <= 0.025) == (high <= t)
        assert (found.p_value("<", t) <= 0.025) == (high < t)
        assert (found.p_value(">=", t) <= 0.025) == (low >= t)
        assert (found.p_value(">", t) <= 0.025) == (low > t)


def test_shares_and_sparse_sizes() -> None:
    number = of([0.2, 0.5, 0.9, 1.0])
    share = of([0.2, 0.5, 0.9, 1.0], unit=1 / 4)
    assert (number.value, share.value) == (3, 0.75)
    assert share.p_value("<=", 0.75) == number.p_value("<=", 3)
    assert share.p_value("<", 0.75) == number.p_value("<", 3) == 1.0 or share.p_value("<", 0.75) > 0.5
    reach = np.full(30, 2.0)
    sparse = CrossingInference(np.outer([0.1, 0.9, 1.0], reach), reach, [1, 8, 20], level=0.8)
    assert sparse.value == 8


def test_advice_is_about_the_size_that_decides() -> None:
    found = of([0.2, 0.79, 0.82, 0.9, 0.99, 1.0], noise=1.0)
    assert found.needed("<=", 3)["n"] > 100


def test_the_value_may_be_an_end_of_its_interval() -> None:
    assert of([0.3, 0.95, 0.97, 0.98, 1.0]).interval() == (2, 2)
    upper = of([0.3, 0.79, 0.97, 0.98, 1.0], noise=1.0)  # one size is in doubt, on one side
    assert (upper.value, upper.interval()) == (3, (2, 3))
    lower = of([0.3, 0.81, 0.97, 0.98, 1.0], noise=1.0)
    assert (lower.value, lower.interval()) == (2, (2, 3))


def test_along_the_level_a_bootstrap_would_repeat_the_error_of_the_value() -> None:
    curve, n, rng = np.array([0.3, *[0.82] * 8, 1.0]), 40, generator(3)
    missed, values = 0, []
    for _ in range(60):
        reach = 3 + rng.normal(size=n)
        damage = curve[:, None] * reach + rng.normal(size=(curve.size, n))
        damage[-1] = reach
        above = damage - 0.8 * reach
        weights = rng.multinomial(n, np.full(n, 1 / n), size=199)
        sizes = [_last_below(row) + 1 for row in weights @ above.T]
        missed += float(np.quantile(sizes, 0.025, method="inverted_cdf")) > 2
        values.append(CrossingInference(damage, reach, range(1, curve.size + 1), level=0.8).value)
    assert missed > 0.6 * 60
    assert np.mean(values) > 6  # the truth is 2


def _last_below(row: np.ndarray) -> int:
    below = np.flatnonzero(row[:-1] < 0)
    return int(below[-1]) + 1 if below.size else 0


def test_misuse() -> None:
    with pytest.raises(UsageError, match="sizes rising"):
        CrossingInference(np.ones((2, 3)), np.ones(3), [2, 1], level=0.8)
    with pytest.raises(UsageError, match="level"):
        CrossingInference(np.ones((1, 3)), np.ones(3), [1], level=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curve", "truth"),
    [
        ([0.3, *[0.8] * 8, 1.0], 2),  # runs along the level: any later size could seem below it
        ([0.3, 0.79999, 0.79999, 0.95, 1.0], 4),  # touches it from below
        ([0.9, 0.82, 0.78, 0.9, 1.0], 4),
    ],
)
@pytest.mark.parametrize("skewed", [False, True])
def test_the_size_is_covered(curve: list[float], truth: int, skewed: bool) -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        n = 40
        reach = 3 + rng.normal(size=n)
        error = rng.exponential(size=(len(curve), n)) - 1 if skewed else rng.normal(size=(len(curve), n))
        damage = np.array(curve)[:, None] * reach + error
        damage[-1] = reach
        return CrossingInference(damage, reach, range(1, len(curve) + 1), level=0.8, seed=seed)

    above, below = misses(truth, draw, repetitions=150)
    assert max(above, below) <= 0.025 + 2.6 * (0.025 * 0.975 / 150) ** 0.5

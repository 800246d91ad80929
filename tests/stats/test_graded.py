"""Graded necessity and ratios of means."""

from __future__ import annotations

import math

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.stats import Estimate, GradedNecessityInference, RatioInference
from circuittest.stats.resampling import generator


def metrics(seed: int = 0, n: int = 100, count: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = generator(seed)
    item = rng.normal(size=n)
    base = 3 + item
    circuit = base - 2 + 0.5 * rng.normal(size=n)
    controls = base - rng.gamma(2.0, 0.2, (count, 1)) + 0.2 * rng.normal(size=(count, n))
    return base, circuit, controls


def test_values_are_the_estimands() -> None:
    base, circuit, controls = metrics()
    floor = np.full(100, -1.0)
    numerator = controls.mean() - circuit.mean()
    assert GradedNecessityInference(base, circuit, controls).value == pytest.approx(numerator / base.mean())
    with_floor = GradedNecessityInference(base, circuit, controls, floor=floor)
    assert with_floor.value == pytest.approx(numerator / (base.mean() + 1))
    raw = GradedNecessityInference(base, circuit, controls, normalise=False)
    assert raw.value == pytest.approx(numerator)
    assert RatioInference(circuit, base).value == pytest.approx(circuit.mean() / base.mean())


def test_units_of_the_metric_do_not_matter() -> None:
    base, circuit, controls = metrics()
    nats = GradedNecessityInference(base, circuit, controls).interval()
    bits = GradedNecessityInference(
        base / math.log(2), circuit / math.log(2), controls / math.log(2)
    ).interval()
    assert nats == pytest.approx(bits, abs=1e-9)
    raw = GradedNecessityInference(base, circuit, controls, normalise=False).interval()
    twice = GradedNecessityInference(base, 2 * circuit, 2 * controls, normalise=False).interval()
    assert twice == pytest.approx((2 * raw[0], 2 * raw[1]), abs=1e-9)


def test_all_sets_are_narrower_than_some() -> None:
    base, circuit, controls = metrics()
    some = GradedNecessityInference(base, circuit, controls).interval()
    fewer = GradedNecessityInference(base, circuit, controls, 35).interval()
    everything = GradedNecessityInference(base, circuit, controls, enumerated=True).interval()
    assert some[1] - some[0] > fewer[1] - fewer[0] > everything[1] - everything[0]


def test_a_denominator_near_zero_bounds_nothing() -> None:
    rng = generator(3)
    weak = 0.05 + rng.normal(size=40)
    assert weak.mean() > 0
    inference = RatioInference(weak + rng.normal(size=40), weak)
    assert inference.interval() == (-math.inf, math.inf)
    estimate = Estimate(claim="sufficiency", value=inference.value, inference=inference, n_examples=40)
    assert (estimate >= 0.5).outcome == "undecided"
    assert "no bound" in (estimate >= 0.5).reason


def test_equal_ratios_have_width() -> None:
    base = 2.0 + generator(0).random(50)
    low, high = RatioInference(base, base).interval()
    assert low < 0.95 < 1.0 < 1.05 < high
    # one pseudo-example that loses everything: about 3.7/n, times the largest denominator over the mean
    assert low > 1 - 1.5 * 3.7 / 50
    nothing = GradedNecessityInference(base, base, np.tile(base, (20, 1)), normalise=False)
    assert nothing.interval() == (-math.inf, math.inf)


def test_one_control_shows_no_spread() -> None:
    base, circuit, controls = metrics()
    assert GradedNecessityInference(base, circuit, controls[:1]).interval() == (-math.inf, math.inf)
    assert math.isfinite(GradedNecessityInference(base, circuit, controls[:1], enumerated=True).interval()[0])


def test_order_and_groups() -> None:
    base, circuit, controls = metrics()
    order = generator(5).permutation(100)
    one = GradedNecessityInference(base, circuit, controls)
    two = GradedNecessityInference(base[order], circuit[order], controls[:, order])
    assert one.interval() == two.interval()
    ratio = RatioInference(circuit, base)
    assert ratio.interval() == RatioInference(circuit[order], base[order]).interval()
    labels = np.argsort(np.argsort(circuit - base)) // 10
    grouped = RatioInference(circuit, base, labels)
    assert grouped.interval()[1] - grouped.interval()[0] > 1.5 * (ratio.interval()[1] - ratio.interval()[0])
    assert "10 clusters" in grouped.method


@pytest.mark.parametrize(
    "make",
    [
        lambda: RatioInference([1.0, 2.0], [1.0]),
        lambda: RatioInference([1.0, 2.0], [-1.0, -2.0]),
        lambda: RatioInference([1.0, float("nan")], [1.0, 2.0]),
        lambda: GradedNecessityInference([1.0, 2.0], [1.0, 2.0], [[1.0, 2.0]], floor=[0.0]),
        lambda: GradedNecessityInference([1.0, 2.0], [1.0, 2.0], [[1.0, 2.0]], floor=[2.0, 3.0]),
    ],
)
def test_bad_metrics_are_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]

"""Means over models: equal weights from the top down, and what the number of models allows to say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from circuittest.errors import UsageError
from circuittest.stats import HierarchicalMeanInference, MeanInference
from circuittest.stats.resampling import generator


def suite(k: int = 6, tasks: int = 2, n: int = 30, seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = generator(seed)
    rates = rng.beta(8, 2, (k, tasks)).ravel().repeat(n)
    models, names = np.arange(k).repeat(tasks * n), np.tile(np.arange(tasks).repeat(n), k)
    return (rng.random(rates.size) < rates) * 1.0, [models, names]


def test_every_model_counts_equally_and_so_does_every_task_in_it() -> None:
    values = [1, 1, 1, 1, 0, 0.5]
    models = ["a", "a", "a", "a", "a", "b"]
    tasks = ["x", "x", "x", "x", "y", "x"]
    found = HierarchicalMeanInference(values, [models, tasks])
    # a: mean of x (1) and y (0); b: 0.5
    assert found.means == pytest.approx((0.5, 0.5))
    assert found.value == pytest.approx(0.5)
    assert (found.units, found.n_leaves, found.n) == (("a", "b"), 3, 6)
    assert HierarchicalMeanInference(values, [models]).means == pytest.approx((0.8, 0.5))


def test_order_of_examples_does_not_matter() -> None:
    values, (models, tasks) = suite()
    order = generator(1).permutation(values.size)
    one = HierarchicalMeanInference(values, [models, tasks], draws=999)
    two = HierarchicalMeanInference(values[order], [models[order], tasks[order]], draws=999)
    assert one.value == pytest.approx(two.value)
    assert one.interval() == pytest.approx(two.interval())


def test_a_sample_of_models_is_no_sample_of_their_examples() -> None:
    values, levels = suite()
    widths = {}
    for top in ("sampled", "smooth", "given"):
        low, high = HierarchicalMeanInference(values, levels, top=top).interval()
        widths[top] = high - low
    low, high = MeanInference(values).interval()
    assert widths["sampled"] > widths["smooth"] > 1.3 * widths["given"]
    assert 0.8 < widths["given"] / (high - low) < 1.5


def test_sampled_models_have_the_bound_of_as_many_values() -> None:
    values, levels = suite()
    found = HierarchicalMeanInference(values, levels)
    assert found.interval()[0] == pytest.approx(MeanInference(found.means).interval()[0], abs=1e-9)


def test_smooth_models_have_at_least_students_t() -> None:
    values, levels = suite()
    found = HierarchicalMeanInference(values, levels, top="smooth")
    half = student.ppf(0.975, 5) * np.std(found.means, ddof=1) / np.sqrt(6)
    assert found.value - found.interval()[0] >= 0.99 * half
    assert "5 df" in found.method


def test_models_that_agree_leave_width() -> None:
    values, levels = np.ones(120), [np.arange(4).repeat(30)]
    for top in ("sampled", "smooth", "given"):
        low, high = HierarchicalMeanInference(values, levels, top=top).interval()
        assert low < 0.98
        assert high == 1.0
    # as wide as one sample of 120: a leaf more or less makes no difference where all agree
    given = HierarchicalMeanInference(values, levels, top="given").interval()
    assert given[0] == pytest.approx(MeanInference(values).interval()[0], abs=0.005)


def test_one_model_says_nothing_of_models() -> None:
    rng = generator(2)
    one = HierarchicalMeanInference(rng.normal(size=50), [["m"] * 50], bounds=None)
    assert one.interval() == (-np.inf, np.inf)
    assert HierarchicalMeanInference(rng.random(50), [["m"] * 50], top="smooth").interval() == (0.0, 1.0)
    low, high = HierarchicalMeanInference(rng.random(50), [["m"] * 50]).interval()
    assert (low, high) == pytest.approx((0.0, 1.0), abs=0.06)  # the pseudo-model may be almost everything


def test_groups_within_leaves_widen() -> None:
    rng = generator(3)
    templates = np.tile(np.arange(10).repeat(6), 3)
    values = np.repeat((rng.random(30) < 0.6) * 1.0, 6)
    levels = [np.arange(3).repeat(60)]
    alone, together = (
        HierarchicalMeanInference(values, levels, groups, top="given").interval()
        for groups in (None, templates)
    )
    assert together[1] - together[0] > 1.5 * (alone[1] - alone[0])


def test_advice_counts_models() -> None:
    values, levels = suite()
    found = HierarchicalMeanInference(values, levels)
    text = found.needed(">=", found.value - 0.1)["text"]
    assert "models" in text
    assert found.needed(">=", found.value)["text"].startswith("none")
    given = HierarchicalMeanInference(values, levels, top="given")
    assert given.needed(">=", given.value - 0.02)["n"] > 360


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"levels": []}, "no levels"),
        ({"levels": [["a"]]}, "labels"),
        ({"groups": ["a"]}, "group"),
        ({"top": "all"}, "top"),
        ({"values": [2.0] * 6}, "bounds"),
        ({"draws": 10}, "draws"),
    ],
)
def test_bad_input_is_refused(change: dict[str, object], message: str) -> None:
    fields = {"values": [0.5] * 6, "levels": [["a", "a", "a", "b", "b", "b"]]} | change
    with pytest.raises(UsageError, match=message):
        HierarchicalMeanInference(**fields)  # type: ignore[arg-type]

"""One claim over several models and tasks: what is averaged, how wide it is, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.report.records import record
from circuittest.stats import (
    Estimate,
    HierarchicalMeanInference,
    Inference,
    InvalidClaim,
    MeanInference,
    RatioInference,
    Undecided,
    across,
    listen_measured,
)
from circuittest.stats.resampling import generator


def estimate(inference: Inference | None, model: str = "a", task: str = "ioi", **more: Any) -> Estimate:
    more = {"value": None if inference is None else inference.value, "n_examples": 30, **more}
    return Estimate(claim="reuse", inference=inference, model=model, fingerprint=model * 4, task=task, **more)


def suite(models: str, tasks: int = 2, n: int = 30, level: float = 0.8) -> list[Estimate]:
    rng = generator(0)
    found = []
    for model in models:
        own = rng.beta(20 * level, 20 * (1 - level))
        for task in range(tasks):
            values = rng.beta(10 * own, 10 * (1 - own), n)
            found.append(estimate(MeanInference(values), model, f"t{task}"))
    return found


def test_models_weigh_equally_and_tasks_within_them() -> None:
    ones, zeros = MeanInference(np.ones(50)), MeanInference(np.zeros(10))
    found = across([estimate(ones, "a", "x"), estimate(zeros, "a", "y"), estimate(ones, "b", "x")])
    assert found.value == pytest.approx(0.75)  # a: 0.5, b: 1
    assert found.n_examples == 90
    assert (found.model, found.task) == ("a, b", "x, y")
    assert [row["value"] for row in found.details["models"]] == [1.0, 0.0, 1.0]
    assert "only 2 models" in found.hints[0]


def test_it_is_the_interval_of_the_hierarchy() -> None:
    rows = suite("abcdef")
    found = across(rows)
    rng = generator(0)
    values, models, tasks = [], [], []
    for model in "abcdef":
        own = rng.beta(16, 4)
        for task in range(2):
            values += list(rng.beta(10 * own, 10 * (1 - own), 30))
            models += [model * 4] * 30
            tasks += [f"t{task}"] * 30
    expected = HierarchicalMeanInference(values, [models, tasks])
    assert found.value == pytest.approx(expected.value)
    assert found.interval == pytest.approx(expected.interval())
    assert "worst-case pseudo-unit" in found.choices["interval"]
    assert found.hints == ()
    widths = [
        (high - low)
        for low, high in (across(rows, top=top).interval for top in ("sampled", "smooth", "given"))
    ]  # type: ignore[arg-type,misc]
    assert widths[0] > widths[1] > widths[2]
    assert across(rows[::-1]).interval == found.interval


def test_clusters_stay_together() -> None:
    values = np.repeat(generator(1).random(10), 3)
    labels = [f"g{i // 3}" for i in range(30)]
    plain = across([estimate(MeanInference(values), m) for m in "ab"], top="given")
    grouped = across([estimate(MeanInference(values, labels), m) for m in "ab"], top="given")
    assert plain.value == pytest.approx(grouped.value)
    assert plain.interval is not None
    assert grouped.interval is not None
    assert grouped.interval[1] - grouped.interval[0] > 1.3 * (plain.interval[1] - plain.interval[0])


def test_ratios_are_one_value_a_model() -> None:
    rng = generator(2)
    rows = [
        estimate(RatioInference(rng.normal(0.6 + shift, 0.2, 40), np.ones(40)), model, task)
        for model, shift in (("a", 0.0), ("b", 0.1), ("c", -0.1), ("d", 0.05))
        for task in ("x", "y")
    ]
    found = across(rows)
    means = [(float(rows[i]) + float(rows[i + 1])) / 2 for i in range(0, 8, 2)]
    assert found.value == pytest.approx(np.mean(means))
    assert found.interval == MeanInference(means, bounds=None).interval()
    assert found >= 0.3
    for top in ("sampled", "given"):
        with pytest.raises(UsageError, match="no mean of bounded values"):
            across(rows, top=top)  # type: ignore[arg-type]


def test_one_model_says_nothing_of_models() -> None:
    (one, two) = suite("a")
    found = across([one, two], top="smooth")
    assert found.interval == (0.0, 1.0)  # what lies beyond the range says nothing
    with pytest.raises(Undecided, match="models"):
        bool(found >= 0.5)


def test_what_cannot_be_averaged() -> None:
    one = suite("a", tasks=1)[0]
    with pytest.raises(UsageError, match="no estimates"):
        across([])
    with pytest.raises(UsageError, match="is there twice"):
        across([one, one])
    other = Estimate(claim="coverage", value=0.5, inference=MeanInference([0.5]), model="c")
    with pytest.raises(UsageError, match="coverage, reuse"):
        across([one, other])
    bad = across([one, estimate(None, "b", invalid="the model is not competent")])
    with pytest.raises(
        InvalidClaim, match="1 of 2 estimates are invalid: b on ioi: the model is not competent"
    ):
        bool(bad >= 0.5)
    spent = across([one, estimate(None, "b", undecided="the budget is too small")])
    with pytest.raises(Undecided, match="b on ioi: the budget"):
        bool(spent >= 0.5)


def test_bounds_on_one_side_stay_bounds() -> None:
    rows = [
        estimate(MeanInference(np.full(30, 0.4)), m, censored="lower" if m == "a" else None) for m in "abc"
    ]
    found = across(rows, top="given")
    assert found.censored == "lower"
    assert (found >= 0.9).outcome == "undecided"
    mixed = [
        estimate(MeanInference(np.full(30, 0.4)), m, censored=side)
        for m, side in (("a", "lower"), ("b", "upper"))
    ]
    assert "their mean is neither" in across(mixed).invalid


def test_it_is_heard_and_recorded() -> None:
    heard: list[Estimate] = []
    with listen_measured(heard.append):
        found = across(suite("abc"))
    assert heard == [found] or heard[0] is found
    made = record(found >= 0.2, id="x", outcome="passed")
    assert made["details"]["models"][0]["model"] == "a"
    assert made["choices"]["over"] == "models, then tasks"

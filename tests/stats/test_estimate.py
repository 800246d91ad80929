"""Estimates refuse every comparison that would not mean what it says."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from circuittest.errors import CircuittestError, UsageError
from circuittest.stats import Estimate, InvalidClaim, MeanInference, Verdict

VALUES = np.tile([1.0, 1.0, 0.0, 1.0], 25)


def estimate(**more: object) -> Estimate:
    inference = MeanInference(VALUES)
    fields = {"claim": "reuse", "value": inference.value, "inference": inference, "n_examples": 100} | more
    return Estimate(**fields)  # type: ignore[arg-type]


def test_repr_is_one_line_with_interval_and_sizes() -> None:
    assert repr(estimate()) == "reuse 0.75 [0.65, 0.83] n=100"
    assert repr(estimate(n_controls=40, label="kept")) == "reuse 0.75 [0.65, 0.83] n=100 R=40 kept"
    assert repr(estimate(censored="lower")).startswith("reuse at least 0.75 [")
    assert repr(estimate(value=None, inference=None, invalid="no S_P")) == "reuse invalid (no S_P)"


@pytest.mark.parametrize("threshold", [0.5, 1, Fraction(1, 2), np.float64(0.5), np.float32(0.5), np.int64(0)])
def test_real_numbers_are_thresholds_on_either_side(threshold: object) -> None:
    left, right = estimate() >= threshold, threshold <= estimate()  # type: ignore[operator]
    assert isinstance(left, Verdict)
    assert isinstance(right, Verdict)
    assert (left.op, left.threshold, left.outcome) == (right.op, right.threshold, right.outcome)


@pytest.mark.parametrize(
    "threshold", [True, np.bool_(True), np.array(0.5), np.array([0.5]), "0.5", None, 0.5j, [0.5], estimate()]
)
def test_other_thresholds_are_refused(threshold: object) -> None:
    compares: list[Callable[[Any], object]] = [
        lambda e: e >= threshold,
        lambda e: e < threshold,
        lambda e: threshold <= e,
        lambda e: threshold > e,
    ]
    for compare in compares:
        with pytest.raises(TypeError):
            compare(estimate())


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), -float("inf"), np.nan])
def test_thresholds_are_finite(threshold: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        estimate() >= threshold  # noqa: B015


@pytest.mark.parametrize("other", [0.75, 1, None, "x", VALUES, estimate()])
def test_equality_is_refused(other: object) -> None:
    with pytest.raises(TypeError, match="threshold"):
        estimate() == other  # noqa: B015
    with pytest.raises(TypeError, match="threshold"):
        estimate() != other  # noqa: B015


def test_an_estimate_has_no_truth() -> None:
    with pytest.raises(TypeError, match="compare it with a threshold"):
        bool(estimate())
    with pytest.raises(TypeError, match="compare it with a threshold"):
        assert not estimate()


def test_it_can_be_put_in_sets_by_identity() -> None:
    one, two = estimate(), estimate()
    assert len({one, two, one}) == 2


def test_float_is_the_point_value() -> None:
    assert float(estimate()) == 0.75
    broken = estimate(value=None, inference=None, invalid="accuracy 0.1", hints=("train it",))
    with pytest.raises(InvalidClaim, match=r"accuracy 0.1. Train it"):
        float(broken)


def test_an_undefined_value_needs_a_reason() -> None:
    for value in (None, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="invalid"):
            estimate(value=value)


def test_only_the_threshold_measured_for_can_be_judged() -> None:
    early = estimate(decide=0.5)
    assert early >= 0.5
    with pytest.raises(ValueError, match=r"decide=0.6"):
        early >= 0.6  # noqa: B015


@pytest.mark.parametrize("wrong", [{"confidence": 95}, {"confidence": 0.5}, {"censored": "left"}])
def test_fields_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(CircuittestError):
        estimate(**wrong)


def test_copies_judge_alike() -> None:
    original = estimate()
    for twin in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert twin.interval == original.interval
        assert repr(twin) == repr(original)

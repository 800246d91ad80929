"""What must hold of every inference, whatever it is of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from circuittest.stats import (
    Inference,
    MeanInference,
    NecessityInference,
    PairedDifferenceInference,
    ProportionInference,
)

OPS: list[Any] = [">=", ">", "<=", "<"]
DRAWS = 999


@st.composite
def inferences(draw: st.DrawFn) -> Inference:
    kind = draw(
        st.sampled_from(["bounded", "unbounded", "exact", "wilson", "paired", "newcombe", "necessity"])
    )
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(1, 40))
    rate = draw(st.sampled_from([0.0, 0.05, 0.5, 0.9, 1.0]))
    hits = (rng.random(n) < rate) * 1.0
    groups = rng.integers(0, max(1, n // 3), n) if draw(st.booleans()) else None
    if kind == "bounded":
        return MeanInference(hits if draw(st.booleans()) else rng.random(n), groups, draws=DRAWS)
    if kind == "unbounded":
        return MeanInference(rng.normal(size=n), groups, bounds=None, draws=DRAWS)
    if kind in ("exact", "wilson"):
        return ProportionInference(int(hits.sum()), n, kind=kind)  # type: ignore[arg-type]
    other = (rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))) * 1.0
    if kind == "paired":
        return PairedDifferenceInference(hits, other, groups)
    if kind == "newcombe":
        return PairedDifferenceInference(hits, other, kind="newcombe")
    count = draw(st.integers(1, 12))
    controls = (rng.random((count, n)) < rng.random((count, 1))) * 1.0
    population = draw(st.sampled_from([None, count, count + 1, 10 * count, 10**30]))
    base = hits.copy()
    base[0] = 1.0
    return NecessityInference(base, other * base, controls, population, groups=groups, draws=DRAWS)


@given(inference=inferences())
def test_protocol(inference: Inference) -> None:
    assert isinstance(inference, Inference)
    assert inference.method


@given(inference=inferences())
def test_the_interval_holds_the_value_and_grows_with_confidence(inference: Inference) -> None:
    previous = (inference.value, inference.value)
    for confidence in (0.5, 0.8, 0.9, 0.95, 0.99):
        low, high = inference.interval(confidence)
        assert low <= previous[0] + 1e-12
        assert high >= previous[1] - 1e-12
        previous = low, high
    assert previous[0] < previous[1]


@given(
    inference=inferences(),
    op=st.sampled_from(OPS),
    where=st.floats(-0.2, 1.2),
    tie=st.sampled_from([0, 1, 2, 3]),
)
def test_p_value_and_interval_are_one_test(inference: Inference, op: Any, where: float, tie: int) -> None:
    low, high = inference.interval(0.95)
    if tie in (1, 2):  # exactly on an end, where ties are decided
        where = (low, high)[tie - 1]
    if tie == 3:
        where = inference.value
    if not np.isfinite(where):
        return
    supported = {">=": low >= where, ">": low > where, "<=": high <= where, "<": high < where}[op]
    p = inference.p_value(op, where)
    assert 0.0 <= p <= 1.0
    if abs(p - 0.025) > 1e-9:  # analytic bounds are inverted to rounding error
        assert (p <= 0.025) == supported, (p, low, high)


@given(inference=inferences(), threshold=st.floats(-0.2, 1.2), step=st.floats(0, 0.5))
def test_p_values_are_monotone_in_the_threshold(inference: Inference, threshold: float, step: float) -> None:
    assert inference.p_value(">=", threshold) <= inference.p_value(">=", threshold + step) + 1e-9
    assert inference.p_value("<=", threshold) >= inference.p_value("<=", threshold + step) - 1e-9
    assert inference.p_value(">=", threshold) <= inference.p_value(">", threshold) + 1e-9


@given(inference=inferences(), op=st.sampled_from(OPS), threshold=st.floats(-0.2, 1.2))
def test_advice_is_plain(inference: Inference, op: Any, threshold: float) -> None:
    advice = inference.needed(op, threshold)
    assert set(advice) == {"n", "controls", "text"}
    assert advice["text"]


@given(seed=st.integers(0, 10**6), n=st.integers(2, 60), grouped=st.booleans())
@settings(max_examples=25)
def test_the_order_of_examples_changes_nothing(seed: int, n: int, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    base, circuit = (rng.random(n) < 0.9) * 1.0, (rng.random(n) < 0.3) * 1.0
    base[0] = 1.0
    controls = (rng.random((7, n)) < 0.8) * 1.0
    reals = np.round(rng.random(n), 1)
    groups = rng.integers(0, max(2, n // 4), n) if grouped else None
    order = rng.permutation(n)
    moved = None if groups is None else groups[order]
    pairs = [
        (MeanInference(reals, groups, draws=DRAWS), MeanInference(reals[order], moved, draws=DRAWS)),
        (
            MeanInference(reals, groups, bounds=None, draws=DRAWS),
            MeanInference(reals[order], moved, bounds=None, draws=DRAWS),
        ),
        (
            NecessityInference(base, circuit, controls, groups=groups, draws=DRAWS),
            NecessityInference(base[order], circuit[order], controls[:, order], groups=moved, draws=DRAWS),
        ),
    ]
    for one, two in pairs:
        assert one.value == two.value
        assert one.interval(0.95) == two.interval(0.95)
        assert one.p_value(">=", 0.4) == two.p_value(">=", 0.4)


def test_equal_inputs_give_equal_bytes_and_the_seed_matters() -> None:
    values = np.random.default_rng(0).random(50)
    one, two, other = MeanInference(values), MeanInference(values), MeanInference(values, seed=1)
    assert one.draws()[0].tobytes() == two.draws()[0].tobytes()
    assert one.interval() != other.interval()
    assert one.interval() == pytest.approx(other.interval(), abs=0.01)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, float("nan")])
def test_confidence_is_a_fraction(confidence: float) -> None:
    for inference in (
        MeanInference([0.0, 1.0]),
        ProportionInference(1, 2),
        ProportionInference(1, 2, kind="wilson"),
    ):
        with pytest.raises(ValueError, match="confidence"):
            inference.interval(confidence)


def test_a_confidence_beyond_the_draws_gives_the_logical_limits() -> None:
    assert MeanInference([0.2, 0.8], draws=199).interval(0.9999) == (0.0, 1.0)

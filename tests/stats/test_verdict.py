"""The verdict rule, exhaustively and mirrored; taking the truth; what a verdict says."""

from __future__ import annotations

import contextvars
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from circuittest.errors import CircuittestError
from circuittest.stats import (
    Estimate,
    InvalidClaim,
    MeanInference,
    NecessityInference,
    Undecided,
    announce,
    listen,
    listen_measured,
)

OPS = [">=", ">", "<=", "<"]
FLIP = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
BOUNDS = st.one_of(st.floats(-2, 2), st.integers(-2, 2).map(float))


@dataclass
class Fixed:
    """An inference with a given interval."""

    low: float
    high: float
    value: float = 0.0
    method: str = "given"
    advice: Any = "a miracle"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        return self.low, self.high

    def p_value(self, op: str, threshold: float) -> float:
        return 0.04

    def needed(self, op: str, threshold: float) -> Any:
        return self.advice


def fixed(low: float, high: float, **more: Any) -> Estimate:
    value = (low + high) / 2 if math.isfinite(low + high) else 0.0
    return Estimate(
        claim="necessity", value=value, inference=Fixed(low, high, value), n_examples=10, n_controls=4, **more
    )


@pytest.mark.parametrize(
    ("op", "threshold", "outcome"),
    [
        (">=", 0.2, "supported"), (">=", 0.3, "undecided"), (">=", 0.4, "undecided"), (">=", 0.41, "refuted"),
        (">", 0.2, "undecided"), (">", 0.19, "supported"), (">", 0.4, "refuted"), (">", 0.39, "undecided"),
        ("<=", 0.4, "supported"), ("<=", 0.3, "undecided"), ("<=", 0.2, "undecided"), ("<=", 0.19, "refuted"),
        ("<", 0.4, "undecided"), ("<", 0.41, "supported"), ("<", 0.2, "refuted"), ("<", 0.21, "undecided"),
    ],
)  # fmt: skip
def test_the_rule_with_its_ties(op: Any, threshold: float, outcome: str) -> None:
    assert fixed(0.2, 0.4).compare(op, threshold).outcome == outcome


@given(ends=st.tuples(BOUNDS, BOUNDS), threshold=BOUNDS, op=st.sampled_from(OPS))
def test_mirror_and_complement(ends: tuple[float, float], threshold: float, op: Any) -> None:
    low, high = sorted(ends)
    outcome = fixed(low, high).compare(op, threshold).outcome
    assert outcome == fixed(-high, -low).compare(FLIP[op], -threshold).outcome  # type: ignore[arg-type]
    # ">= t" and "< t" are each other's negation
    negated = {">=": "<", ">": "<=", "<=": ">", "<": ">="}[op]
    other = fixed(low, high).compare(negated, threshold).outcome  # type: ignore[arg-type]
    swap = {"supported": "refuted", "refuted": "supported", "undecided": "undecided"}
    if low < high or low != threshold:
        assert other == swap[outcome]
    if outcome == "supported":
        inside = {
            ">=": low >= threshold,
            ">": low > threshold,
            "<=": high <= threshold,
            "<": high < threshold,
        }
        assert inside[op]


@pytest.mark.parametrize(
    ("censored", "op", "threshold", "outcome"),
    [
        ("lower", ">=", 0.1, "supported"), ("lower", ">=", 0.5, "undecided"), ("lower", ">", 0.4, "undecided"),
        ("lower", "<=", 0.5, "undecided"), ("lower", "<", 0.5, "undecided"), ("lower", "<=", 0.1, "refuted"),
        ("upper", "<=", 0.5, "supported"), ("upper", "<=", 0.1, "undecided"), ("upper", "<", 0.2, "undecided"),
        ("upper", ">=", 0.1, "undecided"), ("upper", ">", 0.1, "undecided"), ("upper", ">=", 0.5, "refuted"),
    ],
)  # fmt: skip
def test_a_limit_supports_on_one_side_only(censored: Any, op: Any, threshold: float, outcome: str) -> None:
    verdict = fixed(0.2, 0.4, censored=censored).compare(op, threshold)
    assert verdict.outcome == outcome
    if outcome == "undecided":
        assert f"at {'least' if censored == 'lower' else 'most'}" in verdict.reason
    if (censored, op) in {("lower", "<="), ("lower", "<"), ("upper", ">="), ("upper", ">")}:
        assert verdict.p_value == 1.0


def test_truth() -> None:
    estimate = fixed(0.2, 0.4)
    assert estimate >= 0.1
    assert not (estimate >= 0.5)
    assert 0.1 <= estimate <= 0.5  # chained: both truths are taken
    for take in (bool, lambda v: not v, lambda v: v == True):  # noqa: E712
        with pytest.raises(Undecided) as undecided:
            take(estimate >= 0.3)
        assert not isinstance(undecided.value, AssertionError)
        assert isinstance(undecided.value, CircuittestError)
        assert undecided.value.verdict is not None
        assert undecided.value.verdict.threshold == 0.3
    broken = Estimate(claim="necessity", value=None, invalid="accuracy 0.1 is no competence")
    with pytest.raises(InvalidClaim, match="no competence"):
        bool(broken >= 0.3)
    assert (broken >= 0.3).p_value is None
    assert (broken < 0.3).outcome == "invalid"


def test_equality_takes_the_truth() -> None:
    verdict = fixed(0.2, 0.4) >= 0.1
    assert verdict == True  # noqa: E712
    assert verdict != False  # noqa: E712
    assert verdict == verdict
    assert verdict != (fixed(0.2, 0.4) >= 0.1)
    assert len({verdict, verdict}) == 1


def test_listeners_hear_every_truth_before_it_is_told() -> None:
    heard: list[tuple[str, str]] = []
    supported, undecided = fixed(0.2, 0.4) >= 0.1, fixed(0.2, 0.4) >= 0.3
    with listen(lambda v: heard.append(("outer", v.outcome))):
        assert heard == []  # a comparison alone is no judgement
        bool(supported)
        with listen(lambda v: heard.append(("inner", v.outcome))), pytest.raises(Undecided):
            bool(undecided)
        bool(supported)
        contextvars.Context().run(bool, supported)  # another context does not hear
    bool(supported)
    assert heard == [
        ("outer", "supported"), ("outer", "undecided"), ("inner", "undecided"), ("outer", "supported"),
    ]  # fmt: skip


def test_a_listener_that_fails_is_removed_and_heard() -> None:
    def failing(verdict: object) -> None:
        raise KeyError("listener")

    with pytest.raises(KeyError), listen(failing):
        bool(fixed(0.2, 0.4) >= 0.1)
    assert fixed(0.2, 0.4) >= 0.1


def test_measured_estimates_are_announced() -> None:
    heard: list[Estimate] = []
    estimate = fixed(0.2, 0.4)
    with listen_measured(heard.append):
        announce(estimate)
    announce(estimate)
    assert len(heard) == 1
    assert heard[0] is estimate


def test_repr_has_three_lines_and_digits_that_differ_from_the_threshold() -> None:
    verdict = fixed(0.2996, 0.41, model="zoo:gqa", task="ioi") >= 0.3
    lines = repr(verdict).splitlines()
    assert lines[0] == "necessity >= 0.3 is undecided (zoo:gqa, ioi)"
    assert lines[1] == "measured 0.35 [0.2996, 0.41] n=10 R=4"
    assert lines[2] == "the interval [0.2996, 0.41] contains 0.3; what would decide it: a miracle"
    assert len(lines) == 3
    invalid = Estimate(claim="necessity", value=None, invalid="no control exists") >= 0.3
    assert repr(invalid) == "necessity >= 0.3 is invalid\nno control exists"


def test_explain_tells_everything() -> None:
    @dataclass
    class Named:
        name: str = "S_95"
        units: tuple[str, ...] = ("L2.H1", "L3.MLP")

    estimate = fixed(
        0.2, 0.4, model="zoo:gqa", task="ioi", circuit=Named(), hints=("use more controls",),
        details={"acc_base": 0.98, "acc_controls": [0.9] * 40, "floor": {"floor": 0.5}}, choices={"seed": 0},
        reproduce="circuittest check ioi.circuit.yaml",
    )  # fmt: skip
    text = (estimate >= 0.5).explain()
    for part in (
        "necessity >= 0.5 is refuted (zoo:gqa, ioi)", "0.30 [0.20, 0.40] n=10 R=4", "95 %", "given",
        "0.04 against necessity < 0.5", "S_95: L2.H1 L3.MLP", "acc_base=0.98", "acc_controls=[40 values]",
        "floor={floor: 0.5}", "seed=0", "use more controls", "circuittest check ioi.circuit.yaml",
    ):  # fmt: skip
        assert part in text, part


def test_choices_that_were_told_elsewhere_are_counted() -> None:
    chosen = {"interval": "given", "seed": 0, "top": "20%", "ablation": "zero"}
    verdict = fixed(0.2, 0.4, choices=chosen) >= 0.5
    assert "choices    seed=0, top=20%, ablation=zero" in verdict.explain().splitlines()[-3]
    text = verdict.explain(known={"seed": 0, "top": "10%", "controls": 3}, where="above")
    assert "  choices    top=20%, ablation=zero; 1 more as above\n" in text
    assert "  choices    3 more as for a::b\n" in verdict.explain(known=chosen, where="for a::b")


def test_without_an_interval_nothing_is_decided() -> None:
    verdict = Estimate(claim="x", value=0.9) >= 0.1
    assert (verdict.outcome, verdict.p_value) == ("undecided", None)
    unbounded = Estimate(claim="x", value=0.9, inference=MeanInference([0.9] * 5, bounds=None), n_examples=5)
    assert unbounded.interval == (-math.inf, math.inf)
    assert (unbounded >= 0.1).outcome == "undecided"


def test_undecided_says_what_would_decide() -> None:
    rng = np.random.default_rng(0)
    mean = MeanInference((rng.random(100) < 0.6) * 1.0)
    verdict = Estimate(claim="reuse", value=mean.value, inference=mean, n_examples=100) >= mean.value - 0.05
    assert verdict.needed is not None
    assert verdict.needed["n"] > 100
    assert f"n = {verdict.needed['n']}" in verdict.reason
    within = Estimate(claim="reuse", value=mean.value, inference=mean, margin=0.05) >= mean.value - 0.03
    assert "none: within the margin of the threshold" in within.reason
    assert within.needed == {"n": None, "controls": None, "text": "none: within the margin of the threshold"}

    base, circuit = np.ones(100), (rng.random(100) < 0.3) * 1.0
    controls = (rng.random((20, 100)) < rng.uniform(0.5, 1.0, (20, 1))) * 1.0
    sampled = NecessityInference(base, circuit, controls)
    advice = sampled.needed(">=", sampled.value - 0.04)
    assert advice["controls"] > 20
    assert advice["n"] >= 100
    few = NecessityInference(base, circuit, controls, population=30).needed(">=", sampled.value - 0.04)
    assert few["controls"] in (None, 30)
    all_in = NecessityInference(base, circuit, controls, enumerated=True).needed(">=", sampled.value - 0.04)
    assert "exhausted" in all_in["text"]
    assert all_in["n"] > 100


def test_rows_of_data_frames() -> None:
    verdict = fixed(0.2, 0.4, model="zoo:gqa", task="ioi") >= 0.5
    row = verdict.to_dict()
    assert (row["claim"], row["value"], row["low"], row["high"]) == (
        "necessity",
        pytest.approx(0.3),
        0.2,
        0.4,
    )
    assert (row["op"], row["threshold"], row["outcome"], row["p_value"]) == (">=", 0.5, "refuted", 0.04)
    assert set(verdict.estimate.to_dict()) < set(row)
    invalid = Estimate(claim="necessity", value=None, invalid="no control exists").to_dict()
    assert (invalid["value"], invalid["low"], invalid["invalid"]) == (None, None, "no control exists")
    assert all(
        value is None or isinstance(value, (str, int, float)) for value in [*row.values(), *invalid.values()]
    )

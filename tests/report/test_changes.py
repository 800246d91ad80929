"""Drawings of differences: minimality, random circuits, other tasks' circuits, base and tuned, and checkpoints."""

from __future__ import annotations

import re

from hypothesis import given, strategies as st

from circuittest.report.changes import across_models
from circuittest.report.lanes import lanes, series
from circuittest.report.plots import plots


def record(details: dict, estimate: float = 0.5, **choices) -> dict:
    return {"details": details, "choices": choices, "circuit": None, "estimate": estimate, "task": "ioi"}


def marks(drawing: str, kind: str = "value") -> list[float]:
    return [float(x) for x in re.findall(rf'<circle cx="([^"]*)"[^>]*class="{kind}"', drawing)]


UNITS = {
    "L1.H2": {"effect": 0.8, "exceeds": 1.0},
    "L3.MLP": {"effect": 0.1, "exceeds": 0.5},
    "L0.H1": {"effect": 0.4, "exceeds": 0.9},
}
REFERENCES = {"head": {"effects": [0.0, 0.2]}, "mlp": {"effects": [0.3]}}


def test_minimality_ranks_units_among_additions_of_their_kind():
    (plot,) = plots(record({"units": UNITS, "references": REFERENCES}, metric="logit_diff"))
    assert [row[0] for row in plot.rows] == ["L1.H2", "L0.H1", "L3.MLP"]
    assert plot.rows[0] == ("L1.H2", "0.8", "1")
    at = marks(plot.svg)
    assert at[0] > at[1] > at[2]
    assert len(marks(plot.svg, "control")) == 2 + 2 + 1
    assert "change of logit_diff" in plot.svg


def test_random_circuits_and_sizes_of_sufficiency():
    curve = {"units": [2, 10, 20], "of": 40, "sufficiency": [0.1, 0.9, 1.1]}
    first, second = plots(record({"controls": {"sufficiency": [0.1, 0.3]}, "curve": curve}, 0.7))
    assert first.rows == (("the circuit", "0.7"), ("random circuit 1", "0.1"), ("random circuit 2", "0.3"))
    assert second.rows == (("5 %", "0.1"), ("25 %", "0.9"), ("50 %", "1.1"))
    assert 'class="threshold"' in second.svg


def test_specificity_shows_every_circuit_from_zero():
    (plot,) = plots(record({"drops": {"own": 0.6, "others": {"sva": 0.1, "facts": -0.05}}}))
    assert plot.rows == (("own circuit", "0.6"), ("sva", "0.1"), ("facts", "−0.05"))
    at = marks(plot.svg)
    assert at[0] > at[1] > at[2]


def test_drift_goes_from_the_base_to_the_tuned_model():
    details = {"m_base": 3.0, "m_tuned": 1.0, "beyond_base": 0.5, "beyond_tuned": 0.6, "acc_base": 1.0}
    (plot,) = plots(record(details, metric="log_prob"))
    assert plot.rows == (("log_prob", "3", "1", "−2"), ("damage beyond controls", "0.5", "0.6", "0.1"))
    assert len(marks(plot.svg)) == 2


def judged(model: str, value: float | None, *, id: str = "s.yaml::necessity[{}]", at: float = 0.3) -> dict:
    return {
        "id": id.format(model), "model": model, "claim": "necessity", "task": "ioi", "estimate": value,
        "interval": None if value is None else [value - 0.1, None], "threshold": {"op": ">=", "value": at},
        "censored": None, "verdict": "supported", "label": None, "outcome": "passed",
    }  # fmt: skip


def test_checkpoints_are_in_the_order_of_their_steps():
    names = ["zoo:gqa", "zoo:gqa@step1600", "zoo:gqa@step200", "zoo:gqa@step800"]
    ((title, plot),) = across_models([judged(name, 0.1 * i) for i, name in enumerate(names)])
    assert title == "s.yaml::necessity"
    assert [row[0] for row in plot.rows] == [names[2], names[3], names[1], names[0]]
    xs = marks(plot.svg)
    assert xs == sorted(xs)
    assert ">gqa@step200<" in plot.svg  # without what all names begin with
    assert "what was asked (>= 0.3)" in plot.caption


def test_only_what_differs_by_the_model_alone_is_put_together():
    assert across_models([judged("a", 0.1)]) == []
    assert across_models([judged("a", 0.1), judged("a", 0.2, id="t::x[{}]")]) == []
    assert across_models([judged("a", 0.1), judged("b", None)]) == []
    assert across_models([judged("a", 0.1, id="x"), judged("b", 0.1, id="y")]) == []
    ((title, plot),) = across_models(
        [judged("a", 0.1, id="t[{}-ioi]"), judged("b", 0.1, id="t[{}-ioi]", at=0.4)]
    )
    assert title == "t[ioi]"
    assert "asked" not in plot.caption  # two thresholds, no line
    assert 'class="threshold"' not in plot.svg


def test_nothing_is_drawn_of_other_shapes():
    for details in (
        {"units": [], "references": {}}, {"units": {"L1.H2": {}}, "references": {}}, {"units": {}, "references": {}},
        {"controls": {"undefined": "none"}}, {"curve": {"units": [1], "sufficiency": [1.0], "of": 3}},
        {"curve": {"units": [1, 2], "sufficiency": [1.0], "of": 3}}, {"drops": {"own": 1.0, "others": {}}},
        {"m_base": None, "m_tuned": 1.0},
    ):  # fmt: skip
        assert plots(record(details)) == [], details


NUMBERS = st.floats(-1e12, 1e12)


@given(
    st.lists(st.tuples(st.text(max_size=30), st.lists(NUMBERS, max_size=3), NUMBERS), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_lanes_hold_any_numbers(rows, joined, origin):
    shown = [(name, dots, [("x", value), ("y", value)]) for name, dots, value in rows]
    drawn = lanes("t", shown, "u", joined=joined, origin=origin)
    assert "nan" not in drawn.replace("nance", "")
    width = float(drawn.partition('width="')[2].partition('"')[0])
    assert all(0 <= x <= width for x in marks(drawn) + marks(drawn, "control"))


@given(
    st.lists(
        st.tuples(st.text(max_size=30), NUMBERS, st.tuples(st.none() | NUMBERS, st.none() | NUMBERS)),
        min_size=1,
        max_size=6,
    ),
    st.none() | NUMBERS,
)
def test_series_hold_any_numbers(points, level):
    drawn = series("t", points, "u", level)
    height = float(drawn.partition('height="')[2].partition('"')[0])
    ys = [float(y) for y in re.findall(r'<circle cx="[^"]*" cy="([^"]*)"', drawn)]
    assert len(ys) == len(points)
    assert all(0 <= y <= height for y in ys)

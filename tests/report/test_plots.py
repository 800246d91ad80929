"""Plots: which details give which drawing, the numbers beside it, and that nothing is drawn of what is not there."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from circuittest.report import svg
from circuittest.report.plot import MOST_COLUMNS, MOST_MATRIX
from circuittest.report.plots import plots, unit_map


def record(details: dict, circuit: list[str] | None = None, **choices) -> dict:
    return {
        "details": details,
        "choices": choices,
        "circuit": None if circuit is None else {"name": "c", "units": circuit, "edges": []},
    }


def one(details: dict, *args, **choices):
    (plot,) = plots(record(details, *args, **choices))
    return plot


def numbers(drawing: str, tag: str, attribute: str, kind: str = "") -> list[float]:
    """An attribute of the elements of a drawing, in order."""
    found = re.findall(rf"<{tag}\b[^>]*>", drawing)
    return [float(re.search(rf'\b{attribute}="([^"]*)"', e)[1]) for e in found if f'class="{kind}' in e]


def test_controls_beside_the_circuit():
    plot = one({"acc_controls": [0.5, 0.9, 0.9], "acc_circuit": 0.1, "acc_base": 1.0})
    assert plot.rows == (
        ("circuit ablated", "0.1"), ("nothing ablated", "1"),
        ("control 1", "0.5"), ("control 2", "0.9"), ("control 3", "0.9"),
    )  # fmt: skip
    at = numbers(plot.svg, "circle", "cx", "control")
    assert at[0] < at[1] == at[2]
    heights = numbers(plot.svg, "circle", "cy", "control")
    assert heights[1] > heights[2]  # piled
    circuit, base = numbers(plot.svg, "line", "x1", "mark")
    assert circuit < at[0] < at[1] < base
    # the axis is linear: 0.1, 0.5, 0.9
    assert at[0] - circuit == pytest.approx(at[1] - at[0], abs=0.2)
    assert "3 controls from 0.5 to 0.9" in plot.svg


def test_graded_necessity_names_its_metric():
    details = {"m_controls": [1.0, 2.0], "m_circuit": -1.0, "m_base": 3.0}
    assert one(details, metric="logit_diff").columns == ("set", "logit_diff")


def test_closure_has_a_strip_for_each_measure_and_for_the_complement():
    part = {"effect": 2.0, "controls": [0.0, 1.0]}
    found = plots(record({"log_prob": part, "argmax": part, "with_complement_removed": {"argmax": part}}))
    assert [plot.columns[1] for plot in found] == [
        "damage in log_prob", "damage in argmax", "damage in argmax, complement removed",
    ]  # fmt: skip


def test_selective_has_a_strip_for_each_task():
    details = {"damage": {"ioi": 0.5, "sva": 0.1}, "damage_controls": {"ioi": [0.0], "sva": [0.2]}}
    assert [plot.columns[1] for plot in plots(record(details))] == ["damage on ioi", "damage on sva"]


def test_reuse_over_p():
    plot = one({"curve": {"50": 0.8, "100": 0.4, "95": 0.6}, "chance": 0.1}, at="95%")
    assert plot.rows == (("50", "0.8"), ("95", "0.6"), ("100", "0.4"))
    places = re.search(r'points="([^"]*)"', plot.svg)[1].split()
    xs, ys = zip(*(map(float, place.split(",")) for place in places), strict=True)
    assert xs[0] < xs[1] < xs[2]
    assert ys[0] < ys[1] < ys[2]  # downwards on the page
    across, upright = numbers(plot.svg, "line", "x1", "threshold")
    assert upright == xs[1]
    assert across == 54
    assert "(95 %)" in plot.caption
    assert "(95 %)" not in one({"curve": {"50": 0.8, "100": 0.4}}, at=3).caption


def test_damage_over_units_begins_at_nothing():
    plot = one({"damage": {"1": 0.4, "10": 1.0, "2": 0.7}, "units_to": {"number": 3}}, damage=0.8)
    assert [row[0] for row in plot.rows] == ["1", "2", "10"]
    assert len(re.search(r'points="([^"]*)"', plot.svg)[1].split()) == 4
    assert plots(record({"damage": {"1": 0.4, "2": 0.7}})) == []  # selective's damage is another thing


def test_damage_stands_beside_random_orders():
    details = {"damage": {"1": 0.4, "10": 1.0, "2": 0.7}, "units_to": {"number": 3}}
    random = {"1": [0.0, 0.3], "2": [0.1, 0.5], "10": [1.0, 1.0]}
    plot = one(details | {"random_orders": {"damage": random}}, damage=0.8)
    assert plot.columns == ("units", "damage", "random: least", "mean", "most")
    assert plot.rows == (
        ("1", "0.4", "0", "0.15", "0.3"),
        ("2", "0.7", "0.1", "0.3", "0.5"),
        ("10", "1", "1", "1", "1"),
    )
    assert "2 random orders" in plot.caption
    around = re.search(r'<polygon points="([^"]*)"', plot.svg)[1].split()
    assert len(around) == 8  # from nothing up along the most, back along the least
    assert around[0] == around[-1]
    (curve,) = re.findall(r'<polyline points="([^"]*)" class="curve"', plot.svg)
    assert float(curve.split()[1].split(",")[1]) < float(
        around[1].split(",")[1]
    )  # more damage than any: above the band
    for broken in ({}, {"1": [0.1]}, {"1": [], "2": [], "10": []}, {"1": [None], "2": [0.1], "10": [1.0]}):
        assert one(details | {"random_orders": {"damage": broken}}).columns == ("units", "damage")


def test_cross_task_matrix():
    cell = lambda value: {"value": value, "interval": [0, 1]}
    drops = {"ioi": {"ioi": cell(0.9), "sva": cell(-0.1)}, "sva": {"ioi": cell(0.3), "sva": cell(0.5)}}
    plot = one({"drops": drops})
    assert plot.rows == (("ioi", "0.9", "−0.1"), ("sva", "0.3", "0.5"))
    assert "ioi sva: −0.1" in plot.svg
    assert numbers(plot.svg, "rect", "fill-opacity", "below") == [0.055]
    # of specificity: another drawing
    assert one({"drops": {"own": 0.4, "others": {"sva": 0.1}}}).columns == (
        "circuit ablated",
        "accuracy lost",
    )


def test_families_stand_together_in_frames():
    details = {
        "subtasks": ["a", "b", "c"],
        "similarity": [[1, 0.2, 0.9], [0.2, 1, None], [0.9, None, 1]],
        "families": [{"subtasks": ["a", "c"]}, {"subtasks": ["b"]}],
    }
    plot = one(details)
    assert plot.rows == (
        ("a", "1", "0.9", "0.2"), ("c", "0.9", "1", "undefined"), ("b", "0.2", "undefined", "1"),
    )  # fmt: skip
    assert numbers(plot.svg, "rect", "width", "family") == [92.0, 46.0]
    del details["families"]
    assert [row[0] for row in one(details).rows] == ["a", "b", "c"]


def test_heads_by_layer_with_members_framed():
    plot = one({"effects": {"L0.H0": 0.5, "L1.H1": -1.0, "L1.MLP": 0.1}}, ["L0.H0"])
    assert plot.rows == (("L1.H1", "−1", "no"), ("L0.H0", "0.5", "yes"), ("L1.MLP", "0.1", "no"))
    assert numbers(plot.svg, "rect", "fill-opacity", "below") == [1.0]
    assert numbers(plot.svg, "rect", "fill-opacity", "above member") == [0.5]
    assert plot.svg.count('class="place"') == 3
    assert re.findall(r">(H0|H1|MLP)<", plot.svg) == ["H0", "H1", "MLP"]


def test_nothing_is_drawn_of_what_is_not_there():
    wrong = {
        "acc_controls": [0.5, None], "acc_circuit": 0.1, "curve": {"sizes": [1]}, "chance": None, "drops": 3,
        "effects": {"L0.H0-1": 0.3}, "scores": {}, "subtasks": ["a"], "similarity": [[1]], "frequency": {"x": None},
        "damage": {"ioi": 0.1}, "damage_controls": {"ioi": []}, "units_to": 3, "log_prob": {"effect": None},
    }  # fmt: skip
    assert plots(record(wrong)) == []
    assert plots(record({})) == []
    assert plots(record({"acc_controls": [-1e308, 1e308, 10**400], "acc_circuit": 0.5})) == []
    many = {f"L0.N{i}": 1.0 for i in range(MOST_COLUMNS + 1)}
    assert unit_map("t", "c", many) is None
    names = [str(i) for i in range(MOST_MATRIX + 1)]
    assert plots(record({"subtasks": names, "similarity": [[1] * len(names)] * len(names)})) == []


KEYS = [
    "acc_controls", "acc_circuit", "m_controls", "m_base", "curve", "chance", "damage", "damage_controls", "units_to",
    "drops", "subtasks", "similarity", "families", "effects", "scores", "effect", "controls", "with_complement_removed",
]  # fmt: skip
WORDS = st.sampled_from(["L0.H0", "L1.MLP", "a", "1", "2", "value", "subtasks", "effect", "controls"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_claims_of_other_packages_may_mean_something_else_by_these_words(details):
    for plot in plots(record(details, ["L0.H0"], at="5%", damage=0.8)):
        assert plot.rows
        assert "nan" not in plot.svg


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_axes_have_round_numbers_about_all_values(a, b):
    low, high = min(a, b), max(a, b)
    ticks = svg.nice(low, high)
    slack = 1e-6 * max(abs(low), abs(high), 1e-9)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= 8
    assert all(x < y for x, y in pairwise(ticks))


def test_intervals_shade_the_side_that_is_claimed():
    def drawn(op, interval=(0.4, 0.6)):
        return svg.span("t", interval, 0.5, 0.25, op, (0.0, 1.0))

    assert numbers(drawn(">="), "rect", "x", "claimed") == [48.0]
    assert numbers(drawn("<"), "rect", "x", "claimed") == [6.0]
    assert numbers(drawn("<"), "rect", "width", "claimed") == [42.0]
    assert numbers(drawn(">="), "circle", "cx", "value") == [90.0]
    assert drawn(">=", (None, 0.6)).count('class="open"') == 1
    assert drawn(">=").count('class="open"') == 0

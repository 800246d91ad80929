"""The table of claims, the bars and the heat map: what they show, and that they fit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from circuittest.report.bars import axis, bar
from circuittest.report.heatmap import heatmap
from circuittest.report.records import record
from circuittest.report.terminal import claims_table, counts, together
from circuittest.stats import Estimate, ProportionInference


def made(successes: int, threshold: float | None, name: str, outcome: str = "passed", **more):
    inference = ProportionInference(successes, 200)
    estimate = Estimate(claim="necessity", value=successes / 200, inference=inference, n_examples=200, **more)
    return record(estimate if threshold is None else estimate >= threshold, id=name, outcome=outcome)


INVALID = record(Estimate(claim="reuse", value=None, invalid="no examples") >= 0.3, id="e", outcome="failed")
ALL = [
    made(150, 0.3, "a", n_controls=40),
    made(10, 0.3, "b", "failed"),
    made(65, 0.3, "c", "skipped"),
    made(65, None, "d"),
    INVALID,
]


def test_rows_and_reasons():
    lines = claims_table(ALL, width=120).splitlines()
    assert lines[0].split() == ["claim", "estimate", "0", "to", "1", "asked", "n", "verdict"]
    assert re.fullmatch(r"a +0\.75 \[0\.68, 0\.81\] +\S{20} +>= 0\.3 +200/40 +supported", lines[1])
    assert lines[2].endswith("refuted")
    assert lines[3].endswith("undecided, test skipped")
    assert lines[4].endswith("200     measured")
    assert re.fullmatch(r"e +undefined +>= 0\.3 +0 +invalid", lines[5])
    assert [line.partition(":")[0] for line in lines[6:]] == ["b", "c", "e"]
    assert lines[8] == "e: no examples"


def test_a_value_near_the_threshold_is_told_from_it():
    assert " 0.3050 [" in claims_table([made(61, 0.3049, "a")], width=120)


def test_bounds_are_marked():
    assert ">=0.75 [" in claims_table([made(150, 0.3, "a", censored="lower")], width=120)


def test_labels_and_surprising_outcomes():
    text = claims_table([made(10, 0.3, "a", "passed", label="moved")], width=120)
    assert "refuted (moved), test passed" in text
    assert "supported, in a fixture" in claims_table([made(150, 0.3, "a", "fixture")], width=120)


def test_counts():
    assert counts(ALL) == "1 supported, 1 refuted, 1 undecided, 1 invalid, 1 measured"
    assert counts([]) == "none"


@given(width=st.integers(50, 200), length=st.integers(1, 150), unicode=st.booleans())
def test_fits_every_width(width, length, unicode):
    text = claims_table([made(150, 0.3, "x" * length), made(10, 0.3, "y")], width=width, unicode=unicode)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    assert unicode or text.isascii()
    joined = "".join(line.strip() for line in lines)
    assert "x" * length in joined
    assert "supported" in joined


def test_colour_only_where_asked():
    assert "\x1b" not in claims_table(ALL, width=100)
    assert "\x1b[32m" in claims_table(ALL, width=100, colour=True)


def test_markup_in_ids_is_text():
    assert "t[red]x[/red]" in claims_table([made(150, 0.3, "t[red]x[/red]")], width=120)


@pytest.mark.parametrize(
    ("interval", "value", "threshold", "drawn"),
    [
        ((0.2, 0.6), 0.4, 0.8, "··├─●─┤·┃··"),
        ((0.0, 1.0), 0.5, None, "├────●────┤"),
        ((None, 0.5), 0.2, None, "←─●──┤·····"),
        ((0.5, None), 0.7, None, "·····├─●──→"),
        ((0.5, 0.5), 0.5, 0.5, "·····┃·····"),
        (None, None, 0.3, "···┃·······"),
        ((-3.0, 7.0), 9.0, -2.0, "┃─────────●"),
    ],
)
def test_bars(interval, value, threshold, drawn):
    assert bar(interval, value, threshold, (0.0, 1.0), width=11) == drawn
    assert bar(interval, value, threshold, (0.0, 1.0), width=11, ascii_only=True).isascii()


def test_axes():
    assert axis([]) == (0.0, 1.0)
    assert axis([0.2, None, 0.9]) == (0.0, 1.0)
    assert axis([-0.2, 0.9]) == (-1.0, 1.0)
    assert axis([3.0, -7.0]) == (-7.0, 3.0)
    assert axis([5.0]) == (0.0, 5.0)


def test_heat_map():
    scores = {f"L{layer}.H{head}": float(layer * head) for layer in range(3) for head in range(4)}
    lines = heatmap(scores | {"L1.MLP": -3.0}, circuit=["L2.H3"]).splitlines()
    assert lines[0].split() == ["H0", "H1", "H2", "H3", "MLP"]
    assert lines[1].startswith("L0")
    assert "[ █]" in lines[3]
    assert "-▒" in lines[2]
    assert lines[4] == "█ = 6; - negative; [ ] in the circuit"


@given(
    layers=st.integers(1, 4),
    heads=st.integers(1, 40),
    width=st.integers(20, 120),
    value=st.sampled_from([0.0, 1.0, -2.0, float("nan"), float("inf")]),
)
def test_heat_map_fits_and_survives_every_value(layers, heads, width, value):
    scores = {f"L{layer}.H{head}": value for layer in range(layers) for head in range(heads)}
    text = heatmap(scores, width=width, unicode=False)
    assert all(len(line) <= width for line in text.splitlines())
    assert text.isascii()
    assert f"H{heads - 1}" in text
    assert heatmap(scores, width=width, colour=True)


def test_heat_map_without_layers():
    assert heatmap({"embed": 1.0}) == "no units with a layer to show\n"


def test_supported_claims_taken_together():
    assert together([]) == together(ALL[:1]) == together(ALL[1:]) == ""
    clear, close = made(150, 0.3, "a"), made(65, 0.259, "b")  # p < 1e-30 and p = 0.022
    assert "over the 2 claims judged), 2 of the 2 supported" in together([clear, close])
    # three claims: the close one has 2 · 0.022 in the second step; what was measured only is no claim
    assert "over the 3 claims judged), 1 of the 2 supported" in together([clear, close, INVALID, ALL[3]])
    corrected = {**close, "p_value": 0.9, "details": {"correction": {"p": close["p_value"]}}}
    assert together([clear, corrected]) == together([clear, close])


def test_times_are_shown_where_they_are_known():
    costs = {"a": (0.04, False), "b": (12.34, True), "c": (125.4, False)}
    lines = claims_table(ALL, costs=costs, width=140).splitlines()
    assert lines[0].split()[-2:] == ["verdict", "time"]
    assert lines[1].endswith("supported                0.0 s")
    assert lines[2].endswith("cached")
    assert lines[3].endswith("2:05")
    assert lines[4].endswith("measured")
    for width in (140, 80, 60, 50, 40):
        assert all(
            len(line) <= max(width, 40) for line in claims_table(ALL, costs=costs, width=width).splitlines()
        )
    assert "time" not in claims_table(ALL, costs={}, width=140)
    assert "time" not in claims_table(ALL, costs={"elsewhere": (1.0, False)}, width=140)

"""Which examples are shown beside a verdict that is not supported, and that a supported one asks for nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.claims.driving import by_examples, by_pairs, shortened
from circuittest.report.records import record
from circuittest.stats import Estimate, MeanInference
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=2, n_heads=4, n_kv_heads=4)
KEY = Unit("head", 1, 2)
#: Examples that are right without the key head, too: the only ones that speak against its necessity.
IMMUNE = (41, 57, 44)


def rule(ablated: frozenset[Unit], index: int) -> float:
    if len(ablated) > 4:
        return 0.0
    return float(KEY not in ablated or index in IMMUNE)


def lab() -> TableLab:
    return TableLab(rule, layout=LAYOUT, graded=lambda units, i: rule(units, i) * (1 + i / 1000))


def indices(verdict) -> list[int]:
    return [one["index"] for one in verdict.driven["examples"]]


def test_necessity_shows_the_examples_that_survive_the_ablation():
    found = lab().necessity(Circuit.of([KEY]), controls=7)
    refuted = found >= 0.999
    assert refuted.outcome == "undecided" or not refuted
    # all three pull alike, so that the smaller loss of log-probability comes first: those of IMMUNE lose none
    assert sorted(indices(refuted)) == sorted(IMMUNE)
    for one in refuted.driven["examples"]:
        assert one["before"] == [["right", 0.75]]
        assert one["after"] == [["right", 0.75]]
        assert one["pull"] == 0.0
    text = refuted.explain()
    assert "7 random sets of as many units: accuracy 1.00 to 1.00" in text
    assert "example 41 (0.00)" in text
    assert "before  'right' 75%" in text


def test_pulls_average_to_the_estimate_and_the_other_side_is_shown_for_an_upper_bound():
    found = lab().necessity(Circuit.of([KEY]), controls=7)
    below = found <= 0.2
    assert not below
    shown = below.driven["examples"]
    assert {one["pull"] for one in shown} == {1.0}
    assert [one["after"] for one in shown] == [[["wrong", 0.75]]] * 3
    # of examples that pull alike those that lose most come first
    assert indices(below) == [99, 98, 97]


def test_a_supported_verdict_and_a_measured_estimate_run_nothing():
    found = lab().necessity(Circuit.of([KEY]), controls=7)
    lab_without = []
    asked = lambda op, threshold: lab_without.append((op, threshold)) or {}
    object.__setattr__(found, "driving", asked)
    assert found >= 0.3
    assert (found >= 0.3).driven == {}
    (found >= 0.3).explain()
    record(found >= 0.3, id="a", outcome="passed")
    record(found, id="a", outcome="passed")
    assert lab_without == []
    refuted = found <= 0.3
    refuted.explain()
    record(refuted, id="a", outcome="failed")
    assert lab_without == [("<=", 0.3)]  # asked once, however often it is told


def test_the_record_holds_them_in_plain_types_and_only_where_they_are():
    found = lab().necessity(Circuit.of([KEY]), controls=7)
    told = record(found <= 0.2, id="a", outcome="failed")
    assert json.loads(json.dumps(told)) == told
    assert [one["index"] for one in told["details"]["driven_by"]["examples"]] == [99, 98, 97]
    assert "driven_by" not in record(found >= 0.3, id="a", outcome="passed")["details"]


@pytest.mark.parametrize("measure", ["specificity", "sufficiency", "closure"])
def test_other_claims_show_examples_and_what_they_are_compared_with(measure):
    values = np.zeros((40, len(LAYOUT.units(("head", "mlp")))), dtype=np.float32)
    values[:, LAYOUT.units(("head", "mlp")).index(KEY)] = 1.0
    elsewhere = values[:, ::-1].copy()
    elsewhere[:, :] = 0
    elsewhere[:, 0] = 1.0
    other = TableLab(
        lambda units, i: float(len(units) < 5), layout=LAYOUT, values=elsewhere, data=task_data(40, 60)
    )
    here = TableLab(
        rule,
        layout=LAYOUT,
        values=values,
        graded=lambda units, i: rule(units, i) * 4 + 0.01 * np.sin(i),
        others={"other": other},
    )
    circuit = here.shared(top="10%", at=95)
    assert [str(u) for u in circuit.units] == ["L1.H2"]
    how = {"specificity": {"against": ["other"]}, "closure": {"controls": 7}}
    found = here.measure(measure, circuit, **how.get(measure, {}))
    assert not found.invalid, found.invalid
    for verdict in (found >= 1e6, found <= -1e6):
        driven = verdict.driven
        assert len(driven["examples"]) == 3
        assert driven["control"]
        assert {one["before"][0][0] for one in driven["examples"]} == {"right"}
        assert verdict.explain().count("against it example ") == 3
    lowest = {one["index"] for one in (found >= 1e6).driven["examples"]}
    if measure != "sufficiency":
        assert lowest == set(IMMUNE)


def test_reuse_shows_what_is_missing_from_the_shared_circuit():
    units = LAYOUT.units(("head", "mlp"))
    values = np.zeros((40, len(units)), dtype=np.float32)
    values[:, 0] = 2.0
    values[:30, 1] = 1.0  # L0.H1, in three quarters of the circuits
    values[30:, 2] = 1.0
    here = TableLab(lambda s, i: float(len(s) < 5), layout=LAYOUT, values=values)
    circuit = here.shared(top="25%", at=95)
    verdict = here.reuse(circuit) >= 0.9
    assert verdict.outcome == "refuted"
    assert "L0.H1 in 75%" in verdict.driven["units"]
    assert {tuple(one["missing"]) for one in verdict.driven["examples"]} <= {("L0.H1",), ("L0.H2",)}
    assert all("after" not in one for one in verdict.driven["examples"])
    assert "missing" in verdict.explain()


def test_pairs_of_subtasks_from_the_least_alike():
    matrix = [[1.0, 0.9, float("nan")], [0.9, 1.0, 0.2], [float("nan"), 0.2, 1.0]]
    driving = by_pairs(["a", "b", "c"], matrix, ["one", "two", ""], {"control": "chance"})
    mean = MeanInference(np.linspace(0.4, 0.5, 50))
    found = Estimate(claim="stability", value=mean.value, inference=mean, driving=driving)
    pairs = (found > 0.9).driven["pairs"]
    assert [pair["subtasks"] for pair in pairs] == [["b", "c"], ["a", "b"]]
    assert [pair["subtasks"] for pair in (found < 0.1).driven["pairs"]] == [["a", "b"], ["b", "c"]]
    text = (found > 0.9).explain()
    assert "b and c: similarity 0.20" in text
    assert "such as 'two'" in text
    assert "''" not in text


def test_a_name_has_pulls_of_its_own():
    driving = by_examples(lab(), np.arange(60.0), named={"worse": -np.arange(60.0)})
    first = lambda name: [one["index"] for one in driving("is", name)["examples"]]
    assert first("better") == [40, 41, 42]
    assert first("worse") == [99, 98, 97]


def test_long_prompts_keep_their_end():
    assert shortened("short") == "short"
    text = shortened("x" * 500 + " the answer is")
    assert len(text) == 240
    assert text.startswith("…")
    assert text.endswith("the answer is")


@pytest.mark.parametrize(
    ("op", "threshold", "words"),
    [(">=", 0.9, "a threshold of at most 0.4"), ("<=", 0.1, "a threshold of at least 0.4")],
)
def test_a_refuted_verdict_says_what_would_change_it(op, threshold, words):
    mean = MeanInference(np.full(400, 0.45) + 0.001 * np.sin(np.arange(400)))
    verdict = Estimate(claim="reuse", value=mean.value, inference=mean).compare(op, threshold)
    assert verdict.outcome == "refuted"
    assert words in verdict.explain()

"""What notebooks show: whole, escaped, with the numbers of the object."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.report.notebook import MOST_ROWS, html_of, load_ipython_extension, unload_ipython_extension
from circuittest.stats import Estimate, ProportionInference
from circuittest.tables import OutcomeTable, ScoreTable
from circuittest.units import Edge, Layout, Unit
from tests.helpers.html import EVIL, Parsed

LAYOUT = Layout(2, 2, 2)


def estimate(**more) -> Estimate:
    inference = ProportionInference(150, 200)
    told = {
        "claim": "necessity",
        "model": "zoo:gqa",
        "task": "ioi",
        "n_examples": 200,
        "n_controls": 40,
    } | more
    return Estimate(value=0.75, inference=inference, **told)


def shown(thing) -> Parsed:
    text = html_of(thing)
    assert text.startswith('<div class="circuittest"><style>')
    assert text.count("{") == text.count("}")
    return Parsed(text)


def test_estimates_and_verdicts():
    found = shown(estimate(details={"acc_controls": [0.5, 0.9], "acc_circuit": 0.1, "acc_base": 1.0}))
    assert found.text.strip().startswith("necessity 0.75 [0.68, 0.81] (zoo:gqa, ioi, n = 200/40)")
    assert len(found.all("svg")) == 2
    assert len(found.all("details")) == 2  # the plots, and the numbers of the one
    judged = shown(estimate() >= 0.7)
    assert "necessity >= 0.7 undecided 0.75" in judged.text
    assert "the interval [0.68, 0.81] contains 0.7" in judged.text
    invalid = shown(Estimate(claim="reuse", value=None, invalid=EVIL) >= 0.3)
    assert "reuse >= 0.3 invalid undefined" in invalid.text
    assert EVIL in invalid.text
    assert not invalid.all("svg")


def test_circuits():
    text = html_of(Circuit.of(["L0.H1", "L1.H0"], name=EVIL, layout=LAYOUT))
    assert text.count('class="place"') == 4  # every head of the layout
    assert text.count("above member") == 2
    assert f"{EVIL}: 2 units" in Parsed(text).text
    assert shown(Circuit.of(["L0.H1"])).all("svg")
    edges = shown(Circuit.of(["L0.H1->L1.H0.q"], layout=LAYOUT))
    assert "0 units, 1 edges" in edges.text
    assert "L0.H1->L1.H0.q" in edges.text
    assert "0 units" in shown(Circuit.of([])).text


def test_tables():
    heads = tuple(Unit("head", layer, head) for layer in range(2) for head in range(2))
    scores = ScoreTable(np.array([[1, 0, 0, 3], [3, 0, 0, 1]], dtype="float32"), heads, (0, 1))
    found = shown(scores)
    assert "2 examples × 4 members" in found.text
    assert "L0.H02no" in found.text  # its mean, below the drawing
    edge = Edge.parse("L0.H1->L1.H0.q")
    assert "L0.H1->L1.H0.q" in shown(ScoreTable(np.ones((1, 1), dtype="float32"), (edge,), (0,))).text
    sets = ((), *((Unit("head", 0, head),) for head in range(MOST_ROWS + 2)))
    outcomes = OutcomeTable(sets, {"argmax": np.full((len(sets), 2), 0.25)}, (0, 1))
    found = shown(outcomes)
    assert "means over 2 examples" in found.text
    assert "nothing0.25L0.H00.25" in found.text
    assert len(found.all("tr")) == 1 + MOST_ROWS
    assert "and 3 more sets" in found.text


def test_the_extension_registers_and_forgets():
    class Formatter(dict):
        def for_type(self, kind, make):
            self[kind] = make

    formatter = Formatter()
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": formatter}))
    load_ipython_extension(shell)
    assert {Estimate, type(estimate() >= 0.3), Circuit, ScoreTable, OutcomeTable} == set(formatter)
    assert formatter[Circuit](Circuit.of(["L0.H1"]))
    unload_ipython_extension(shell)
    assert not formatter
    with pytest.raises(TypeError, match="a str has no form"):
        html_of("x")

"""Independence: scores without the circuit that follow the model's, mirror them, or know nothing of them."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.stats import Undecided
from circuittest.units import Unit
from tests.helpers.table_lab import TableLab, task_data

A = Unit("head", 1, 2)
CIRCUIT = Circuit.of([A])
EASE, OTHER = np.random.default_rng(1).normal(size=(2, 400))


def lab(without: float, unrelated: float = 0.0, n: int = 200, spread: float = 1.0) -> TableLab:
    """The model's score varies with an example's ease; without A a share of that is left."""

    def graded(units: frozenset[Unit], i: int) -> float:
        ease = spread * EASE[i]
        return 4.0 + ease if A not in units else without * ease + unrelated * OTHER[i]

    return TableLab(lambda units, i: float(A not in units), graded=graded, data=task_data(evaluate=n))


def test_a_complement_that_knows_nothing() -> None:
    found = lab(0.0).independence(CIRCUIT)
    assert found.value == 0.0
    assert found.details["hsic"]["p"] == 1.0
    assert found <= 0.2
    found = lab(0.0, unrelated=1.0, n=250).independence(CIRCUIT)
    assert found.value < 0.1
    assert found.details["hsic"]["p"] > 0.05
    assert found <= 0.2


@pytest.mark.parametrize("share", [0.5, -0.5])
def test_a_complement_that_follows_or_mirrors(share: float) -> None:
    found = lab(share).independence(CIRCUIT)
    assert found.details["tau"] == pytest.approx(np.sign(share))
    assert not found <= 0.2
    assert found.details["hsic"]["p"] == pytest.approx(1 / 1000)
    assert "refutes independence" in found.hints[0]


def test_a_circuit_that_does_nothing_leaves_the_model_as_it_is() -> None:
    found = lab(0.0).independence(Circuit.of([Unit("head", 3, 4)]))
    assert found.details["m_without"] == found.details["m_full"]
    assert found.value == pytest.approx(1.0)
    assert not found <= 0.2


def test_rounding_without_the_circuit_is_no_dependence() -> None:
    found = lab(1e-7).independence(CIRCUIT)
    assert found.value == 0.0
    assert found.details["hsic"]["p"] == 1.0


def test_few_examples_decide_nothing() -> None:
    found = lab(0.0, unrelated=1.0, n=20).independence(CIRCUIT)
    assert found.details["hsic"]["p"] > 0.05  # "independence is retained"
    with pytest.raises(Undecided):
        bool(found <= 0.2)


def test_equal_scores_are_invalid() -> None:
    found = lab(0.5, spread=0.0).independence(CIRCUIT)
    assert "the same on all 200 examples" in found.invalid


def test_the_whole_universe_may_be_removed() -> None:
    there = lab(0.0)
    assert there.independence(Circuit(there.layout.units(["head"]))).value == 0.0


def test_bad_input() -> None:
    assert "empty" in lab(0.0).independence(Circuit()).invalid
    assert "edges" in lab(0.0).independence(Circuit.of(["L0.H0->L1.H1.q"])).invalid
    assert "not competent" in lab(0.0, n=1).independence(CIRCUIT).invalid

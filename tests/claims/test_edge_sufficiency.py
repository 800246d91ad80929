"""Sufficiency of circuits of edges, on the planted model whose three edges carry the class."""

from __future__ import annotations

import math

import pytest
import torch

from circuittest.circuit import Circuit
from circuittest.lab import Lab
from tests.helpers import planted
from tests.known_answers.test_kept import lab as lab_of
from tests.known_answers.test_planted_edges import FULL, PATH


@pytest.fixture(scope="module")
def lab() -> Lab:
    return lab_of(planted.build(dtype=torch.float64))


def test_the_path_is_sufficient_and_two_thirds_of_it_are_not(lab: Lab) -> None:
    """With the path kept the logit difference is 4√2, with nothing or a part of it −4√2."""
    whole = lab.sufficiency(lab.circuit([str(edge) for edge in PATH]))
    assert whole.value == pytest.approx(1.0)
    assert whole >= 0.5
    assert whole.details["m_empty"] == pytest.approx(-FULL)
    assert whole.details["raw"] == pytest.approx(1.0)
    assert whole.details["accuracy"] == {"full": 1.0, "empty": 0.0, "circuit": 1.0}
    assert whole.choices["universe"] == "all edges"
    part = lab.sufficiency(lab.circuit([str(edge) for edge in PATH[:2]]))
    assert part.value == pytest.approx(0.0)
    assert part.details["raw"] == pytest.approx(-1.0)  # which is why faithfulness counts from nothing


def test_what_was_found_on_discovery_examples_is_judged_on_the_others(lab: Lab) -> None:
    found = lab.minimal(cap=6)
    assert lab.sufficiency(found.circuit, metric="accuracy").value == 1.0
    seen = lab.minimal(cap=6, split="evaluate")
    assert "chose the circuit" in lab.sufficiency(seen.circuit).invalid
    none = lab.minimal(cap=2)
    assert "no circuit of at most 2" in lab.sufficiency(none.circuit).invalid


def test_zeros_are_another_claim(lab: Lab) -> None:
    found = lab.sufficiency(Circuit(edges=PATH), ablation="zero")
    assert found.choices["ablation"] == "zero"
    assert not math.isclose(found.value or 0.0, 1.0, abs_tol=1e-3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ablation": "resample"}, "'resample' was asked for"),
        ({"positions": "answer"}, "at all positions"),
        ({"universe": "heads"}, "universe is about circuits of units"),
        ({"controls": 5}, "controls is about circuits of units"),
        ({"sizes": [5.0]}, "sizes is about circuits of units"),
    ],
)
def test_options_of_units(lab: Lab, options: dict[str, object], reason: str) -> None:
    assert reason in lab.sufficiency(Circuit(edges=PATH), **options).invalid


def test_what_cannot_be_judged(lab: Lab) -> None:
    assert "judge a circuit of its units" in lab.completeness(Circuit(edges=PATH)).invalid
    mixed = Circuit(units=(planted.CARRIER,), edges=PATH)
    assert "units and edges" in lab.sufficiency(mixed).invalid
    assert "every edge" in lab.sufficiency(Circuit(edges=tuple(lab.layout.edges()))).invalid

"""Necessity in nats and logits where the answer is known on paper, and where it must not be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab

LAYOUT = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
HEADS = LAYOUT.units(("head",))
KEY = Unit("head", 1, 2)


def wobble(index: int) -> float:
    return 0.2 * float(np.sin(12.9898 * (index + 1)))


def lab_of(strength: Any, right: Any = None, **more: Any) -> TableLab:
    """Graded measures are `strength(ablated)` plus a wobble; the answer is right unless everything is ablated."""
    graded = lambda u, i: strength(u) + wobble(i)
    return TableLab(right or (lambda u, i: float(len(u) < 48)), layout=LAYOUT, graded=graded, **more)


def strength(ablated: frozenset[Unit]) -> float:
    """-0.1 nats, of which the key head is worth 3 and any other 0.1; -5.1 with all heads ablated."""
    return -5.1 if len(ablated) == 48 else -0.1 - 3.0 * (KEY in ablated) - 0.1 * len(ablated - {KEY})


def test_the_share_of_what_can_be_lost() -> None:
    found = lab_of(strength).graded_necessity(Circuit.of([KEY]))
    # the accuracy sees nothing of it, and every control costs 0.1 of the 5 nats
    assert lab_of(strength).necessity(Circuit.of([KEY])).value == 0.0
    assert found.value == pytest.approx((3.0 - 0.1) / 5.0)
    assert found >= 0.5
    assert found.details["rank_p"] == found.details["rank_p_resolution"] == 1 / 48
    assert found.details["m_base"] - found.details["m_floor"] == pytest.approx(5.0)
    assert found.details["own_share"]["value"] == pytest.approx(0.6)


def test_in_nats() -> None:
    found = lab_of(strength).graded_necessity(Circuit.of([KEY]), normalise=False, metric="logit_diff")
    assert found.value == pytest.approx(2.9)
    assert (found.choices["metric"], found.choices["normalise"]) == ("logit_diff", False)


def test_a_circuit_that_harms_less_than_controls_is_refuted() -> None:
    found = lab_of(lambda u: 0.0 if len(u) == 48 else 5.0 - len(u - {KEY})).graded_necessity(
        Circuit.of([KEY])
    )
    assert found.value == pytest.approx(-0.2)
    assert not found >= 0.0


def test_a_denominator_that_may_be_zero_is_refused() -> None:
    found = lab_of(lambda u: -1.0 - 0.5 * (KEY in u and len(u) < 48)).graded_necessity(Circuit.of([KEY]))
    assert "contains zero" in found.invalid
    worse = lab_of(lambda u: -1.0 + (len(u) == 48)).graded_necessity(Circuit.of([KEY]))
    assert "does worse than with the whole universe removed" in worse.invalid


def test_controls_near_the_floor() -> None:
    found = lab_of(lambda u: 0.0 if len(u) == 48 else 5.0 - 4.5 * (len(u) > 0)).graded_necessity(
        Circuit.of([KEY])
    )
    assert "the control destroys the model too" in found.invalid
    assert len(found.details["m_controls"]) == 47


def test_gates_and_choices() -> None:
    lab = lab_of(strength)
    assert "empty" in lab.graded_necessity(Circuit()).invalid
    assert "edges" in lab.graded_necessity(Circuit.of(["L0.H0->L1.H1.q"])).invalid
    assert "no matched control" in lab.graded_necessity(Circuit.of(HEADS[:30])).invalid
    assert "not competent" in lab_of(strength, lambda u, i: 0.0).graded_necessity(Circuit.of([KEY])).invalid
    found = lab.graded_necessity(
        Circuit.of([KEY]), ablation="counterfactual", positions="answer", match="layer"
    )
    assert found.details["population"] == 7
    assert lab.how[-1] == {"value": "counterfactual", "positions": "answer"}
    assert found.choices["ablation"] == "counterfactual"

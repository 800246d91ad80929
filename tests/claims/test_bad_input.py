"""Bad input, for every claim about a circuit: invalid or refused with the reason, and never a number."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.claims import claim_kinds
from circuittest.errors import CircuittestError
from circuittest.stats import Estimate, InvalidClaim
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=3, n_heads=6, n_kv_heads=6)
HEADS = LAYOUT.units(("head",))
KEY, OTHER = HEADS[1], HEADS[8]

#: What each claim cannot do without.
NEEDED: dict[str, dict[str, Any]] = {
    "specificity": {"against": ["b"]},
    "selective": {"against": "b", "units": [str(OTHER)]},
    "transfer": {"to": "b"},
}
#: Claims that compare with a lock have their own (test_drift.py, test_regression.py), and roles (test_role.py).
ELSEWHERE = {"drift.function", "drift.structure", "regression", "role"}
CLAIMS = sorted(name for name, kind in claim_kinds().items() if kind.takes_circuit and name not in ELSEWHERE)


def lab_of(
    needed: Unit, evaluate: int = 40, *, equal: bool = False, rule: Any = None, **more: Any
) -> TableLab:
    """One head does it; every example has a strength of its own, or the same where they are `equal`."""
    rows = np.zeros((20 + evaluate, 21), dtype=np.float32)
    rows[:, LAYOUT.units(("head", "mlp")).index(needed)] = 1.0

    def graded(ablated: frozenset[Unit], index: int) -> float:
        own = 0.0 if equal else 0.3 * float(np.sin(12.9898 * index + sum(map(HEADS.index, ablated))))
        return own + (0.0 if len(ablated) == len(HEADS) else 4.0 - 4.0 * (needed in ablated))

    return TableLab(
        rule or (lambda u, i: float(graded(u, i) > 1.0)),
        layout=LAYOUT,
        data=task_data(20, evaluate),
        values=rows,
        graded=graded,
        **more,
    )


def both(evaluate: int = 40, **more: Any) -> TableLab:
    other = lab_of(OTHER, evaluate, **more)
    other.data = replace(other.data, task="b")
    return lab_of(KEY, evaluate, others={"b": other}, **more)


def asked(lab: TableLab, claim: str, circuit: Circuit) -> Estimate:
    return lab.measure(claim, circuit, **NEEDED.get(claim, {}))


def refused(estimate: Estimate) -> str:
    """Why it is invalid; it is no number, and neither truth nor falsehood."""
    assert estimate.invalid
    with pytest.raises(InvalidClaim):
        bool(estimate >= 0.0)
    with pytest.raises(InvalidClaim):
        float(estimate)
    assert estimate.to_dict()["value"] is None
    return estimate.invalid


def test_the_lab_is_one_on_which_every_claim_has_a_number() -> None:
    lab = both()
    found = lab.shared(top="5%", at=90)
    assert found.units == (KEY,)
    # with one unit in twenty nothing is left to search, to add or to compare in these
    few = {claim: asked(lab, claim, found).invalid for claim in CLAIMS}
    assert {claim: reason for claim, reason in few.items() if reason} == {
        "minimality": "only 17 units of kind head are outside the circuit; a quantile of their effects needs 20: judge "
        "a circuit of other kinds, or a smaller one"
    }


@pytest.mark.parametrize("claim", CLAIMS)
def test_an_empty_circuit(claim: str) -> None:
    why = "there is no S_P" if claim == "reuse" else "empty"  # an empty S_P has reuse 0, and a recipe
    assert why in refused(asked(both(), claim, Circuit()))


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_unit_that_the_model_does_not_have(claim: str) -> None:
    with pytest.raises(CircuittestError, match=r"the model has no L9\.H0"):
        asked(both(), claim, Circuit.of([Unit("head", 9, 0)]))


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_circuit_of_another_architecture(claim: str) -> None:
    there = Layout(n_layers=2, n_heads=8, n_kv_heads=8)
    with pytest.raises(CircuittestError, match="another architecture"):
        asked(both(), claim, Circuit.of([KEY], layout=there))


@pytest.mark.parametrize("claim", CLAIMS)
def test_one_example(claim: str) -> None:
    lab = both(1)
    assert refused(asked(lab, claim, lab.shared(top="5%", at=90)))


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_model_at_its_floor(claim: str) -> None:
    lab = both(rule=lambda units, index: 0.0)
    assert "not competent" in refused(asked(lab, claim, lab.shared(top="5%", at=90)))


@pytest.mark.parametrize("claim", CLAIMS)
def test_examples_that_are_all_equal_and_a_model_at_its_ceiling(claim: str) -> None:
    """No interval without width comes of forty equal examples, except where nothing was left to chance."""
    lab = both(equal=True)
    estimate = asked(lab, claim, lab.shared(top="5%", at=90))
    if estimate.invalid:
        assert claim in ("independence", "minimality")
        assert refused(estimate)
        return
    assert estimate.interval is not None
    low, high = estimate.interval
    assert low < high
    assert low <= float(estimate) <= high


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("threshold", [math.nan, math.inf])
def test_a_threshold_that_is_no_number(claim: str, threshold: float) -> None:
    with pytest.raises(ValueError, match="a threshold is a finite number"):
        bool(asked(both(), claim, Circuit()) >= threshold)

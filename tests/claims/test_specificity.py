"""Specificity on planted pairs of tasks: the right sign, the right task in each role, saturation, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import Rule, TableLab, task_data

LAYOUT = Layout(n_layers=2, n_heads=10, n_kv_heads=10)
HEADS = LAYOUT.units(("head",))


def planted(top: tuple[int, ...], rule: Rule, others: dict[str, TableLab] | None = None) -> TableLab:
    """A lab whose per-example circuits are the heads `top`, and which is right as `rule` says."""
    values = np.zeros((40, 22))
    columns = LAYOUT.units(("head", "mlp"))
    values[:, [columns.index(HEADS[i]) for i in top]] = 1
    return TableLab(rule, layout=LAYOUT, values=values, data=task_data(40, 60), others=others)


def loses(share: dict[int, int]) -> Rule:
    """Right unless head h is ablated, which costs the examples with index % 60 below share[h]; all heads cost all."""

    def rule(ablated: frozenset[Unit], index: int) -> float:
        if len(ablated) == len(HEADS):
            return 0.0
        return float(all(HEADS[h] not in ablated or index % 60 >= lost for h, lost in share.items()))

    return rule


def test_own_circuit_hurts_more_than_the_others() -> None:
    # Ablating the own heads (0, 1) costs 30 of 60, those of "b" (2, 3) cost 6, those of "c" (4, 5) nothing.
    others = {
        "b": planted((2, 3), loses({2: 60, 3: 60})),
        "c": planted((4, 5), loses({4: 60})),
    }
    lab = planted((0, 1), loses({0: 30, 2: 6}), others)
    found = lab.specificity(lab.shared(top="10%"), against=["b", "c"])
    assert found.details["drops"] == {"own": 0.5, "others": {"b": pytest.approx(0.1), "c": 0.0}}
    assert found.value == pytest.approx(0.5 - 0.05)
    assert found > 0.2


def test_the_transposed_matrix_gives_another_answer() -> None:
    # Another task's circuit kills this task; this task's own circuit costs it little: not specific, although the own
    # circuit also leaves the other task unharmed.
    others = {"b": planted((2, 3), loses({2: 6}))}
    lab = planted((0, 1), loses({0: 6, 2: 40}), others)
    found = lab.specificity(lab.shared(top="10%"), against=["b"])
    assert found.value == pytest.approx(0.1 - 40 / 60)
    assert not found > 0


def test_two_tasks_that_share_their_circuit_are_not_specific() -> None:
    others = {"b": planted((0, 1), loses({0: 30}))}
    lab = planted((0, 1), loses({0: 30}), others)
    found = lab.specificity(lab.shared(top="10%"), against=["b"])
    assert found.value == 0.0
    assert found.details["overlap"]["b"]["jaccard"] == 1.0
    assert found.details["overlap"]["b"]["chance"] == pytest.approx(0.2 / 3.8)


def test_saturation_is_no_evidence_against_specificity() -> None:
    others = {"b": planted((2, 3), loses({2: 60}))}
    lab = planted((0, 1), loses({0: 60, 2: 60}), others)
    found = lab.specificity(lab.shared(top="10%"), against=["b"])
    assert "saturated" in found.invalid
    assert found.details["drops"]["own"] == 1.0


def test_own_circuit_at_the_floor_is_a_lower_bound() -> None:
    others = {"b": planted((2, 3), loses({2: 60}))}
    lab = planted((0, 1), loses({0: 60, 2: 6}), others)
    found = lab.specificity(lab.shared(top="10%"), against=["b"])
    assert found.censored == "lower"
    assert found > 0.5


def test_capacity_adjusted_contrast_stands_beside_it() -> None:
    others = {"b": planted((2, 3), loses({2: 60}))}
    lab = planted((0, 1), loses({0: 30, 2: 6}), others)
    found = lab.specificity(lab.shared(top="10%"), against=["b"], controls=20)
    # 153 matched pairs each, all enumerated; a pair hits head 2 (or 0) in 17 of them.
    own = 0.5 - 17 / 153 * 0.1
    other = 0.1 - 17 / 153 * 0.5
    assert found.details["adjusted"] == pytest.approx(own - other)


@pytest.mark.parametrize("against", [[], ["planted"], ["b", "b"]])
def test_donors_are_other_tasks_each_once(against: list[str]) -> None:
    lab = planted((0, 1), loses({0: 30}), {"b": planted((2, 3), loses({2: 60}))})
    assert "against" in lab.specificity(lab.shared(top="10%"), against=against).invalid


def test_a_donor_that_the_model_cannot_do_is_named() -> None:
    lab = planted((0, 1), loses({0: 30}), {"b": planted((2, 3), lambda units, i: 0.0)})
    found = lab.specificity(lab.shared(top="10%"), against=["b"])
    assert "donor b" in found.invalid
    assert "not competent" in found.invalid


def test_a_donor_with_an_empty_circuit_is_named() -> None:
    donor = planted((2, 3), loses({2: 60}))
    donor.values = np.random.default_rng(0).random((40, 22))
    lab = planted((0, 1), loses({0: 30}), {"b": donor})
    found = lab.specificity(lab.shared(top="10%"), against=["b"])
    assert "donor b: the circuit is empty" in found.invalid


def test_a_circuit_without_a_recipe_has_no_donors() -> None:
    lab = planted((0, 1), loses({0: 30}), {"b": planted((2, 3), loses({2: 60}))})
    assert "recipe" in lab.specificity(Circuit.of(["L0.H0"]), against=["b"]).invalid

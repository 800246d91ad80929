"""Claims about a kept circuit on models whose circuits are known on paper (tests/helpers/planted.py)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from circuittest.circuit import Circuit
from circuittest.lab import Lab
from circuittest.tasks import Example, Item, TaskData
from circuittest.units import Unit
from tests.helpers import planted
from tests.helpers.items import FakeItem
from tests.helpers.planted import CARRIER, READER, SECOND, Planted

IDLE = Unit("head", 3, 3)


def lab(model: Planted, count: int = 24) -> Lab:
    """The planted model with its own task: two thirds of the examples judge."""
    items = {item.prompt_ids: item for item in model.items(3 * count, noise=(1, 2, 3))}
    chosen = list(items.values())
    assert len(chosen) >= count + count // 2
    data = TaskData(
        task="planted",
        seed=0,
        prefix=(0,),
        prefix_name="bos",
        discover=_items(chosen[count : count + count // 2]),
        evaluate=_items(chosen[:count]),
        dropped={},
        chance=0.0,
        accuracy="argmax",
        metric="logit_diff",
    )
    found = Lab(model.model, data)
    found.__dict__["model"] = (
        model.model
    )  # its attention is saturated, so that the preflight sees keys that do nothing
    return found


def _items(found: Sequence[FakeItem]) -> tuple[Item, ...]:
    return tuple(
        Item(
            index=i,
            prompt_ids=item.prompt_ids,
            counterfactual_ids=item.counterfactual_ids,
            answer_ids=item.answer_ids,
            foil_ids=item.foil_ids,
            counterfactual_answer_ids=item.foil_ids,
            features={},
            group="",
            example=Example("", ("",), ("",), "", ("",)),
        )
        for i, item in enumerate(found)
    )


@pytest.fixture(scope="module")
def plain() -> Lab:
    return lab(planted.build())


@pytest.fixture(scope="module")
def families() -> Lab:
    return lab(planted.build(families=2))


@pytest.mark.parametrize("ablation", ["counterfactual", "zero"])
def test_the_planted_circuit_is_sufficient_complete_minimal_and_equivalent(plain: Lab, ablation: str) -> None:
    circuit = Circuit.of([CARRIER, READER])
    found = plain.sufficiency(circuit, ablation=ablation, universe="all")
    assert found.value == pytest.approx(1.0, abs=1e-4)
    assert found >= 0.8
    complete = plain.completeness(circuit, ablation=ablation)
    assert complete.value == pytest.approx(0.0, abs=1e-4)
    assert complete <= 0.4  # twelve examples that agree exclude no more
    assert plain.minimality(circuit, ablation=ablation) >= 1
    same = plain.equivalence(circuit, ablation=ablation)
    assert same.details["tied"] == 1.0
    assert same.value == 0.0


def test_means_at_all_positions_lengthen_the_residual(plain: Lab) -> None:
    # idle heads write their mean junk at the query, too, and the last norm divides by a greater length
    found = plain.sufficiency(Circuit.of([CARRIER, READER]), ablation="mean")
    assert 0.9 < found.value < 1.0
    assert found >= 0.9
    assert plain.equivalence(Circuit.of([CARRIER, READER]), ablation="mean").value == 0.5


def test_counterfactuals_take_the_emptied_model_to_the_other_answer(plain: Lab) -> None:
    circuit = Circuit.of([CARRIER, READER])
    swapped = plain.sufficiency(circuit).details
    assert swapped["m_empty"] == pytest.approx(-swapped["m_full"], abs=1e-4)
    assert plain.sufficiency(circuit, ablation="zero").details["m_empty"] == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("part", [CARRIER, READER])
def test_half_of_the_circuit_is_not_sufficient(plain: Lab, part: Unit) -> None:
    found = plain.sufficiency(Circuit.of([part]))
    assert found.value == pytest.approx(0.0, abs=1e-4)
    assert not found >= 0.5


def test_a_passenger_is_named(plain: Lab) -> None:
    found = plain.minimality(Circuit.of([CARRIER, READER, IDLE]))
    assert found.details["not_earning"] == ["L3.H3"]
    assert not found >= 1


def test_two_families(families: Lab) -> None:
    # without the second carrier the circuit answers one family's examples right and the other's with the counterfactual
    found = families.sufficiency(Circuit.of([CARRIER, READER]))
    assert found.value == pytest.approx(0.5, abs=1e-3)
    assert families.sufficiency(Circuit.of([CARRIER, SECOND, READER])).value == pytest.approx(1.0, abs=1e-4)
    incomplete = families.completeness(Circuit.of([CARRIER, READER]))
    assert incomplete.value == pytest.approx(0.5, abs=0.2)
    assert incomplete.details["worst"]["gap"] < 0

"""Reuse, stability and families of a model whose two families of examples have a carrier of their own.

An example's unit scores are −5√2 for its carrier (L1.H2 or L2.H6) and −6√2 for the reader that all share, so that over
N units the correlation of the two families is (36 − 121/N)/(61 − 121/N).
"""

from __future__ import annotations

from typing import Any

import pytest

from circuittest.lab import Lab
from circuittest.tasks import Example, Item, TaskData
from tests.helpers import planted
from tests.helpers.planted import Y


@pytest.fixture(scope="module")
def two_families() -> Lab:
    model = planted.build(families=2)
    distinct = {item.prompt_ids: item for item in model.items(400, noise=(1, 2, 3))}
    items = [
        Item(
            index=i,
            prompt_ids=item.prompt_ids,
            counterfactual_ids=item.counterfactual_ids,
            answer_ids=item.answer_ids,
            foil_ids=item.foil_ids,
            counterfactual_answer_ids=item.foil_ids,
            features={
                "class": Y.index(item.answer_ids[0]),
                "family": Y.index(item.answer_ids[0]) // 4,
                "length": len(item.prompt_ids),
            },
            group="",
            example=Example("", ("",), ("",), "", ("",)),
        )
        for i, item in enumerate(list(distinct.values())[:120])
    ]
    data = TaskData(
        task="planted",
        seed=0,
        prefix=(0,),
        prefix_name="bos",
        discover=tuple(items[:60]),
        evaluate=tuple(items[60:]),
        dropped={},
        chance=0.0,
        accuracy="argmax",
        metric="logit_diff",
    )
    found = Lab(model.model, data)
    found.__dict__["model"] = model.model  # saturated attention: the preflight sees keys that do nothing
    return found


HOW: dict[str, Any] = {"level": "units", "similarity": "pearson", "min_size": 10, "cuts": 4, "replicates": 20}


def test_subtasks_through_different_heads_are_unstable(two_families: Lab) -> None:
    found = two_families.stability("family", permutations=99, **HOW)
    units = len(two_families.layout.units())
    assert found.value == pytest.approx((36 - 121 / units) / (61 - 121 / units), abs=1e-3)
    assert not (found > 0.6)
    assert found > 0.55
    assert found.details["null"]["p"] == 0.01


def test_subtasks_through_the_same_heads_are_stable(two_families: Lab) -> None:
    found = two_families.stability("length", permutations=0, n=20, **HOW)
    assert found.value > 0.9
    family = two_families.stability(["class in 0, 1, 4, 5", "family"], **HOW)
    assert family.details["worst"] == "family"
    assert not (family > 0.6)


def test_eight_classes_are_two_families(two_families: Lab) -> None:
    found = two_families.families("class", alpha=0.6, **HOW)
    assert [one["subtasks"] for one in found.details["families"]] == [
        [f"class={i}" for i in range(4)],
        [f"class={i}" for i in range(4, 8)],
    ]
    assert found <= 2
    assert found >= 2
    assert two_families.families("class", alpha=0.5, **HOW) <= 1


def test_half_of_every_circuit_is_shared(two_families: Lab) -> None:
    circuit = two_families.shared(top="4%", at=95, universe="all")
    assert [str(u) for u in circuit.units] == ["L4.H5"]
    assert two_families.reuse(circuit).value == 0.5
    # its one edge differs from family to family
    induced = two_families.reuse(circuit, level="induced")
    assert (induced.value, induced.details["shared"]) == (0.0, [])
    share = f"{350 / len(tuple(two_families.layout.edges())):.4f}%"  # three edges carry every answer
    edges = two_families.shared(level="edges", universe="all", top=share, at=95)
    assert [str(e) for e in edges.edges] == ["L4.H5->logits"]
    assert two_families.reuse(edges).value == pytest.approx(1 / 3)
    assert two_families.coverage(edges).value == pytest.approx(1 / 3)

"""The recipe in a circuit's origin finds the same circuit again, whatever it was found by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from circuittest import Lab
from circuittest.errors import UsageError
from circuittest.find.recipe import recipe_of, scoring_of, unit_scoring
from circuittest.tasks import TaskData
from tests.helpers import tiny
from tests.helpers.table_lab import task_data


@pytest.fixture(scope="module")
def lab() -> Lab:
    rng = np.random.default_rng(0)
    draw = lambda n: tuple(int(i) for i in rng.integers(3, tiny.VOCAB, n))
    plain = task_data(12, 5)
    fresh = lambda items: tuple(
        type(item)(
            index=item.index,
            prompt_ids=(1, *draw(4)),
            counterfactual_ids=(1, *draw(4)),
            answer_ids=(5,),
            foil_ids=(6,),
            counterfactual_answer_ids=(6,),
            features={},
            group="",
            example=item.example,
        )
        for item in items
    )
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    data = TaskData(**{**fields, "discover": fresh(plain.discover), "evaluate": fresh(plain.evaluate)})
    return Lab(tiny.build("llama", dtype=torch.float64), data)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"method": "eap-ig", "steps": 2, "score": "node"},
        {"baseline": "zero", "universe": "all"},
        {"method": "eap-ig", "steps": 2, "baseline": "mean"},
        {"method": "exact"},
        {"level": "edges", "method": "eap-ig", "steps": 2},
    ],
)
def test_a_circuits_recipe_finds_it_again(lab: Lab, how: dict[str, Any]) -> None:
    circuit = lab.shared(top="30%", at=40, **how)
    recipe = recipe_of(circuit.origin)
    assert recipe is not None
    assert {key: recipe[key] for key in how} == how
    again = lab.shared(**recipe)
    assert (again.units, again.edges, again.origin) == (circuit.units, circuit.edges, circuit.origin)
    table = lab.scores(**scoring_of(recipe))
    assert table.choices["method"] == recipe["method"]
    assert table.choices["baseline"] == recipe["baseline"]


def test_other_scores_are_other_tables(lab: Lab) -> None:
    values = [
        lab.scores(**how).values
        for how in (
            {},
            {"method": "eap-ig"},
            {"method": "eap-ig", "steps": 2},
            {"baseline": "zero"},
            {"baseline": "mean"},
            {"method": "exact"},
        )
    ]
    for i, one in enumerate(values):
        assert all(not np.array_equal(one, other) for other in values[:i])


def test_steps_without_a_path_are_no_choice(lab: Lab) -> None:
    assert "steps" not in lab.shared().origin
    assert lab.scores(steps=7) is not None
    np.testing.assert_array_equal(lab.scores(steps=7).values, lab.scores().values)


def test_means_come_from_examples_that_are_not_scored(lab: Lab) -> None:
    table = lab.scores("discover", baseline="mean")
    assert table.examples == tuple(item.index for item in lab.data.discover)
    halves = table.choices["calibration"]
    assert sorted(i for half in halves for i in half) == sorted(table.examples)
    evaluate = lab.scores("evaluate", baseline="mean")
    assert evaluate.choices["calibration"] == list(table.examples)
    few = Lab(lab.model, TaskData(**{**lab.data.__dict__, "discover": lab.data.discover[:1]}))
    with pytest.raises(UsageError, match="one half of the discovery examples"):
        few.scores("discover", baseline="mean")


def test_coverage_scores_examples_as_the_circuit_was_found(lab: Lab) -> None:
    circuit = lab.shared(top="30%", at=40, method="eap-ig", steps=2, baseline="mean", score="node")
    chosen = lab.coverage(circuit).choices
    assert {key: chosen[key] for key in ("method", "steps", "baseline", "score")} == {
        "method": "eap-ig",
        "steps": 2,
        "baseline": "mean",
        "score": "node",
    }
    assert lab.coverage(circuit, method="eap").choices["method"] == "eap"
    plain = lab.coverage(lab.circuit(["L0.H1"])).choices
    assert (plain["method"], plain["score"]) == ("eap", "edge-abs-sum")


def test_edges_and_exact_scores_say_nothing_of_other_unit_scores() -> None:
    assert unit_scoring({"score": "edge", "method": "eap-ig", "steps": 3}) == {
        "score": "edge-abs-sum",
        "method": "eap-ig",
        "steps": 3,
    }
    assert unit_scoring({"score": "exact", "method": "exact"}) == {"score": "exact", "method": "exact"}


def test_a_circuit_from_units_has_no_recipe(lab: Lab) -> None:
    assert recipe_of(lab.circuit(["L0.H1"]).origin) is None

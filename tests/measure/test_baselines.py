"""Attribution against nothing and against means, by finite differences in float64; what is refused."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.measure.attribution import attribute
from circuittest.measure.batches import plan
from circuittest.models.loaded import LoadedModel
from circuittest.units import Edge, Unit
from tests.helpers import tiny
from tests.helpers.differences import Differences
from tests.helpers.items import FakeItem, random_items

STEPS = 2
#: Of several lengths, and of another number per length.
CALIBRATION = random_items(5, (4, 9, 9), seed=7)


@lru_cache
def model_of(architecture: str) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=torch.float64)


def baseline_activations(
    model: LoadedModel, items: list[FakeItem], baseline: str
) -> dict[tuple[str, int | None], Tensor]:
    """By place, what takes the counterfactual run's place in the finite differences."""
    run = Differences(model, plan(items, model)[0], "log_prob")
    if baseline == "zero":
        return {place: torch.zeros_like(tensor) for place, tensor in run.clean.items()}
    runs = [run.record(torch.tensor([item.prompt_ids])) for item in CALIBRATION]
    means = {place: torch.cat([one[place].flatten(0, -2) for one in runs]).mean(0) for place in run.clean}
    return {place: means[place].expand_as(tensor) for place, tensor in run.clean.items()}


@pytest.mark.parametrize(("baseline", "method"), [("zero", "eap"), ("mean", "eap"), ("mean", "eap-ig")])
@pytest.mark.parametrize("architecture", ["gpt2", pytest.param("gemma3_text", marks=pytest.mark.slow)])
def test_scores_are_finite_differences_towards_the_baseline(
    architecture: str, baseline: str, method: str
) -> None:
    model, items = model_of(architecture), random_items(2, (6,))
    others = baseline_activations(model, items, baseline)
    shares = [k / STEPS for k in range(STEPS)] if method == "eap-ig" else [1.0]
    batch = plan(items, model)[0]
    path = [Differences(model, batch, "log_prob", share=share, others=others) for share in shares]
    by = lambda **choices: attribute(
        model,
        items,
        metric="log_prob",
        baseline=baseline,
        calibration=CALIBRATION if baseline == "mean" else (),
        method=method,
        steps=STEPS,
        **choices,
    )
    table = by(level="edges")
    scale = float(np.abs(table.values).max())
    for name in ("embed->L0.MLP", "embed->L1.H2.q", "L0.H1->L2.KV0.k", "L0.MLP->L1.KV1.v", "L2.H3->logits"):
        found = table.values[:, table.members.index(Edge.parse(name))]
        expected = sum(point.edge(Edge.parse(name)) for point in path) / len(path)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5 * scale)
    kinds = ("embed", "head", "mlp")
    nodes, sums = (by(unit_score=rule, kinds=kinds).values for rule in ("node", "edge-sum"))
    np.testing.assert_allclose(nodes, sums, rtol=1e-4, atol=1e-5 * scale)
    for unit in (Unit("embed"), Unit("head", 1, 3), Unit("mlp", 0)):
        expected = sum(point.node(unit) for point in path) / len(path)
        column = model.layout.units(kinds).index(unit)
        np.testing.assert_allclose(nodes[:, column], expected.numpy(), rtol=1e-4, atol=1e-5 * scale)


def test_without_counterfactuals() -> None:
    model = model_of("gpt2")
    with_them = random_items(3, (6,))
    without = [FakeItem(i.index, i.prompt_ids, (), i.answer_ids) for i in with_them]
    by = lambda items: attribute(model, items, metric="log_prob", baseline="zero").values
    np.testing.assert_array_equal(by(without), by(with_them))


def test_choices_say_what_the_baseline_was() -> None:
    model, items = model_of("gpt2"), random_items(2)
    table = attribute(model, items, metric="log_prob", baseline="mean", calibration=CALIBRATION)
    assert table.choices["baseline"] == "mean"
    assert table.choices["calibration"] == [item.index for item in CALIBRATION]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"baseline": "means"}, "unknown baseline 'means'"),
        ({"baseline": "mean"}, "without calibration examples"),
        ({"baseline": "zero", "method": "eap-ig"}, "EAP-IG from the baseline 'zero'"),
        (
            {"baseline": "mean", "calibration": [*CALIBRATION, *random_items(1)]},
            "1 of the 6 calibration prompts are among the examples",
        ),
    ],
)
def test_what_has_no_baseline_is_refused(choices: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        attribute(model_of("gpt2"), random_items(2), metric="log_prob", **choices)  # type: ignore[arg-type]

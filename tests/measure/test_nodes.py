"""Scores of experts and neurons: finite differences, sums that are the MLP's, baselines, EAP-IG, what is refused."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute
from circuittest.measure.batches import plan
from circuittest.measure.metrics import Targets, last_rows, metric_values
from circuittest.models.hooks import on_input, on_output
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit
from tests.helpers import tiny
from tests.helpers.items import FakeItem, random_items

EPSILON = 1e-5
MIXTURES = [
    "mixtral",
    pytest.param("qwen3_moe", marks=pytest.mark.slow),
    pytest.param("olmoe", marks=pytest.mark.slow),
]


@lru_cache
def model_of(architecture: str) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=torch.float64)


def table(model: LoadedModel, items: list[FakeItem], *kinds: str, **choices: object):
    return attribute(model, items, metric="log_prob", unit_score="node", kinds=kinds, **choices)  # type: ignore[arg-type]


def value(model: LoadedModel, items: list[FakeItem]) -> Tensor:
    batch = plan(items, model)[0]
    hidden = model.trunk(batch.prompts(model.device), use_cache=False).last_hidden_state
    return metric_values(model, last_rows(hidden), Targets.of(items, model.device), "log_prob")


@pytest.mark.parametrize(
    "architecture", ["gpt2", "llama", pytest.param("gemma3_text", marks=pytest.mark.slow)]
)
def test_neurons_are_finite_differences(architecture: str) -> None:
    model, items = model_of(architecture), random_items(2, (6,))
    found = table(model, items, "neuron")
    assert found.members == model.layout.units(("neuron",))
    batch, down = plan(items, model)[0], model.blocks[1].down
    seen: list[Tensor] = []
    with torch.no_grad(), on_input(down, lambda x: seen.append(x.clone())):
        for ids in (batch.prompts(model.device), batch.counterfactuals(model.device)):
            model.trunk(ids, use_cache=False)
    for index in (0, 7, model.layout.count("neuron", 1) - 1):
        delta = torch.zeros_like(seen[0])
        delta[..., index] = (seen[1] - seen[0])[..., index]
        sides = []
        for sign in (1, -1):
            with torch.no_grad(), on_input(down, lambda x, s=sign, d=delta: x + s * EPSILON * d):
                sides.append(value(model, items))
        expected = (sides[0] - sides[1]) / (2 * EPSILON)
        column = found.members.index(Unit("neuron", 1, index))
        np.testing.assert_allclose(found.values[:, column], expected.numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("method", ["eap", "eap-ig"])
@pytest.mark.parametrize("architecture", ["gpt2", *MIXTURES])
def test_neurons_and_experts_add_up_to_their_mlp(architecture: str, method: str) -> None:
    model, items = model_of(architecture), random_items(3)
    kinds = [
        kind for kind in ("neuron", "expert") if any(model.layout.count(kind, layer) for layer in range(3))
    ]
    found = table(model, items, "head", "mlp", *kinds, method=method, steps=2)
    assert found.members == model.layout.units(("head", "mlp", *kinds))
    for layer in range(3):
        own = [
            i
            for i, m in enumerate(found.members)
            if isinstance(m, Unit) and m.kind in kinds and m.layer == layer
        ]
        mlp = found.values[:, found.members.index(Unit("mlp", layer))]
        np.testing.assert_allclose(found.values[:, own].sum(1), mlp, rtol=1e-4, atol=1e-6)
    plain = table(model, items, "head", "mlp", method=method, steps=2)
    both = found.columns(plain.members)
    np.testing.assert_array_equal(both.values, plain.values)


@pytest.mark.parametrize("baseline", ["counterfactual", "zero", "mean"])
@pytest.mark.parametrize("architecture", MIXTURES)
def test_experts_are_finite_differences(architecture: str, baseline: str) -> None:
    """By hooks on the experts' module, which add a little of what one expert would add."""
    model, items = model_of(architecture), random_items(2, (6,))
    held_out = random_items(3, (4, 5), seed=9)
    layer = 0  # not the last, where one position counts
    module, number = model.blocks[layer].experts, model.layout.count("expert", layer)

    def added(ids: Tensor) -> Tensor:
        """What every expert adds [rows, positions, experts, width], one expert and token at a time."""
        calls: list[tuple[Tensor, ...]] = []
        handle = module.register_forward_pre_hook(lambda _, args: calls.append(args))
        with torch.no_grad():
            model.trunk(ids, use_cache=False)
        handle.remove()
        states, chosen, weights = calls[0]
        total = torch.zeros(len(states), number, states.shape[-1], dtype=states.dtype)
        for token in range(len(states)):
            for expert, weight in zip(chosen[token].tolist(), weights[token], strict=True):
                args = (states[token : token + 1], torch.tensor([[expert]]), weight.view(1, 1))
                with torch.no_grad():
                    total[token, expert] += module.forward(*args)[0]
        return total.view(*ids.shape, number, -1)

    batch = plan(items, model)[0]
    clean = added(batch.prompts(model.device))
    if baseline == "counterfactual":
        other = added(batch.counterfactuals(model.device))
    elif baseline == "zero":
        other = torch.zeros_like(clean)
    else:
        tokens = [added(torch.tensor([item.prompt_ids]))[0] for item in held_out]
        other = torch.cat(tokens).mean(0).expand_as(clean)
    calibration = held_out if baseline == "mean" else ()
    found = table(model, items, "expert", baseline=baseline, calibration=calibration)
    for index in range(number):
        delta = (other - clean)[:, :, index].flatten(0, 1)
        sides = []
        for sign in (1, -1):
            with (
                torch.no_grad(),
                on_output(module, lambda y, s=sign, d=delta: y + s * EPSILON * d.view_as(y)),
            ):
                sides.append(value(model, items))
        expected = (sides[0] - sides[1]) / (2 * EPSILON)
        column = found.members.index(Unit("expert", layer, index))
        np.testing.assert_allclose(found.values[:, column], expected.numpy(), rtol=1e-4, atol=1e-7)


def test_batches_change_nothing() -> None:
    model, items = model_of("mixtral"), random_items(5)
    alone = np.concatenate([table(model, [item], "expert").values for item in items])
    np.testing.assert_allclose(table(model, items, "expert").values, alone, rtol=2e-6, atol=1e-9)


def test_exact_patching_of_experts_and_neurons() -> None:
    for architecture, kind in (("mixtral", "expert"), ("gpt2", "neuron")):
        model, items = model_of(architecture), random_items(1)
        found = attribute(model, items, metric="log_prob", method="exact", baseline="zero", kinds=(kind,))
        column = int(np.abs(found.values[0]).argmax())
        unit = found.members[column]
        rows = ablate(model, items, [(), (unit,)]).measure("log_prob")  # type: ignore[list-item]
        np.testing.assert_allclose(found.values[:, column], rows[1] - rows[0], rtol=1e-5)


def test_what_has_no_edges_or_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="units of kind 'neuron' by the unit score 'edge-abs-sum'"):
        attribute(model_of("gpt2"), random_items(2), metric="log_prob", kinds=("neuron",))
    with pytest.raises(UsageError, match="has no units of kind expert"):
        table(model_of("gpt2"), random_items(2), "expert")

"""attribute(): rows, columns, unit rules, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import nn

from circuittest.errors import InterventionError, UnsupportedModel, UsageError
from circuittest.measure.attribution import attribute
from circuittest.models.hooks import count
from circuittest.models.loaded import LoadedModel
from circuittest.units import Edge
from tests.helpers import tiny
from tests.helpers.items import FakeItem, random_items


@lru_cache
def model_of(architecture: str, dtype: torch.dtype = torch.float64) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=dtype)


@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
@pytest.mark.parametrize("unit_score", ["edge-abs-sum", "node"])
def test_batches_change_nothing(architecture: str, unit_score: str) -> None:
    model, items = model_of(architecture), random_items(7)
    whole = attribute(model, items, metric="log_prob", unit_score=unit_score)
    for size in (1, 3):
        parts = attribute(model, items, metric="log_prob", unit_score=unit_score, batch_size=size)
        np.testing.assert_allclose(parts.values, whole.values, rtol=2e-6, atol=1e-9)
    alone = [attribute(model, [item], metric="log_prob", unit_score=unit_score) for item in items]
    np.testing.assert_allclose(np.concatenate([t.values for t in alone]), whole.values, rtol=2e-6, atol=1e-9)
    assert whole.examples == tuple(item.index for item in items)
    assert whole.members == model.layout.units()


@pytest.mark.parametrize("architecture", ["llama", "gpt_neox", "gpt2"])
def test_unit_rules_follow_from_the_edges(architecture: str) -> None:
    model, items = model_of(architecture), random_items(3, (6,))
    table = attribute(model, items, metric="logit_diff", level="edges")
    kinds = ("embed", "head", "kv", "attn", "mlp")
    per_rule = {
        rule: attribute(model, items, metric="logit_diff", unit_score=rule, kinds=kinds)
        for rule in ("edge-abs-sum", "edge-sum", "node")
    }
    assert per_rule["node"].members == model.layout.units(kinds)
    for column, unit in enumerate(per_rule["node"].members):
        writers = (unit,) if unit.kind == "embed" else model.layout.parts(unit)
        outgoing: dict[object, np.ndarray] = {}
        for i, edge in enumerate(table.members):
            if isinstance(edge, Edge) and edge.source in writers:
                slot = (edge.target, edge.slot)
                outgoing[slot] = outgoing.get(slot, 0) + table.values[:, i].astype(float)
        signed = sum(outgoing.values())
        absolute = sum(np.abs(values) for values in outgoing.values())
        near = {"rtol": 1e-5, "atol": 1e-5}
        np.testing.assert_allclose(per_rule["edge-abs-sum"].values[:, column], absolute, **near)
        np.testing.assert_allclose(per_rule["edge-sum"].values[:, column], signed, **near)
        np.testing.assert_allclose(per_rule["node"].values[:, column], signed, **near)


@pytest.mark.parametrize("architecture", ["gpt2", "gemma3_text"])
def test_float32_is_close_to_float64(architecture: str) -> None:
    items = random_items(4)
    exact = attribute(model_of(architecture), items, metric="log_prob").values
    found = attribute(model_of(architecture, torch.float32), items, metric="log_prob").values
    np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-4 * float(exact.max()))


@pytest.mark.parametrize("unit_score", ["edge-abs-sum", "node"])
def test_low_precision_accumulates_in_float32(unit_score: str) -> None:
    items = random_items(4)
    model = model_of("llama", torch.bfloat16)
    table = attribute(model, items, metric="log_prob", unit_score=unit_score)
    exact = attribute(model_of("llama"), items, metric="log_prob", unit_score=unit_score).values
    assert table.values.dtype == np.float32
    assert table.choices["dtype"] == "bfloat16"
    assert np.corrcoef(table.values.ravel(), exact.ravel())[0, 1] > 0.95
    mantissas = np.unique(table.values.view(np.uint32) & 0xFFFF)
    assert len(mantissas) > 10  # scores rounded to bfloat16 would leave these bits empty


def test_the_model_is_left_as_it_was() -> None:
    module = tiny.build("gpt2").train()
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    model = tiny.wrap(module)
    hooks = count(module)
    attribute(model, random_items(3), metric="log_prob")
    assert count(module) == hooks
    assert module.training
    assert all(part.training for part in module.modules())
    for name, parameter in module.named_parameters():
        assert parameter.requires_grad, name
        assert parameter.grad is None, name
        assert torch.equal(parameter, before[name]), name


def test_choices_say_what_was_done() -> None:
    table = attribute(model_of("gpt2"), random_items(3), metric="log_prob", batch_size=1)
    assert table.choices == {
        "method": "eap",
        "metric": "log_prob",
        "baseline": "counterfactual",
        "level": "units",
        "score": "edge-abs-sum",
        "dtype": "float64",
        "batches": [[1, 6], [1, 6], [1, 9]],
    }


def test_unequal_lengths_are_refused() -> None:
    items = [FakeItem(4, (5, 6, 7), (5, 6), (3,), (8,))]
    with pytest.raises(UsageError, match="example 4 has 3 prompt tokens and 2 counterfactual tokens"):
        attribute(model_of("gpt2"), items, metric="log_prob")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "logits"}, "unknown metric 'logits'"),
        ({"method": "eap-gi"}, "unknown method 'eap-gi'"),
        ({"level": "nodes"}, "unknown level"),
        ({"unit_score": "edge-abs"}, "Did you mean 'edge-abs-sum'"),
        ({"kinds": ("logits",)}, "units of kind 'logits' cannot be scored"),
        ({"kinds": ()}, "no kinds"),
        ({"batch_size": 0}, "batch size of 0"),
    ],
)
def test_choices_that_do_not_exist_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        attribute(model_of("gpt2"), random_items(2), **{"metric": "log_prob", **change})  # type: ignore[arg-type]


def test_quantised_models_are_refused() -> None:
    model = replace(tiny.build_loaded("gpt2"), quantised=True)
    with pytest.raises(UnsupportedModel, match="is quantised"):
        attribute(model, random_items(2), metric="log_prob")


def bypass_mlp(module: nn.Module) -> None:
    """The block computes its MLP without calling the module."""
    block = module.transformer.h[1]
    inner = block.mlp

    class Fused(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return inner.forward(x)

    fused = Fused()
    original = block.forward

    def forward(*args: object, **kwargs: object) -> object:
        block._modules["mlp"] = fused
        try:
            return original(*args, **kwargs)
        finally:
            block._modules["mlp"] = inner

    block.forward = forward


def detach_attention(module: nn.Module) -> None:
    """Attention of one layer is cut out of the graph."""
    attention = module.transformer.h[1].attn
    original = attention.forward

    def forward(hidden_states: torch.Tensor, *args: object, **kwargs: object) -> object:
        out, *rest = original(hidden_states, *args, **kwargs)
        return (out.detach(), *rest)

    attention.forward = forward


@pytest.mark.parametrize(
    ("damage", "unit_score", "message"),
    [
        (bypass_mlp, "node", "the MLP of layer L1 did not run"),
        (bypass_mlp, "edge-abs-sum", "the MLP of layer L1 did not run"),
        (detach_attention, "node", "no gradient at the attention output projection of layer L1"),
        (detach_attention, "edge-abs-sum", "no gradient at the module 'qkv' of layer L1"),
    ],
)
def test_captures_that_fail_are_errors(damage: object, unit_score: str, message: str) -> None:
    module = tiny.build("gpt2")
    damage(module)  # type: ignore[operator]
    with pytest.raises(InterventionError, match=message):
        attribute(tiny.wrap(module), random_items(2), metric="log_prob", unit_score=unit_score)
    assert count(module) == 0


def test_a_module_used_twice_is_an_error() -> None:
    module = tiny.build("gpt2")
    module.transformer.h[2].mlp = module.transformer.h[1].mlp
    with pytest.raises(InterventionError, match="ran twice"):
        attribute(tiny.wrap(module), random_items(2), metric="log_prob")

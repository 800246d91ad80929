"""Traces of weights: heads that changed places are found in every architecture, and another run is told from a tuned model."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from circuittest.circuit import Circuit
from circuittest.measure.patching import patch
from circuittest.models.loading import from_module
from circuittest.models.traces import _features, _parts, weights_of
from circuittest.units import Edge, Layout, Unit
from circuittest.weights import SAMPLE, Weights, correlation, exchanged, placed_circuit
from tests.helpers.items import random_items
from tests.helpers.tiny import ARCHITECTURES, build, build_loaded

IDS = torch.tensor([[3, 5, 2, 7, 4]])


def exchange(model: Any, layer: int, order: list[int]) -> Any:
    """The same function with the heads of a layer in another order: head `order[i]` of the base is put at place i."""
    edited = from_module(copy.deepcopy(model.module), model.tokenizer, "exchanged")
    layout = model.layout
    groups = [order[g * layout.group_size] // layout.group_size for g in range(layout.n_kv_heads)]
    with torch.no_grad():
        for (tensor, slot), (source, _) in zip(
            _parts(edited, edited.blocks[layer]), _parts(model, model.blocks[layer]), strict=True
        ):
            if slot == "out":
                tensor.copy_(source.unflatten(0, (layout.n_heads, -1))[order].flatten(0, 1))
            else:
                features = _features(model, slot)
                tensor[features] = source[features[order if slot == "q" else groups]]
    return from_module(edited.module, model.tokenizer, "exchanged")


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_heads_that_changed_places_are_found_where_the_model_computes_the_same(name: str) -> None:
    model = build_loaded(name)
    base = weights_of(model)
    layout = model.layout
    size, heads = layout.group_size, layout.n_heads
    order = [*range(size, heads), *range(size)] if layout.n_kv_heads > 1 else [*range(1, heads), 0]
    other = exchange(model, 1, order)
    found = exchanged(base, weights_of(other), layout)
    with torch.no_grad():
        here, there = (m.module(input_ids=IDS).logits for m in (model, other))
    same = torch.allclose(here, there, rtol=1e-4, atol=1e-4)
    if not base.heads or getattr(model.module.config, "model_type", "") == "gpt_oss":  # ALiBi; sinks by head
        assert not found
        return
    assert same
    assert found is not None
    assert found[Unit("head", 1, order[0])] == Unit("head", 1, 0)
    moved_heads = {unit: to for unit, to in found.items() if unit.kind == "head"}
    assert moved_heads == {Unit("head", 1, old): Unit("head", 1, new) for new, old in enumerate(order)}
    if size > 1 and layout.n_kv_heads > 1:
        assert found[Unit("kv", 1, 1)] == Unit("kv", 1, 0)


def test_more_than_an_exchange_is_none() -> None:
    model = build_loaded("llama")
    base, layout = weights_of(model), model.layout
    assert exchanged(base, weights_of(from_module(copy.deepcopy(model.module))), layout) == {}
    for change in ("mlp", "head"):
        module = copy.deepcopy(model.module)
        edited = from_module(module)
        block = edited.blocks[0]
        with torch.no_grad():
            (block.down if change == "mlp" else block.q).weight[0, 0] += 1.0
        assert exchanged(base, weights_of(from_module(module)), layout) is None


def test_heads_that_write_the_same_stay_where_they_are() -> None:
    weights = lambda *heads: Weights((tuple(heads),), "rest", (0.0,) * SAMPLE)
    layout = build_loaded("gpt2").layout
    found = exchanged(weights("a", "z", "z", "b"), weights("b", "z", "z", "a"), layout)
    pairs = {"L0.H0": "L0.H3", "L0.H3": "L0.H0", "L0.KV0": "L0.KV3", "L0.KV3": "L0.KV0"}
    assert found == {Unit.parse(old): Unit.parse(new) for old, new in pairs.items()}


def test_an_exchange_that_splits_a_kv_group_is_none() -> None:
    weights = lambda *heads: Weights((tuple(heads),), "rest", (0.0,) * SAMPLE)
    layout = Layout(1, 4, 2)
    assert exchanged(weights("a", "b", "c", "d"), weights("a", "c", "b", "d"), layout) is None
    whole = exchanged(weights("a", "b", "c", "d"), weights("c", "d", "b", "a"), layout)
    assert whole is not None
    assert whole[Unit.parse("L0.KV0")] == Unit.parse("L0.KV1")


def test_edges_go_with_their_heads() -> None:
    """Knocking the placed edges out of the model with exchanged heads is knocking them out of the base."""
    model = build_loaded("gpt2", dtype=torch.float64)
    other = exchange(model, 1, [1, 2, 3, 0])
    found = exchanged(weights_of(model), weights_of(other), model.layout)
    assert found
    names = ("L0.H1->L1.H2.q", "L0.MLP->L1.KV1.v", "L1.H3->logits")
    circuit = Circuit.of([Edge.parse(name) for name in names], layout=model.layout)
    items = random_items(4)
    ours, theirs = (
        patch(one, items, [edges], keep=False).columns["log_prob"]
        for one, edges in ((model, circuit), (other, placed_circuit(circuit, found)))
    )
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    unplaced = patch(other, items, [circuit], keep=False).columns["log_prob"]
    assert abs(unplaced - ours).max() > 1e-6


def test_weights_of_a_tuned_model_correlate_and_those_of_another_run_do_not() -> None:
    torch.manual_seed(1)
    one = from_module(build("llama"))
    tuned, other = copy.deepcopy(one.module), copy.deepcopy(one.module)
    with torch.no_grad():
        for parameter, there in zip(tuned.parameters(), other.parameters(), strict=True):
            parameter += 0.1 * parameter.std() * torch.randn_like(parameter)
            there.copy_(there.std() * torch.randn_like(there))
    base = weights_of(one)
    assert correlation(base, base) == pytest.approx(1.0)
    assert correlation(base, weights_of(from_module(tuned))) > 0.95
    assert abs(correlation(base, weights_of(from_module(other)))) < 0.15
    assert correlation(base, Weights((), "", (1.0,) * SAMPLE)) is None


def test_what_is_written_reads_back() -> None:
    base = weights_of(build_loaded("llama"))
    assert Weights.from_dict(base.to_dict()) == base
    with pytest.raises(ValueError, match="a sample of weights has 1 numbers"):
        Weights.from_dict({**base.to_dict(), "sample": "0.5"})

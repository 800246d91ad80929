"""Exact patching against hooks written by hand, and as what EAP and EAP-IG estimate."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.measure.attribution import attribute
from circuittest.measure.exact import activation_patching
from circuittest.measure.metrics import Targets, last_rows, metric_values
from circuittest.models.hooks import on_input, on_output
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit
from tests.helpers import tiny
from tests.helpers.items import FakeItem, random_items


@lru_cache
def model_of(architecture: str) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=torch.float64)


def by_hand(model: LoadedModel, item: FakeItem, unit: Unit, metric: str) -> float:
    """m(patched) − m(clean), one unit and one example at a time."""
    heads = [part.index or 0 for part in model.layout.parts(unit)] if unit.kind != "mlp" else []
    block, d = model.blocks[unit.layer or 0], model.head_dim
    features = [h * d + i for h in heads for i in range(d)] or slice(None)
    hooked = (on_input, block.out) if heads else (on_output, block.mlp_out)
    seen: list[Tensor] = []

    def run(ids: tuple[int, ...], change: Callable[[Tensor], Tensor | None]) -> float:
        with torch.no_grad(), hooked[0](hooked[1], change):
            hidden = model.trunk(torch.tensor([ids]), use_cache=False).last_hidden_state
        return float(metric_values(model, last_rows(hidden), Targets.of([item], model.device), metric))

    def swap(tensor: Tensor) -> Tensor:
        new = tensor.clone()
        new[..., features] = seen[0][..., features]
        return new

    run(item.counterfactual_ids, lambda tensor: seen.append(tensor.clone()))
    return run(item.prompt_ids, swap) - run(item.prompt_ids, lambda _: None)


@pytest.mark.parametrize(
    "architecture", ["gpt2", "gemma3_text", pytest.param("mixtral", marks=pytest.mark.slow)]
)
def test_each_unit_is_replaced_by_its_counterfactual_value(architecture: str) -> None:
    model, items = model_of(architecture), random_items(2)
    kinds = ("head", "kv", "attn", "mlp")
    table = attribute(model, items, metric="logit_diff", method="exact", kinds=kinds)
    assert table.members == model.layout.units(kinds)
    assert (table.choices["method"], table.choices["ablation"]) == ("exact", "counterfactual")
    for column in range(0, len(table.members), 3):
        expected = [by_hand(model, item, table.members[column], "logit_diff") for item in items]  # type: ignore[arg-type]
        np.testing.assert_allclose(table.values[:, column], expected, rtol=1e-5, atol=1e-6)


def test_it_is_what_attribution_estimates_to_first_order() -> None:
    """Where the counterfactual hardly differs, the estimates agree with it, sign and size."""
    model = tiny.build_loaded("llama", dtype=torch.float64)
    embedding = model.module.get_input_embeddings().weight
    with torch.no_grad():  # two tokens that are nearly the same
        embedding[5] = embedding[4] + 1e-4 * embedding[6]
    model = tiny.wrap(model.module)
    items = [
        FakeItem(0, (7, 4, 9, 4), (7, 5, 9, 4), (11,), (12,)),
        FakeItem(1, (4, 8, 9), (5, 8, 9), (13,), (3,)),
    ]
    exact = activation_patching(model, items, metric="log_prob").values
    for method in ("eap", "eap-ig"):
        found = attribute(model, items, metric="log_prob", method=method, unit_score="node").values
        np.testing.assert_allclose(found, exact, rtol=1e-2, atol=1e-2 * float(np.abs(exact).max()))


def test_what_cannot_be_patched_exactly_is_refused() -> None:
    model, items = model_of("gpt2"), random_items(2)
    with pytest.raises(UsageError, match="exact patching by the metric 'kl'"):
        activation_patching(model, items, metric="kl")
    with pytest.raises(UsageError, match="'exact' at the level of edges"):
        attribute(model, items, metric="log_prob", method="exact", level="edges")
    with pytest.raises(UsageError, match="without calibration examples"):
        attribute(model, items, metric="log_prob", method="exact", baseline="mean")

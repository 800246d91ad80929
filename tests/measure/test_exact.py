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
from circuittest.units import Edge, Unit
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


def nearly_the_same() -> tuple[LoadedModel, list[FakeItem]]:
    """A model and prompts whose counterfactuals hardly differ."""
    model = tiny.build_loaded("llama", dtype=torch.float64)
    embedding = model.module.get_input_embeddings().weight
    with torch.no_grad():  # two tokens that are nearly the same
        embedding[5] = embedding[4] + 1e-4 * embedding[6]
    model = tiny.wrap(model.module)
    items = [
        FakeItem(0, (7, 4, 9, 4), (7, 5, 9, 4), (11,), (12,)),
        FakeItem(1, (4, 8, 9), (5, 8, 9), (13,), (3,)),
    ]
    return model, items


def test_it_is_what_attribution_estimates_to_first_order() -> None:
    """Where the counterfactual hardly differs, the estimates agree with it, sign and size."""
    model, items = nearly_the_same()
    exact = activation_patching(model, items, metric="log_prob").values
    for method in ("eap", "eap-ig"):
        found = attribute(model, items, metric="log_prob", method=method, unit_score="node").values
        np.testing.assert_allclose(found, exact, rtol=1e-2, atol=1e-2 * float(np.abs(exact).max()))


def test_edges_one_by_one() -> None:
    """Against knocking them out, and as what edge attribution estimates where little changes."""
    model, items = nearly_the_same()
    edges = [Edge.parse(e) for e in ("embed->L1.MLP", "L0.H1->L2.KV1.v", "L0.MLP->L1.H2.q", "L1.H3->logits")]
    exact = activation_patching(model, items, metric="log_prob", level="edges", edges=edges)
    assert exact.members == tuple(sorted(edges))
    assert (exact.choices["level"], exact.choices["baseline"]) == ("edges", "counterfactual")
    found = attribute(model, items, metric="log_prob", level="edges").columns(edges).values
    np.testing.assert_allclose(found, exact.values, rtol=1e-2, atol=1e-2 * float(np.abs(exact.values).max()))


def test_all_edges_of_a_small_model() -> None:
    model = tiny.build_loaded("gpt2", n_layer=1, n_head=2, dtype=torch.float64)
    items = random_items(2)
    table = attribute(model, items, metric="logit_diff", method="exact", level="edges")
    assert table.members == tuple(model.layout.edges())
    # What the MLP writes is read by the logits alone, so its edge is the unit.
    unit = attribute(model, items, metric="logit_diff", method="exact", kinds=("mlp",))
    column = table.members.index(Edge.parse("L0.MLP->logits"))
    np.testing.assert_allclose(table.values[:, column], unit.values[:, 0], rtol=1e-5, atol=1e-7)


def test_what_cannot_be_patched_exactly_is_refused() -> None:
    model, items = model_of("gpt2"), random_items(2)
    with pytest.raises(UsageError, match="exact patching by the metric 'kl'"):
        activation_patching(model, items, metric="kl")
    with pytest.raises(UsageError, match="without calibration examples"):
        attribute(model, items, metric="log_prob", method="exact", baseline="mean")

"""Router weights: those with which transformers' own routers chose the experts of the last token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from circuittest.errors import UnsupportedModel
from circuittest.measure.routing import routing
from circuittest.models.hooks import count
from tests.helpers import tiny
from tests.helpers.items import random_items


@pytest.mark.parametrize("architecture", ["olmoe", "mixtral", "qwen3_moe"])
def test_weights_are_those_of_the_model_s_own_routers(architecture: str) -> None:
    model = tiny.build_loaded(architecture)
    items = random_items(6, (6, 9))
    table = routing(model, items)
    assert count(model.module) == 0
    layers = (0, 2) if architecture == "qwen3_moe" else (0, 1, 2)
    assert table.layers == layers
    assert table.values.shape == (6, len(layers), 4)
    config = model.module.config
    for row, item in enumerate(items):
        with torch.no_grad():
            out = model.module(torch.tensor([item.prompt_ids]), output_router_logits=True)
        for column, logits in enumerate(out.router_logits):
            p = torch.softmax(logits.reshape(-1, 4)[-1].double(), -1)
            top, chosen = p.topk(2)
            if architecture == "mixtral" or getattr(config, "norm_topk_prob", False):
                top = top / top.sum()
            expected = np.zeros(4)
            expected[chosen.numpy()] = top.numpy()
            np.testing.assert_allclose(table.values[row, column], expected, atol=1e-5)


def test_batches_change_nothing() -> None:
    model, items = tiny.build_loaded("olmoe"), random_items(7, (5, 8))
    np.testing.assert_allclose(
        routing(model, items).values, routing(model, items, batch_size=2).values, atol=1e-6
    )


def test_a_dense_model_has_no_routing() -> None:
    with pytest.raises(UnsupportedModel, match="no routing to condition on: it has no router and no experts"):
        routing(tiny.build_loaded("llama"), random_items(2))

"""Attention signals: the largest weight and that on the first token, against transformers' own attentions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from circuittest.errors import UsageError
from circuittest.measure.attention import max_attention
from circuittest.measure.signals import signals
from tests.helpers import tiny
from tests.helpers.items import FakeItem, random_items


@pytest.mark.parametrize("sink", [True, False])
def test_signals_are_those_of_the_model_s_attentions(sink: bool) -> None:
    module = tiny.build("llama")
    model, items = tiny.wrap(module), random_items(5, (6, 9))
    found = signals(model, items, sink=sink)
    module.set_attn_implementation("eager")
    for row, item in enumerate(items):
        with torch.no_grad():
            weights = module(torch.tensor([item.prompt_ids]), output_attentions=True).attentions
        rows = torch.cat([layer[0, :, -1] for layer in weights]).numpy()
        start = 0 if sink else 1
        np.testing.assert_allclose(found.largest.values[row], rows[:, start:].max(1), atol=1e-6)
        np.testing.assert_allclose(found.first.values[row], rows[:, 0], atol=1e-6)
    assert found.largest.members == model.layout.units(("head",))


def test_the_largest_weight_is_that_of_the_measurement_alone() -> None:
    model, items = tiny.build_loaded("gpt2"), random_items(4)
    np.testing.assert_array_equal(signals(model, items).largest.values, max_attention(model, items).values)


def test_one_token_has_nothing_beyond_the_first() -> None:
    item = FakeItem(3, (5,), (6,), (7,))
    with pytest.raises(UsageError, match="example 3 has one token"):
        signals(tiny.build_loaded("gpt2"), [item], sink=False)

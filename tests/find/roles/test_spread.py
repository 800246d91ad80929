"""Effective numbers, and their integral over checkpoints."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from circuittest.errors import UsageError
from circuittest.find.roles.spread import (
    effective_rank,
    growth,
    output_spread,
    participation_ratio,
    target_spread,
)
from circuittest.measure.attention import attention_rows
from tests.find.roles.test_patterns import ITEMS
from tests.helpers import role_heads, tiny
from tests.helpers.items import random_items


def test_equal_weights_count_each() -> None:
    for m in (1, 3, 8):
        weights = np.r_[np.full(m, 0.7), np.zeros(4)]
        assert participation_ratio(weights) == pytest.approx(m)
        assert effective_rank(weights) == pytest.approx(m)


def test_known_unequal_weights() -> None:
    p = np.array([0.5, 0.25, 0.25])
    assert participation_ratio(8 * p) == pytest.approx(1 / 0.375)
    assert effective_rank(8 * p) == pytest.approx(2**1.5)
    both = np.random.default_rng(0).dirichlet(np.ones(6), size=100)
    assert (effective_rank(both) >= participation_ratio(both) - 1e-12).all()


def test_no_weight_is_undefined_and_a_negative_one_refused() -> None:
    assert np.isnan(participation_ratio([0.0, 0.0]))
    assert np.isnan(effective_rank(np.zeros((2, 3)))).all()
    for bad in ([1.0, -0.1], [math.nan, 1.0]):
        with pytest.raises(UsageError, match="negative or not finite"):
            effective_rank(bad)


def test_the_spread_of_attention() -> None:
    model = role_heads.build()
    names = [str(unit) for unit in model.layout.units(("head",))]
    spread = target_spread(attention_rows(model, ITEMS))
    at = lambda name: (
        spread.participation_ratio[names.index(name)],
        spread.effective_rank[names.index(name)],
    )
    assert at("L0.H0") == pytest.approx((1, 1), abs=1e-4)  # one token
    mean = (9 + 9 + 5) / 3
    assert at("L0.H4") == pytest.approx((mean, mean))  # all tokens alike
    assert at("L0.H5") == pytest.approx(((4 + 4 + 2) / 3,) * 2, abs=1e-4)  # four of them, of five tokens two


def test_the_spread_of_outputs_is_that_of_their_singular_values() -> None:
    model, items = tiny.build_loaded("llama", dtype=torch.float64), random_items(5)
    found = output_spread(model, items, batch_size=2)
    rows: list[torch.Tensor] = []
    for layer, block in enumerate(model.blocks):
        seen: list[torch.Tensor] = []
        handle = block.out.register_forward_pre_hook(lambda m, a, seen=seen: seen.append(a[0][0, -1]))
        for item in items:
            model.trunk(torch.tensor([item.prompt_ids]), use_cache=False)
        handle.remove()
        rows += [torch.stack([z.view(4, -1)[h] for z in seen]) for h in range(4)]
        assert len(rows) == 4 * (layer + 1)
    for row, matrix in enumerate(rows):
        weights = torch.linalg.svdvals(matrix).square()
        p = weights / weights.sum()
        assert found.participation_ratio[row] == pytest.approx(float(1 / p.square().sum()), rel=1e-5)
        assert found.effective_rank[row] == pytest.approx(float((-(p * p.log()).sum()).exp()), rel=1e-5)
    assert found.effective_rank.max() <= model.head_dim + 1e-9


def test_a_head_that_writes_nothing_has_no_spread() -> None:
    found = output_spread(role_heads.build(), ITEMS)
    assert np.isnan(found.effective_rank[0 * 8 + 4])  # L0.H4
    assert found.effective_rank[0] >= 1  # L0.H0 writes


def test_growth_is_an_integral_over_log_tokens() -> None:
    assert growth([1e9, math.e * 1e9], [3.0, 3.0]) == pytest.approx(2.0)
    assert growth([1, math.e, math.e**3], [1.0, 2.0, 4.0]) == pytest.approx(0.5 + 4.0)
    for tokens, values, why in (
        ([1.0], [2.0], "1 checkpoints"),
        ([1.0, 2.0], [2.0], "2 checkpoints and 1 values"),
        ([0.0, 2.0], [2.0, 2.0], "tokens do not increase"),
        ([2.0, 2.0], [2.0, 2.0], "tokens do not increase"),
        ([1.0, 2.0], [0.5, 2.0], "below 1"),
        ([1.0, 2.0], [math.nan, 2.0], "below 1 or not finite"),
    ):
        with pytest.raises(UsageError, match=why):
            growth(tokens, values)

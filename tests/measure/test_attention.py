"""Attention weights: those with which the model's own heads mix their values, and those that plain formulas give."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel, UsageError
from circuittest.measure import attention as measured
from circuittest.measure.attention import attention, attention_rows, max_attention
from circuittest.models.hooks import count
from circuittest.models.loaded import LoadedModel
from tests.helpers import tiny
from tests.helpers.items import FakeItem, random_items

SHOWN = [name for name in tiny.EVERY if not name.startswith("falcon")]
WINDOWED = {"gemma3_text", "mistral", "gemma2", "olmo3", "gpt_oss", "phi3"}


@lru_cache
def model_of(name: str) -> LoadedModel:
    return tiny.build_loaded(name, dtype=torch.float64)


def whole(model: LoadedModel, items: list[FakeItem], **how: Any) -> Tensor:
    """Whole patterns of items of one length [items, heads, queries, keys]."""
    return attention(model, items, lambda layer, weights, batch: weights, **how)[0]


def values_and_mixes(model: LoadedModel, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Every head's values [heads, length, size] and what it hands to the output projection, as the model runs."""
    found: list[tuple[Tensor, Tensor]] = []
    seen: dict[str, Tensor] = {}
    n, kv, size = model.layout.n_heads, model.layout.n_kv_heads, model.head_dim
    length = ids.shape[1]

    def split(block: Any) -> Tensor:
        v = seen["v"][0]
        if block.qkv is None:
            return v.view(length, kv, size)
        if model.adapter.fused == "stacked":
            return v[:, -kv * size :].view(length, kv, size)
        return v.view(length, kv, n // kv + 2, size)[:, :, -1]

    handles = []
    for block in model.blocks:
        take = lambda module, args, output: seen.__setitem__("v", output.clone())
        handles.append((block.v if block.qkv is None else block.qkv).register_forward_hook(take))

        def mixed(module: nn.Module, args: Any, block: Any = block) -> None:
            spread = split(block).repeat_interleave(n // kv, 1).transpose(0, 1)
            found.append((spread, args[0][0].view(length, n, size).transpose(0, 1)))

        handles.append(block.out.register_forward_pre_hook(mixed))
    with torch.no_grad():
        model.trunk(ids, use_cache=False)
    for handle in handles:
        handle.remove()
    return torch.cat([v for v, _ in found]), torch.cat([z for _, z in found])


@pytest.mark.parametrize("name", tiny.marked(SHOWN))
@pytest.mark.parametrize("length", [4, 9])  # 4: no more tokens than a head's size, so that weights are unique
def test_weights_mix_the_values_as_the_model_does(name: str, length: int) -> None:
    model, items = model_of(name), random_items(3, (length,))
    before = model.module.config._attn_implementation
    patterns = whole(model, items, batch_size=2)
    clip = getattr(model.module.config, "clip_qkv", None)
    for item, weights in zip(items, patterns, strict=True):
        values, mixed = values_and_mixes(model, torch.tensor([item.prompt_ids]))
        values = values.clamp(-clip, clip) if clip else values
        torch.testing.assert_close(weights @ values, mixed, rtol=0, atol=1e-10)
    assert model.module.config._attn_implementation == before
    assert count(model.module) == 0


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of the first features of x [..., length, size]."""
    n = cos.shape[-1]
    a, b = x[..., : n // 2], x[..., n // 2 : n]
    turned = torch.cat(
        [a * cos[..., : n // 2] - b * sin[..., : n // 2], b * cos[..., n // 2 :] + a * sin[..., n // 2 :]], -1
    )
    return torch.cat([turned, x[..., n:]], -1)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "gpt_neox", "gemma3_text"])
def test_weights_are_the_softmax_of_queries_and_keys(name: str) -> None:
    model, items = model_of(name), random_items(2, (9,))
    config, n, kv, size = model.module.config, model.layout.n_heads, model.layout.n_kv_heads, model.head_dim
    patterns = whole(model, items)
    for item, weights in zip(items, patterns, strict=True):
        ids = torch.tensor([item.prompt_ids])
        taken: dict[tuple[str, int], Tensor] = {}
        handles = [
            part.register_forward_hook(
                lambda m, a, o, key=(role, i), taken=taken: taken.__setitem__(key, o[0])
            )
            for i, block in enumerate(model.blocks)
            for role in ("q", "k", "qkv")
            if (part := getattr(block, role)) is not None
        ]
        with torch.no_grad():
            model.trunk(ids, use_cache=False)
        for handle in handles:
            handle.remove()
        for layer, block in enumerate(model.blocks):
            if name == "gpt2":
                q, k = (part.view(9, n, size) for part in taken["qkv", layer].chunk(3, -1)[:2])
            elif name == "gpt_neox":
                q, k, _ = taken["qkv", layer].view(9, n, 3, size).unbind(2)
            else:
                q, k = taken["q", layer].view(9, n, size), taken["k", layer].view(9, kv, size)
            q, k = q.transpose(0, 1), k.transpose(0, 1)
            if name == "gemma3_text":
                q, k = block.attention.q_norm(q), block.attention.k_norm(k)
            if name != "gpt2":
                kind = config.layer_types[layer] if name == "gemma3_text" else None
                rope = config.rope_parameters[kind] if kind else config.rope_parameters
                turning = int(size * rope.get("partial_rotary_factor", 1.0))
                rates = rope["rope_theta"] ** -(torch.arange(0, turning, 2).double() / turning)
                angles = (torch.arange(9).double()[:, None] * rates).repeat(1, 2)
                q, k = (rotated(x, angles.cos(), angles.sin()) for x in (q, k))
            scores = q @ k.repeat_interleave(n // kv, 0).transpose(1, 2) / math.sqrt(size)
            hidden = torch.ones(9, 9).triu(1).bool()
            if name == "gemma3_text" and config.layer_types[layer] == "sliding_attention":
                hidden |= torch.ones(9, 9).tril(-config.sliding_window).bool()
            expected = scores.masked_fill(hidden, -math.inf).softmax(-1)
            found = weights[layer * n : (layer + 1) * n]
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6, msg=f"layer {layer}")


@pytest.mark.parametrize(
    "name", ["llama", "gpt2", "gemma3_text", pytest.param("gpt_oss", marks=pytest.mark.slow)]
)
def test_rows_are_those_of_whole_patterns(name: str) -> None:
    model, items = model_of(name), random_items(5)  # of 6 and 9 tokens
    table = attention_rows(model, items)
    assert table.heads == model.layout.units(("head",))
    assert table.examples == tuple(item.index for item in items)
    assert table.lengths == (6, 9, 6, 9, 6)
    assert table.queries == (5, 8, 5, 8, 5)
    assert table.choices["attention"] == "eager"
    assert table.choices["query"] == "answer"
    assert table.rows.shape == (5, 12, 9)
    for item, rows, length in zip(items, table.rows, table.lengths, strict=True):
        expected = whole(model, [item])[0, :, -1].numpy()
        np.testing.assert_allclose(rows[:, :length], expected, rtol=0, atol=1e-6)
        assert np.isnan(rows[:, length:]).all()
    sums = np.nansum(table.rows, -1)
    if name == "gpt_oss":
        assert sums.min() < 0.95
        assert sums.max() <= 1 + 1e-6
    else:
        np.testing.assert_allclose(sums, 1, atol=1e-6)
    if name in WINDOWED:
        assert (table.rows[1, :4, :5] == 0).all()  # outside the window of four


def test_rows_from_chosen_positions() -> None:
    model, items = model_of("llama"), random_items(3)
    table = attention_rows(model, items, query=[0, 4, 2])
    np.testing.assert_array_equal(table.rows[0, :, :6], np.eye(6)[0][None].repeat(12, 0))
    np.testing.assert_allclose(table.rows[1], whole(model, items[1:2])[0, :, 4].numpy(), rtol=0, atol=1e-6)
    assert table.choices["query"] == [0, 4, 2]


def test_batches_change_nothing() -> None:
    model, items = model_of("gemma3_text"), random_items(7)
    one, many = (attention_rows(model, items, batch_size=size) for size in (1, 7))
    np.testing.assert_allclose(one.rows, many.rows, rtol=0, atol=1e-6)
    assert one.choices["batches"] != many.choices["batches"]


def test_forced_answers_are_not_where_the_answer_is_read() -> None:
    model = model_of("llama")
    short = random_items(2, (6,))
    longer = [FakeItem(i.index, i.prompt_ids, i.counterfactual_ids, (5,), (), (6, 7)) for i in short]
    one, other = attention_rows(model, short), attention_rows(model, longer)
    assert other.lengths == (8, 8)
    assert other.queries == (5, 5)
    np.testing.assert_allclose(other.rows[:, :, :6], one.rows, rtol=0, atol=1e-6)
    assert (other.rows[:, :, 6:] == 0).all()


def test_the_largest_weight_with_and_without_the_first_token() -> None:
    model, items = model_of("qwen2"), random_items(4)
    rows = attention_rows(model, items).rows
    found = max_attention(model, items)
    np.testing.assert_array_equal(found.values, np.nanmax(rows, -1))
    assert found.members == model.layout.units(("head",))
    assert found.choices["signal"] == "max-attention"
    rest = max_attention(model, items, sink=False)
    np.testing.assert_array_equal(rest.values, np.nanmax(rows[..., 1:], -1))
    assert (rest.values < found.values).any()
    assert rest.choices["sink"] is False
    with pytest.raises(UsageError, match="looks from its first token"):
        max_attention(model, items, query=[1, 1, 0, 1], sink=False)


def test_bad_queries() -> None:
    model, items = model_of("llama"), random_items(2)
    for query, why in (
        ("last", "unknown query 'last'"),
        ([1], "1 query positions for 2 examples"),
        ([1, 9], "its prompt has positions 0 to 8"),
        ([-1, 2], "Count from the start"),
        ([True, 2], "query position True"),
    ):
        with pytest.raises(UsageError, match=why):
            attention_rows(model, items, query=query)
    with pytest.raises(UsageError, match="no examples"):
        max_attention(model, [])


def test_a_model_whose_attention_gives_no_weights_is_refused() -> None:
    model = tiny.build_loaded("falcon")
    with pytest.raises(UnsupportedModel, match=r"gives no weights.*ablation and attribution work"):
        max_attention(model, random_items(2))


def test_everything_is_put_back_after_an_error() -> None:
    model = tiny.build_loaded("llama")

    def fail(layer: int, weights: Tensor, batch: Any) -> Tensor:
        assert model.module.config._attn_implementation == "eager"
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        attention(model, random_items(2), fail)
    assert model.module.config._attn_implementation == "sdpa"
    assert count(model.module) == 0


def test_another_attention_than_the_model_runs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    model, plain = tiny.build_loaded("llama"), modeling_llama.eager_attention_forward

    def other(*args: Any, scaling: float, **kwargs: Any) -> Any:
        return plain(*args, scaling=2 * scaling, **kwargs)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", other)
    with pytest.raises(InterventionError, match="is not the attention that it runs"):
        max_attention(model, random_items(2))
    assert model.module.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w: w + 0.1, "sums to more than one|later tokens"),
        (lambda w: w.flip(-1), "on later tokens"),
        (lambda w: -w, "negative"),
        (lambda w: w * math.nan, "not finite"),
    ],
)
def test_what_are_no_weights_is_noticed(change: Any, why: str) -> None:
    model = tiny.build_loaded("llama")
    spoil = lambda module, args, output: (output[0], change(output[1])) if output[1] is not None else None
    handle = model.blocks[1].attention.register_forward_hook(spoil)
    with pytest.raises(InterventionError, match=rf"layer L1.*({why})"):
        max_attention(model, random_items(2))
    handle.remove()


def test_memory_that_runs_out_halves_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model, items = model_of("llama"), random_items(8, (6,))
    expected, run = max_attention(model, items), measured._run

    def tight(model: LoadedModel, ids: Tensor, take: Any) -> Tensor:
        if len(ids) > 2:
            raise RuntimeError("CUDA out of memory")
        return run(model, ids, take)

    monkeypatch.setattr(measured, "_run", tight)
    found = max_attention(model, items)
    np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-6)
    assert found.choices["batches"] == [[2, 6]] * 4

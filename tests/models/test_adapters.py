"""Each adapter against brute force: an intervention at its hook points equals editing the weights, in float64."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from circuittest.errors import UnsupportedModel, UsageError
from circuittest.models.adapters import Adapter, adapter_for, adapters, register_adapter
from circuittest.models.hooks import on_input, on_output
from circuittest.models.loaded import LoadedModel, weight_in_out
from tests.helpers.tiny import ARCHITECTURES, build, tokens, wrap

EXACT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> LoadedModel:
    return wrap(build(request.param, dtype=torch.float64))


def logits(model: LoadedModel) -> Tensor:
    with torch.no_grad():
        return model.module(input_ids=tokens(2, 9), use_cache=False).logits


def edited(model: LoadedModel) -> LoadedModel:
    return replace(model, module=copy.deepcopy(model.module), versions=())


def zero_heads(model: LoadedModel, layer: int, heads: list[int]) -> Tensor:
    def change(z: Tensor) -> Tensor:
        new = z.clone().unflatten(-1, (model.layout.n_heads, -1))
        new[..., heads, :] = 0
        return new.flatten(-2)

    with on_input(model.blocks[layer].out, change):
        return logits(model)


def without_columns(model: LoadedModel, layer: int, heads: list[int]) -> Tensor:
    other, d = edited(model), model.head_dim
    with torch.no_grad():
        for head in heads:
            weight_in_out(other.blocks[layer].out)[head * d : (head + 1) * d] = 0
    return logits(other)


@pytest.mark.parametrize("layer", [0, 2])
def test_zeroing_a_head_equals_zeroing_its_columns(model: LoadedModel, layer: int) -> None:
    for head in range(model.layout.n_heads):
        hooked = zero_heads(model, layer, [head])
        torch.testing.assert_close(hooked, without_columns(model, layer, [head]), **EXACT)
        assert (hooked - logits(model)).abs().max() > 1e-3  # and it does something


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3_text"])
def test_the_value_of_a_kv_head_feeds_its_group_and_no_other_head(architecture: str) -> None:
    """Zero one KV head's value weights and bias: the same as zeroing its group of query heads."""
    model = wrap(build(architecture, dtype=torch.float64))
    size, d = model.layout.group_size, model.head_dim
    assert size == 2
    for kv in range(model.layout.n_kv_heads):
        other = edited(model)
        v = other.blocks[1].v
        with torch.no_grad():
            v.weight[kv * d : (kv + 1) * d] = 0
            if v.bias is not None:
                v.bias[kv * d : (kv + 1) * d] = 0
        group = list(range(kv * size, (kv + 1) * size))
        torch.testing.assert_close(logits(other), zero_heads(model, 1, group), **EXACT)


def test_zeroing_an_mlp_equals_an_mlp_that_writes_nothing(model: LoadedModel) -> None:
    with on_output(model.blocks[1].mlp, torch.zeros_like):
        hooked = logits(model)
    other = edited(model)
    last = list(other.blocks[1].mlp.modules())
    down = next(
        m for m in last if type(m).__name__ in ("Linear", "Conv1D") and writes_residual(m, model.width)
    )
    with torch.no_grad():
        down.weight.zero_()
        if getattr(down, "bias", None) is not None:
            down.bias.zero_()
    torch.testing.assert_close(hooked, logits(other), **EXACT)
    assert (hooked - logits(model)).abs().max() > 1e-3


def writes_residual(projection: torch.nn.Module, width: int) -> bool:
    return weight_in_out(projection).shape[1] == width


def test_layout_and_sizes(model: LoadedModel) -> None:
    config = model.module.config
    assert model.layout.n_layers == len(model.blocks) == config.num_hidden_layers
    assert model.layout.n_heads == config.num_attention_heads
    assert model.width == config.hidden_size
    assert model.layout.parallel == bool(getattr(config, "use_parallel_residual", False))
    assert model.head_dim == (6 if config.model_type == "gemma3_text" else 4)
    assert model.unembed is model.module.get_output_embeddings()


def test_trunk_and_unembedding_give_the_logits(model: LoadedModel) -> None:
    with torch.no_grad():
        state = model.trunk(input_ids=tokens(2, 9), use_cache=False).last_hidden_state
        torch.testing.assert_close(model.unembed(state), logits(model), **EXACT)


def test_unknown_model_type_names_it_and_how_to_register() -> None:
    with pytest.raises(UnsupportedModel, match=r"'lama'.*did you mean 'llama'.*register_adapter"):
        adapter_for("lama")


def test_registering_twice_is_refused_unless_asked_for() -> None:
    llama = adapter_for("llama")
    with pytest.raises(UsageError, match="has an adapter already"):
        register_adapter(llama)
    register_adapter(llama, replace=True)
    assert adapters()["llama"] is llama


def test_an_adapter_needs_either_split_or_fused_projections() -> None:
    with pytest.raises(UsageError, match="either q, k and v, or qkv and fused"):
        Adapter(("x",), "layers", "norm", "o", "mlp", "attn", None, None)
    with pytest.raises(UsageError, match="either q, k and v, or qkv and fused"):
        replace(adapter_for("gpt2"), fused=None)

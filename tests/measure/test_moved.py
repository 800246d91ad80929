"""What heads move, against the model's own modules on every kind of block."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel, UsageError
from circuittest.measure.moved import Source, moved
from circuittest.models.hooks import count
from tests.helpers import tiny
from tests.helpers.items import random_items

SOURCES = [Source(0, 3), Source(1, 8), Source(0, 0), Source(2, 5), Source(1, 2)]


def bare(norm: nn.Module, vectors: Tensor) -> Tensor:
    """A norm's linear image of vectors: without the division by their length, and without its bias."""
    out = norm(vectors)
    if isinstance(norm, nn.LayerNorm):
        out = out - norm.bias if norm.bias is not None else out
        return out * (vectors.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    if "Rms" in type(norm).__name__ or "RMS" in type(norm).__name__:
        eps = getattr(norm, "variance_epsilon", None) or norm.eps
        return out * (vectors.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    return out * (vectors.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()  # OLMo's, without parameters


def by_hand(model: Any, ids: Tensor, at: int) -> Tensor:
    """Logits of every head from one position [heads of all layers, vocabulary]."""
    taken: dict[int, Tensor] = {}
    handles = []
    for layer, block in enumerate(model.blocks):
        part = block.v if block.qkv is None else block.qkv
        handles.append(part.register_forward_hook(lambda m, a, o, i=layer: taken.__setitem__(i, o[0, at])))
    with torch.no_grad():
        model.trunk(ids, use_cache=False)
    for handle in handles:
        handle.remove()
    n, kv, size = model.layout.n_heads, model.layout.n_kv_heads, model.head_dim
    found = []
    for layer, block in enumerate(model.blocks):
        v = taken[layer]
        if block.qkv is None:
            v = v.view(kv, size)
        elif model.adapter.fused == "stacked":
            v = v[-kv * size :].view(kv, size)
        else:
            v = v.view(kv, n // kv + 2, size)[:, -1]
        for head in range(n):
            into = torch.zeros(n, size, dtype=v.dtype)
            into[head] = v[head // (n // kv)]
            out = block.out(into.flatten()) - block.out(torch.zeros_like(into.flatten()))
            if block.attn_post_norm is not None:
                out = bare(block.attn_post_norm, out)
            out = bare(model.final_norm, out)
            logits = model.unembed(out)
            bias = getattr(model.unembed, "bias", None)
            found.append(logits if bias is None else logits - bias)
    return torch.stack(found)


@pytest.mark.parametrize("name", tiny.marked(tiny.EVERY))
def test_logits_are_those_of_the_modules(name: str) -> None:
    model = tiny.build_loaded(name, dtype=torch.float64)
    items = random_items(3, (6, 9))
    expected = torch.stack([by_hand(model, torch.tensor([items[i].prompt_ids]), at) for i, at in SOURCES])
    # one token's logits at a time, so that what is kept is one number
    for token in (5, 17, 39):
        found, choices = moved(model, items, SOURCES, lambda logits, _, t=token: logits[..., t], batch_size=2)
        torch.testing.assert_close(found, expected[..., token], rtol=1e-9, atol=1e-9)
    assert found.shape == (5, 12)
    assert choices["batches"] == [[2, 6], [1, 9]]
    assert count(model.module) == 0


def test_rows_are_told_from_which_tokens_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    model, items = tiny.build_loaded("llama"), random_items(3, (6, 9))
    where = lambda logits, sources: torch.tensor([[10.0 * s.item + s.position] * 4 for s in sources])
    monkeypatch.setattr("circuittest.measure.moved.LOGIT_BYTES", 1)  # row by row
    found, _ = moved(model, items, SOURCES, where)
    assert found[:, 0].tolist() == [3.0, 18.0, 0.0, 25.0, 12.0]


def test_values_that_are_not_mixed_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.integrations import sdpa_attention
    from transformers.models.llama import modeling_llama

    model, items = tiny.build_loaded("llama"), random_items(2)
    plain = sdpa_attention.sdpa_attention_forward

    def other(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Any:
        return plain(module, q, k, v.flip(-1), *args, **kwargs)

    monkeypatch.setitem(modeling_llama.ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", other)
    with pytest.raises(InterventionError, match=r"the values of L0\.H0 are not what it mixes"):
        moved(model, items, [Source(0, 1)], lambda logits, _: logits[..., 0])


def test_what_cannot_be_asked() -> None:
    model, items = tiny.build_loaded("llama"), random_items(2)
    keep = lambda logits, _: logits[..., 0]
    with pytest.raises(UsageError, match="no tokens"):
        moved(model, items, [], keep)
    with pytest.raises(UsageError, match=r"position 6 of example 10.*positions 0 to 5"):
        moved(model, items, [Source(0, 6)], keep)


def test_an_unknown_norm_is_refused() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.tanh()

    module = tiny.build("llama")
    module.model.norm = Odd()
    model = tiny.wrap(module)
    with pytest.raises(UnsupportedModel, match="a norm of the class Odd"):
        moved(model, random_items(2), [Source(0, 1)], lambda logits, _: logits[..., 0])

"""Plain forward passes in residual form, edge by edge: what patching must be equal to. One example, loops, no hooks.

Written from the formulas and the raw weights, apart from the library: every reader sums, over the units before it,
either what this pass wrote or what is given in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from circuittest.units import Edge, Unit

Carries = Callable[[Edge], bool]


@dataclass
class Pass:
    """Writes of one pass: embed and MLPs [length, width] before any post-norm, heads' results [length, head size]."""

    writes: dict[Unit, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None


def gpt2(
    model: nn.Module,
    ids: list[int],
    replaced: Mapping[Unit, Tensor] | None = None,
    own: Carries | None = None,
) -> Pass:
    """GPT-2. `own(edge)`: does the edge carry this pass's own write? Otherwise it carries `replaced[unit]`."""
    trunk, heads = model.transformer, model.config.n_head
    width = model.config.n_embd
    size = width // heads
    found = Pass()
    found.writes[Unit("embed")] = trunk.wte.weight[ids] + trunk.wpe.weight[: len(ids)]
    biases = torch.zeros(width, dtype=trunk.wpe.weight.dtype)  # of the output projections so far

    def read(target: Unit, slot: str | None = None) -> Tensor:
        total = biases.expand(len(ids), width).clone()
        for unit, write in found.writes.items():
            value = write if own is None or own(Edge(unit, target, slot)) else replaced[unit].expand_as(write)
            if unit.kind == "head":
                rows = slice(unit.index * size, (unit.index + 1) * size)
                value = value @ trunk.h[unit.layer].attn.c_proj.weight[rows]
            total = total + value
        return total

    def norm(module: nn.LayerNorm, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.pow(2).mean(-1, keepdim=True) + module.eps).sqrt() * module.weight + module.bias

    for layer, block in enumerate(trunk.h):
        results = {}
        for head in range(heads):
            parts = []
            for part, slot in enumerate("qkv"):
                target = Unit("head" if slot == "q" else "kv", layer, head)
                columns = slice(part * width + head * size, part * width + (head + 1) * size)
                x = norm(block.ln_1, read(target, slot))
                parts.append(x @ block.attn.c_attn.weight[:, columns] + block.attn.c_attn.bias[columns])
            results[Unit("head", layer, head)] = attend(*parts)
        found.writes |= results
        biases = biases + block.attn.c_proj.bias
        x = norm(block.ln_2, read(Unit("mlp", layer)))
        hidden = x @ block.mlp.c_fc.weight + block.mlp.c_fc.bias
        hidden = 0.5 * hidden * (1 + torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
        found.writes[Unit("mlp", layer)] = hidden @ block.mlp.c_proj.weight + block.mlp.c_proj.bias
    found.logits = norm(trunk.ln_f, read(Unit("logits")))[-1] @ model.lm_head.weight.T
    return found


def llama(
    model: nn.Module,
    ids: list[int],
    replaced: Mapping[Unit, Tensor] | None = None,
    own: Carries | None = None,
) -> Pass:
    """Llama with grouped keys and values, and OLMo 2: post-norms instead of pre-norms, queries and keys normalised
    over all heads. Behind a post-norm a reader reads the norm of the sum of what the heads' edges carry.
    """
    trunk, config = model.model, model.config
    heads, groups, size = (
        config.num_attention_heads,
        config.num_key_value_heads,
        trunk.layers[0].self_attn.head_dim,
    )
    post = config.model_type == "olmo2"
    found = Pass()
    embed = found.writes[Unit("embed")] = trunk.embed_tokens.weight[ids]
    cos, sin = trunk.rotary_emb(embed[None], torch.arange(len(ids))[None])

    def norm(module: nn.Module, x: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon).sqrt() * module.weight

    def read(target: Unit, slot: str | None = None) -> Tensor:
        carried = {
            unit: write if own is None or own(Edge(unit, target, slot)) else replaced[unit].expand_as(write)
            for unit, write in found.writes.items()
        }
        total = carried.pop(Unit("embed"))
        for layer, block in enumerate(trunk.layers):
            of_heads = [carried.get(Unit("head", layer, head)) for head in range(heads)]
            if of_heads[0] is not None:
                joined = torch.cat(of_heads, dim=-1) @ block.self_attn.o_proj.weight.T
                total = total + (norm(block.post_attention_layernorm, joined) if post else joined)
            if (mlp := carried.get(Unit("mlp", layer))) is not None:
                total = total + (norm(block.post_feedforward_layernorm, mlp) if post else mlp)
        return total

    for layer, block in enumerate(trunk.layers):
        attention, results = block.self_attn, {}
        keys, values = [], []

        def project(role: str, target: Unit, layer: int = layer) -> Tensor:
            block = trunk.layers[layer]
            x = read(target, role)
            whole = (x if post else norm(block.input_layernorm, x)) @ getattr(
                block.self_attn, f"{role}_proj"
            ).weight.T
            if post and role != "v":
                whole = norm(getattr(block.self_attn, f"{role}_norm"), whole)
            return whole[:, target.index * size : (target.index + 1) * size]

        for group in range(groups):
            unit = Unit("kv", layer, group)
            keys.append(apply_rotary_pos_emb(*(project("k", unit)[None, None],) * 2, cos, sin)[0][0, 0])
            values.append(project("v", unit))
        for head in range(heads):
            query = apply_rotary_pos_emb(
                *(project("q", Unit("head", layer, head))[None, None],) * 2, cos, sin
            )[0][0, 0]
            group = head // (heads // groups)
            results[Unit("head", layer, head)] = attend(query, keys[group], values[group])
        found.writes |= results
        x = read(Unit("mlp", layer))
        x = x if post else norm(block.post_attention_layernorm, x)
        hidden = nn.functional.silu(x @ block.mlp.gate_proj.weight.T) * (x @ block.mlp.up_proj.weight.T)
        found.writes[Unit("mlp", layer)] = hidden @ block.mlp.down_proj.weight.T
        assert attention.head_dim == size
    found.logits = norm(trunk.norm, read(Unit("logits")))[-1] @ model.lm_head.weight.T
    return found


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention of one head [length, head size]."""
    scores = query @ key.T / math.sqrt(query.shape[-1])
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ value

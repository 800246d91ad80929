"""Node scores of one traced batch: Σ_positions ⟨Δ write, ∂metric/∂ write⟩ of every unit, without any edge.

For a neuron the write is its activation, the input of the MLP's last projection. For an expert of a mixture it is what
the expert adds to a token, its weight times its output and nothing where it was not chosen; a choice that differs
between the runs is thereby part of the change. Neurons, and experts where they are all that the mixture writes, add up
to the score of their MLP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from circuittest.measure.trace import Trace
from circuittest.models.experts import CHUNK_BYTES, Routed
from circuittest.models.loaded import LoadedModel
from circuittest.units import KINDS, Layout


@torch.no_grad()
def writer_scores(traced: Trace, layout: Layout, dtype: torch.dtype) -> Tensor:
    """Of every writer, in the order of `layout.writers` [examples, writers]."""
    changes, gradients = traced.changes, traced.gradients
    found = [(changes["embed", 0].to(dtype) * gradients["embed", 0]).sum((1, 2)).unsqueeze(1)]
    for layer in range(layout.n_layers):
        heads = changes["z", layer].to(dtype) * gradients["z", layer]
        found.append(heads.unflatten(2, (layout.n_heads, -1)).sum((1, 3)))
        found.append((changes["mlp", layer].to(dtype) * gradients["mlp", layer]).sum((1, 2)).unsqueeze(1))
    return _together(found)


@torch.no_grad()
def neuron_scores(traced: Trace, layer: int, dtype: torch.dtype) -> Tensor:
    """Of a layer's neurons [examples, neurons]."""
    return (traced.changes["neuron", layer].to(dtype) * traced.gradients["neuron", layer]).sum(1)


@torch.no_grad()
def expert_scores(traced: Trace, model: LoadedModel, layer: int, dtype: torch.dtype) -> Tensor:
    """Of a layer's experts [examples, experts]."""
    replaced, clean = traced.experts[layer]
    rows, length, _ = traced.changes["embed", 0].shape
    gradient = traced.gradients["expert", layer].to(dtype).view(rows, length, -1)
    along = lambda call: torch.cat(list(_along(model, layer, call, gradient)))
    return along(replaced) - along(clean)


def _along(model: LoadedModel, layer: int, call: Routed | Tensor, gradient: Tensor) -> Iterator[Tensor]:
    """Σ_positions ⟨what each expert adds, gradient⟩ [examples, experts], a few examples at a time."""
    if isinstance(call, Tensor):
        yield gradient.sum(1) @ call.to(gradient).T
        return
    experts, number = model.blocks[layer].experts, model.layout.count("expert", layer)
    if experts is None:
        raise TypeError(f"layer L{layer} has no experts")
    rows, positions, choices = call.chosen.shape
    step = max(1, CHUNK_BYTES // (positions * choices * gradient.shape[2] * gradient.element_size()))
    for first in range(0, rows, step):
        part = Routed(*(one[first : first + step] for one in call))
        own = (part.singles(experts).to(gradient.dtype) * gradient[first : first + step, :, None]).sum(3)
        total = own.new_zeros(len(own), number)
        yield total.scatter_add_(1, part.chosen.flatten(1), own.flatten(1))


def units_of(values: Tensor, layout: Layout, kinds: Sequence[str]) -> Tensor:
    """From writers [examples, writers, ...] to units of some kinds [examples, units, ...] in canonical order."""
    blocks = values[:, 1:].unflatten(1, (layout.n_layers, layout.n_heads + 1))
    heads, mlps = blocks[:, :, :-1], blocks[:, :, -1:]
    made = {
        "head": heads,
        "kv": heads.unflatten(2, (layout.n_kv_heads, layout.group_size)).sum(3),
        "attn": heads.sum(2, keepdim=True),
        "mlp": mlps,
    }
    chosen = [made[kind] for kind in KINDS if kind in made and kind in kinds]
    embed = [values[:, :1]] if "embed" in kinds else []
    return torch.cat([*embed, *([torch.cat(chosen, dim=2).flatten(1, 2)] if chosen else [])], dim=1)


def node_scores(traced: Trace, model: LoadedModel, kinds: Sequence[str], dtype: torch.dtype) -> Tensor:
    """Of all units of some kinds, in canonical order [examples, units]."""
    layout = model.layout
    writers = writer_scores(traced, layout, dtype)
    if "neuron" not in kinds and "expert" not in kinds:
        return units_of(writers, layout, kinds)
    per_layer = layout.n_heads + 1
    found = [writers[:, :1]] if "embed" in kinds else []
    for layer in range(layout.n_layers):
        first = 1 + layer * per_layer
        alone = Layout(1, layout.n_heads, layout.n_kv_heads)
        own = torch.cat([writers[:, :1], writers[:, first : first + per_layer]], 1)
        for kind in KINDS:
            if kind not in kinds or kind == "embed":
                continue
            if kind not in ("neuron", "expert"):
                found.append(units_of(own, alone, (kind,)))
            elif layout.count(kind, layer):
                found.append(
                    neuron_scores(traced, layer, dtype)
                    if kind == "neuron"
                    else expert_scores(traced, model, layer, dtype)
                )
    return _together(found)


def _together(found: Sequence[Tensor]) -> Tensor:
    """Columns of layers on whichever devices, on that of the first."""
    return torch.cat([columns.to(found[0].device) for columns in found], 1)

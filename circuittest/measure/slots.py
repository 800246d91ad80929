"""Projections whose every head reads an input of its own.

A head's query is its rows of the query projection applied to the norm of what this head reads; keys and values are
read once per KV head. Where queries or keys are normalised over all heads together, each reader's full projection is
computed and normalised, and its own slice is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from circuittest.measure.batches import precision
from circuittest.measure.norms import Norm
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.models.wiring import slot_features


class Slots:
    """One module of a layer in whose output the queries, keys or values of the heads are apart.

    Attributes
    ----------
    role, layer:
        "q", "k", "v", or "qkv" where they are fused.
    module:
        The module with that output: the projection, or the norm over all heads behind it.
    device:
        Where the projection is.
    order:
        The layer's readers (0 for q of the first head, as in `Layout.readers`) in the order of the output's features.
    """

    def __init__(self, model: LoadedModel, layer: int, role: str) -> None:
        block, layout = model.blocks[layer], model.layout
        module, projection = block.slot(role), getattr(block, role)
        if module is None or projection is None:
            raise TypeError(f"layer L{layer} has no {role!r}")
        self.model, self.layer, self.role = model, layer, role
        self.module: nn.Module = module
        self.projection: nn.Module = projection
        self.device = next(projection.parameters()).device
        self._within = module.forward  # its own, since a pass runs something else instead
        self.norm = block.attn_norm
        self._rms = _rms(block.attn_norm, model.dtype)
        heads, groups = layout.n_heads, layout.n_kv_heads
        first = {"q": 0, "k": heads, "v": heads + groups}
        places: dict[int, int] = {}  # slot of the output → reader
        for slot in ("q", "k", "v") if role == "qkv" else (role,):
            features = slot_features(model.adapter, slot, heads, groups, model.head_dim)
            for index, start in enumerate((features[:, 0] // model.head_dim).tolist()):
                places[start] = first[slot] + index
        self.order = tuple(places[start] for start in range(len(places)))

    def __call__(self, inputs: Tensor, which: Sequence[int]) -> Tensor:
        """What some slots of the output are, each of its own residual [slots, rows, width]: [slots, rows, head size].

        `which` are places in `order`. May overwrite `inputs`.
        """
        if self.module is not self.projection:
            return self._behind_a_norm(inputs, which)
        weight = weight_in_out(self.projection).T.unflatten(0, (len(self.order), -1))
        bias = getattr(self.projection, "bias", None)
        if len(which) < len(self.order):
            weight = weight[list(which)]
        rms = self._rms
        if rms is None:
            found = torch.bmm(self._normed(inputs), weight.transpose(1, 2))
        else:
            # An RMS norm is a factor per row: it is applied to the few features that come out.
            scale = torch.linalg.vector_norm(inputs, dim=-1, keepdim=True)
            scale = torch.rsqrt(scale.square_().div_(inputs.shape[-1]).add_(rms.eps))
            found = torch.bmm(inputs, (weight * rms.weight).transpose(1, 2)).mul_(scale)
        if bias is not None:
            found += bias.unflatten(0, (len(self.order), 1, -1))[list(which)]
        return found

    def _normed(self, inputs: Tensor) -> Tensor:
        inputs = inputs.to(self.model.dtype)
        normed: Tensor = inputs if self.norm is None else self.norm.forward(inputs)
        return normed

    def _behind_a_norm(self, inputs: Tensor, which: Sequence[int]) -> Tensor:
        size, found = self.model.head_dim, []
        for slot, one in zip(which, self._normed(inputs), strict=True):
            whole = self._within(self.projection.forward(one))
            found.append(whole[..., slot * size : (slot + 1) * size])
        return torch.stack(found)


def slots_of(model: LoadedModel, layer: int) -> tuple[Slots, ...]:
    """The slot modules of a layer."""
    roles = ("qkv",) if model.blocks[layer].qkv is not None else ("q", "k", "v")
    return tuple(Slots(model, layer, role) for role in roles)


def _rms(module: nn.Module | None, dtype: torch.dtype) -> Norm | None:
    """The norm, where it is an RMS norm in the model's own precision, so that a factor per row is exact."""
    if module is None or dtype != precision(dtype):
        return None
    norm = Norm(module, dtype)
    if norm.kind != "rms" or norm.weight is None:
        return None
    probe = torch.randn((1, len(norm.weight)), generator=torch.Generator().manual_seed(0), dtype=dtype)
    probe = probe.to(norm.weight.device)
    with torch.no_grad():
        found = module.forward(probe)
    expected = probe * torch.rsqrt(probe.pow(2).mean(-1, keepdim=True) + norm.eps) * norm.weight
    return norm if torch.allclose(found, expected, rtol=0, atol=64 * torch.finfo(dtype).eps) else None

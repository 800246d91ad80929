"""Edge scores of one traced batch: Σ_positions ⟨Δ write of u, ∂metric/∂ read of v⟩ for every edge u → v.

Writes and reads are compared in residual space. A head's write is its slice of the projection's input times the
projection, pushed through a post-norm's Jacobian where the block has one; a reader's gradient is pulled back
through its projection and its pre-norm. Both are built for a limited number of positions at a time and contracted
reader layer by reader layer, so that memory does not grow with positions × units × width.

Edge attribution patching: Syed et al., arXiv 2310.10348, equation 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from circuittest.measure.batches import precision
from circuittest.measure.norms import Norm
from circuittest.measure.trace import Place, Trace
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.units import Edge, Layout

#: Norms through which gradients of different points have no common sum.
_NO_SUM = ("q_norm", "k_norm", "attn_post", "mlp_post")
#: Bytes of the buffer that holds the writes of all units at a few positions.
WRITE_BYTES = 64 << 20


@lru_cache(maxsize=16)
def visible(layout: Layout) -> NDArray[np.bool_]:
    """Which reader sees which writer: [writers × readers], in the orders of `layout.writers` and `layout.readers`."""
    written, read = [-1], []
    for layer in range(layout.n_layers):
        written += [2 * layer] * layout.n_heads + [2 * layer + 1]
        read += [2 * layer] * (layout.n_heads + 2 * layout.n_kv_heads)
        read.append(2 * layer if layout.parallel else 2 * layer + 1)
    read.append(2 * layout.n_layers)
    return np.array(written)[:, None] < np.array(read)[None, :]


@lru_cache(maxsize=4)
def edges(layout: Layout) -> tuple[tuple[Edge, ...], NDArray[np.intp]]:
    """All edges in canonical order, and where each is in a flattened [writers × readers] matrix."""
    readers = layout.readers
    order = sorted(range(len(readers)), key=lambda i: (readers[i][0].order, readers[i][1] or ""))
    sees = visible(layout)
    pairs = [(row, column) for row in range(len(layout.writers)) for column in order if sees[row, column]]
    members = tuple(Edge(layout.writers[row], *readers[column]) for row, column in pairs)
    return members, np.array([row * len(readers) + column for row, column in pairs], dtype=np.intp)


class EdgeScores:
    """Edge scores of traced batches of one model; holds the buffers that all batches reuse."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.layout = model.layout
        self.dtype = precision(model.dtype)
        self.visible = torch.from_numpy(visible(model.layout)).to(model.device)
        blocks = model.blocks
        self.norms = {
            "attn_norm": [Norm(block.attn_norm, self.dtype) for block in blocks],
            "mlp_norm": [Norm(block.mlp_norm, self.dtype) for block in blocks],
            "q_norm": [Norm(block.q_norm, self.dtype) for block in blocks],
            "k_norm": [Norm(block.k_norm, self.dtype) for block in blocks],
            "attn_post": [Norm(block.attn_post_norm, self.dtype) for block in blocks],
            "mlp_post": [Norm(block.mlp_post_norm, self.dtype) for block in blocks],
        }
        self.shared_norm = [block.mlp_norm is block.attn_norm for block in blocks]
        self._buffers: dict[tuple[str, torch.device], Tensor] = {}
        self._constants: dict[Place, Tensor] = {}

    @property
    def summable(self) -> bool:
        """Can gradients of several points be summed before they are contracted? See `integrated`."""
        bare = all(n.module is None for role in _NO_SUM for n in self.norms[role])
        pre = self.norms["attn_norm"] + self.norms["mlp_norm"]
        return bare and all(norm.kind != "autograd" for norm in pre)

    @torch.no_grad()
    def __call__(self, trace: Trace) -> Iterator[Tensor]:
        """Scores [examples, writers, readers] of a few examples at a time, zero where there is no edge."""
        batch, length, width = trace.changes["embed", 0].shape
        writers, readers = len(self.layout.writers), len(self.layout.readers)
        rows = max(1, WRITE_BYTES // (writers * width * self.dtype.itemsize))
        examples, positions = (rows // length, length) if rows >= length else (1, rows)
        for first in range(0, batch, examples):
            some = slice(first, min(first + examples, batch))
            scores = torch.zeros(
                (some.stop - first, writers, readers), dtype=self.dtype, device=self.model.device
            )
            for start in range(0, length, positions):
                window = (some, slice(start, min(start + positions, length)))
                self._add(trace, window, scores)
            yield scores.masked_fill_(~self.visible, 0)

    def _add(self, trace: Trace, window: tuple[slice, slice], scores: Tensor) -> None:
        """Add the scores of one window of examples and positions."""
        layout, per_layer = self.layout, self.layout.n_heads + 1
        examples = scores.shape[0]
        writes = self._writes(trace, window).view(len(layout.writers), examples, -1).transpose(0, 1)
        slots = layout.n_heads + 2 * layout.n_kv_heads + 1
        for layer in range(layout.n_layers):
            last = layer == layout.n_layers - 1
            reads = self._reads(trace, window, layer, with_logits=last)
            seen = scores.shape[1] if last else 1 + layer * per_layer + layout.n_heads
            columns = slice(layer * slots, layer * slots + len(reads))
            by_example = reads.view(len(reads), examples, -1).permute(1, 2, 0).to(writes.device)
            scores[:, :seen, columns] += torch.bmm(writes[:, :seen], by_example)

    def _writes(self, trace: Trace, window: tuple[slice, slice]) -> Tensor:
        """Changes of all units' writes in residual space [writers, rows, width], on the device of the embedding."""
        layout, model = self.layout, self.model
        embed = self._rows(trace.changes, ("embed", 0), window)
        buffer = self._buffer("writes", len(layout.writers), embed.shape, model.device)
        buffer[0] = embed
        for layer, block in enumerate(model.blocks):
            start, per_layer = 1 + layer * (layout.n_heads + 1), layout.n_heads + 1
            kept, there = buffer[start : start + per_layer], trace.changes["z", layer].device
            own = kept if there == model.device else self._buffer("own", per_layer, embed.shape, there)
            heads, mlp = own[:-1], own[-1:]
            change = self._rows(trace.changes, ("z", layer), window).unflatten(1, (layout.n_heads, -1))
            weight = weight_in_out(block.out).to(self.dtype).unflatten(0, (layout.n_heads, -1))
            torch.bmm(change.transpose(0, 1), weight, out=heads)
            mlp[0] = self._rows(trace.changes, ("mlp", layer), window)
            for role, values in (("attn_post", heads), ("mlp_post", mlp)):
                norm = self.norms[role][layer]
                if norm.module is not None:
                    pushed = norm.at(self._rows(trace.norms, (role, layer), window)).push(values)
                    if pushed is not values:
                        values.copy_(pushed)
            if own is not kept:
                kept.copy_(own)
        return buffer

    def _reads(self, trace: Trace, window: tuple[slice, slice], layer: int, *, with_logits: bool) -> Tensor:
        """Gradients at a layer's readers in residual space [readers, rows, width]: q, k, v, MLP (and logits)."""
        layout = self.layout
        slots = layout.n_heads + 2 * layout.n_kv_heads
        mlp = self._rows(trace.gradients, ("mlp_in", layer), window)
        buffer = self._buffer("reads", slots + 2, mlp.shape, mlp.device)
        start = 0
        for gradient, weight in self._projections(trace, window, layer):
            torch.bmm(gradient.transpose(0, 1), weight, out=buffer[start : start + len(weight)])
            start += len(weight)
        buffer[slots] = mlp
        if trace.summed:
            self._pull_sum(trace, window, layer, buffer[:slots])
        else:
            self._pull("attn_norm", trace, window, layer, buffer[:slots])
            shared = "attn_norm" if self.shared_norm[layer] else "mlp_norm"
            self._pull(shared, trace, window, layer, buffer[slots : slots + 1])
        if with_logits:
            buffer[slots + 1] = self._rows(trace.gradients, ("final", 0), window)
        return buffer[: slots + 1 + with_logits]

    def _pull(self, role: str, trace: Trace, window: tuple[slice, slice], layer: int, values: Tensor) -> None:
        norm = self.norms[role][layer]
        if norm.module is not None:
            pulled = norm.at(self._rows(trace.norms, (role, layer), window)).pull(values)
            if pulled is not values:
                values.copy_(pulled)

    def _pull_sum(self, trace: Trace, window: tuple[slice, slice], layer: int, values: Tensor) -> None:
        """From diag-less sums Wᵀ Σ g/r to Σ Jᵀ Wᵀ g; see `integrated`. Overwrites values [slots, rows, width]."""
        norm = self.norms["attn_norm"][layer]
        if norm.module is None:
            return
        along, unit = (part[window].flatten(0, 1) for part in trace.ranks[layer])
        norm.scale(values)
        ranks = self._buffer("ranks", values.shape[0], values.shape[1:], values.device).view(
            len(along), -1, values.shape[2]
        )
        values.sub_(torch.bmm(along, unit, out=ranks).transpose(0, 1))

    def roles(self, layer: int) -> tuple[str, ...]:
        """The projections whose outputs are the slots of a layer, in the order of its readers."""
        return ("q", "k", "v") if self.model.blocks[layer].qkv is None else ("qkv",)

    def apart(self, role: str, values: Tensor) -> list[Tensor]:
        """What a projection gives [..., features], with its slots apart [..., slots, head size], in readers' order."""
        layout = self.layout
        if role != "qkv":
            return [values.unflatten(-1, (layout.n_heads if role == "q" else layout.n_kv_heads, -1))]
        if self.model.adapter.fused == "stacked":
            return [values.unflatten(-1, (layout.n_heads + 2 * layout.n_kv_heads, -1))]
        group = layout.group_size
        by_group = values.unflatten(-1, (layout.n_kv_heads, group + 2, -1))
        keys, queries = by_group[..., group, :], by_group[..., :group, :].flatten(-3, -2)
        return [queries, keys, by_group[..., group + 1, :]]

    def constant(self, role: str, layer: int) -> Tensor:
        """What a projection gives whatever the residual is [features]: its own bias, and that of the norm before."""
        place = (role, layer)
        if place not in self._constants:
            block, module = self.model.blocks[layer], self._projection(role, layer)
            weight = weight_in_out(module).to(self.dtype)
            found = torch.zeros(weight.shape[1], dtype=self.dtype, device=weight.device)
            if isinstance(bias := getattr(module, "bias", None), Tensor):
                found = found + bias.to(self.dtype)
            if isinstance(bias := getattr(block.attn_norm, "bias", None), Tensor):
                found = found + (bias.to(self.dtype)[None] @ weight)[0]
            self._constants[place] = found
        return self._constants[place]

    def projected(self, role: str, layer: int, unit: Tensor) -> Tensor:
        """W diag(w) x̂ for x̂ [..., width]: what a projection gives less `constant`, computed anew [..., features]."""
        scale = self.norms["attn_norm"][layer].weight
        if scale is None:
            raise TypeError(f"the norm of layer L{layer} has no weight")
        return (unit * scale.to(unit.device)) @ weight_in_out(self._projection(role, layer)).to(self.dtype)

    def _projection(self, role: str, layer: int) -> nn.Module:
        block = self.model.blocks[layer]
        module = {"q": block.q, "k": block.k, "v": block.v, "qkv": block.qkv}[role]
        if module is None:
            raise TypeError(f"layer L{layer} has no {role!r}")
        return module

    def _projections(
        self, trace: Trace, window: tuple[slice, slice], layer: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Per group of slots the gradients [rows, slots, head size] and the weights [slots, head size, width]."""
        block = self.model.blocks[layer]
        for role, module in (("q", block.q), ("k", block.k), ("v", block.v), ("qkv", block.qkv)):
            if module is None:
                continue
            gradient = self._rows(trace.gradients, (role, layer), window)
            whole = weight_in_out(module).to(self.dtype)
            norm = self.norms[f"{role}_norm"][layer] if role in ("q", "k") else None
            if norm is None or norm.module is None:
                weights = [part.permute(1, 2, 0) for part in self.apart(role, whole)]
                yield from zip(self.apart(role, gradient), weights, strict=True)
                continue
            # The norm mixes heads: each head's gradient alone is pulled through it, and then has all features.
            alone = self.apart(role, gradient)[0].transpose(0, 1)
            apart = torch.diag_embed(alone.movedim(0, -1)).permute(2, 0, 3, 1).flatten(2)
            pulled = norm.at(self._rows(trace.norms, (f"{role}_norm", layer), window)).pull(apart)
            yield pulled.transpose(0, 1), whole.T.expand(len(alone), -1, -1)

    def _rows(self, tensors: dict[Place, Tensor], place: Place, window: tuple[slice, slice]) -> Tensor:
        """One tensor [batch, length, features] as the window's [rows, features]."""
        return tensors[place][window].flatten(0, 1).to(self.dtype)

    def _buffer(self, name: str, units: int, shape: torch.Size, device: torch.device) -> Tensor:
        """A reused buffer [units, rows, width] of each device; contiguous for the rows asked for."""
        size = units * shape.numel()
        kept = self._buffers.get((name, device))
        if kept is None or kept.numel() < size:
            kept = self._buffers[name, device] = torch.empty(size, dtype=self.dtype, device=device)
        return kept[:size].view(units, *shape)

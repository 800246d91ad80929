"""What heads move: from a token's residual through a head's values and output projection to logits.

For a head and a position s the vector W_O W_V x_s is what the head adds to the residual wherever it attends to s with
weight 1 (x_s: what enters its layer at s, behind the layer's norm; the projection's bias belongs to no head). Logits
are the unembedding of its linear image under the post-norm, where there is one, and the final norm, w ⊙ P v, without
the norms' division by a length, which changes no order, and without biases, which every head would share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel, UsageError
from circuittest.measure.batches import ItemLike, describe, plan, precision
from circuittest.measure.metrics import LOGIT_BYTES
from circuittest.measure.norms import Norm
from circuittest.measure.trace import refuse_quantised
from circuittest.models.hooks import on_input, on_output
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.models.wiring import slot_features


class Source(NamedTuple):
    """A token that heads may attend to: a position of an item, by its place in the list of items."""

    item: int
    position: int


#: From logits [rows, heads of a layer, vocabulary] and the sources of the rows to what is kept [rows, heads].
Keep = Callable[[Tensor, Sequence[Source]], Tensor]


def moved(
    model: LoadedModel,
    items: Sequence[ItemLike],
    sources: Sequence[Source],
    keep: Keep,
    *,
    batch_size: int | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """What is kept of every head's logits from every source.

    Returns
    -------
    values, choices:
        [sources × heads of all layers in canonical order] on the CPU, in the order of `sources`.

    Raises
    ------
    UsageError
        For no sources, and positions outside their prompts.
    UnsupportedModel
        For quantised weights, and for norms of an unknown form.
    InterventionError
        Where the values that were read are not those that the heads mix.
    """
    refuse_quantised(model)
    if not sources:
        raise UsageError("no tokens were given from which heads could move anything")
    for item, at in sources:
        if not 0 <= at < len(items[item].prompt_ids):
            raise UsageError(
                f"position {at} of example {items[item].index}",
                f"its prompt has positions 0 to {len(items[item].prompt_ids) - 1}",
            )
    rows_of: dict[int, list[int]] = {}
    for row, source in enumerate(sources):
        rows_of.setdefault(source.item, []).append(row)
    batches = plan(items, model, batch_size=batch_size)
    found: Tensor | None = None
    with model.measuring(), torch.no_grad():
        outs = [_Out(model, layer) for layer in range(model.layout.n_layers)]
        for batch in batches:
            rows = [row for item in batch.rows for row in rows_of.get(item, ())]
            if not rows:
                continue
            within = {item: place for place, item in enumerate(batch.rows)}
            places = [(within[sources[row].item], sources[row].position) for row in rows]
            here = [sources[row] for row in rows]
            values = _values(model, batch.prompts(model.device), torch.tensor(places))
            kept = torch.cat([_kept(out, values[layer], keep, here) for layer, out in enumerate(outs)], 1)
            if found is None:
                found = torch.empty((len(sources), kept.shape[1]), dtype=kept.dtype)
            found[rows] = kept
    if found is None:
        raise InterventionError("no batch held a source")
    return found, {"dtype": str(model.dtype).removeprefix("torch."), "batches": describe(batches)}


class _Out:
    """From a layer's value vectors to the logits of each of its heads."""

    def __init__(self, model: LoadedModel, layer: int) -> None:
        layout, block = model.layout, model.blocks[layer]
        dtype = precision(model.dtype)
        weight = weight_in_out(block.out).detach().to(dtype)
        self.out = weight.unflatten(0, (layout.n_heads, model.head_dim))  # [heads, size, width]
        self.group = layout.n_heads // layout.n_kv_heads
        for norm in (block.attn_post_norm, model.final_norm):
            if norm is not None:
                self.out = _linear(norm, dtype, self.out, model.name)
        self.unembed = weight_in_out(model.unembed).detach().to(self.out.device, dtype)

    def logits(self, values: Tensor) -> Tensor:
        """values [rows, KV heads, size]: [rows, heads, vocabulary]."""
        each = values.to(self.out.dtype).repeat_interleave(self.group, 1)
        return torch.einsum("rhd,hdw->rhw", each, self.out) @ self.unembed


def _linear(norm: nn.Module, dtype: torch.dtype, vectors: Tensor, name: str) -> Tensor:
    """w ⊙ P v for vectors [..., width]."""
    known = Norm(norm, dtype)
    if known.kind not in ("layer", "rms") or known.weight is None:
        raise UnsupportedModel(
            f"{name} has a norm of the class {type(norm).__name__}",
            "what it does to a head's write is not known",
            "scores of attention patterns work; those of what heads copy do not",
        )
    if known.kind == "layer":
        vectors = vectors - vectors.mean(-1, keepdim=True)
    return vectors * known.weight.to(vectors.device)


def _kept(out: _Out, values: Tensor, keep: Keep, sources: Sequence[Source]) -> Tensor:
    """In parts, so that few logits are held at once."""
    vocabulary, heads = out.unembed.shape[1], out.out.shape[0]
    step = max(1, LOGIT_BYTES // (4 * vocabulary * heads))
    parts = [
        keep(out.logits(values[start : start + step]), sources[start : start + step]).cpu()
        for start in range(0, len(sources), step)
    ]
    return torch.cat(parts)


def _values(model: LoadedModel, ids: Tensor, at: Tensor) -> list[Tensor]:
    """Every layer's value vectors at (row, position) pairs [pairs, 2]: [pairs, KV heads, size].

    At the first position a head can look nowhere else, so that what it hands on there is its value, or a share of it
    (beside a learned sink): so the values that were read are proven to be those that are mixed.
    """
    layout, size = model.layout, model.head_dim
    where = slot_features(model.adapter, "v", layout.n_heads, layout.n_kv_heads, size)
    projected: dict[int, Tensor] = {}
    mixed: dict[int, Tensor] = {}

    def take(into: dict[int, Tensor], layer: int) -> Callable[[Tensor], None]:
        def hook(tensor: Tensor) -> None:
            into[layer] = tensor

        return hook

    with ExitStack() as stack:
        for layer, block in enumerate(model.blocks):
            module = block.slot("v")
            if module is None:
                raise InterventionError(f"layer L{layer} has no values", "", "check the adapter")
            stack.enter_context(on_output(module, take(projected, layer)))
            stack.enter_context(on_input(block.out, take(mixed, layer)))
        model.trunk(ids, use_cache=False)
    found = []
    for layer in range(layout.n_layers):
        values = projected[layer][..., where]  # [rows, length, KV heads, size]
        first = values[:, 0].repeat_interleave(layout.n_heads // layout.n_kv_heads, 1)
        own = mixed[layer][:, 0].unflatten(-1, (layout.n_heads, size))
        _prove(model, layer, first.to(precision(model.dtype)), own.to(precision(model.dtype)))
        found.append(values[at[:, 0], at[:, 1]])
    return found


def _prove(model: LoadedModel, layer: int, values: Tensor, mixed: Tensor) -> None:
    """mixed = share · values with a share in (0, 1], head by head [rows, heads, size]."""
    size = values.square().sum(-1, keepdim=True)
    share = (mixed * values).sum(-1, keepdim=True) / torch.where(size > 0, size, 1.0)
    slack = 64 * float(torch.finfo(model.dtype).eps)
    scale = values.abs().amax(-1, keepdim=True)
    bad = ((mixed - share * values).abs() > slack * scale).any(-1) | (share.squeeze(-1) > 1 + slack)
    if bool(bad.any()):
        head = int(bad.nonzero()[0, 1])
        raise InterventionError(
            f"the values of L{layer}.H{head} are not what it mixes at the first position",
            "something happens to them between their projection and the heads",
            "register an adapter whose value projection gives what the heads attend over",
        )

"""Attention weights: where every head looks, per example, reduced layer by layer so that patterns are never all held.

Fused implementations (sdpa, flash) give no weights. For the length of this measurement the model runs its plain
("eager") implementation, which computes the same attention; that it does is checked on the first example, and the
implementation is put back however the measurement ends. Tables say so in their choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel, UsageError
from circuittest.measure.batches import Batch, ItemLike, describe, plan, precision
from circuittest.measure.memory import within_memory
from circuittest.models.hooks import hooks
from circuittest.models.loaded import LoadedModel
from circuittest.tables import ScoreTable
from circuittest.units import Unit

#: From a layer, its weights [batch, heads, queries, keys] and the batch to what is kept of them [batch, heads, …].
Reducer = Callable[[int, Tensor, Batch], Tensor]
#: "answer", the last position of the prompt, or a position for every item.
Query = str | Sequence[int]


@dataclass(frozen=True, eq=False)  # arrays have no single truth value, so tables compare by identity
class AttentionTable:
    """The attention of every head from one query position of every example.

    Attributes
    ----------
    rows:
        float32 array [examples × heads × keys], keys up to the longest prompt; NaN beyond an example's own tokens,
        0 where the head cannot look (later than the query, outside a sliding window). Rows sum to 1, or to less
        where a model has learned sinks beside its tokens (GPT-OSS).
    heads:
        The heads, in canonical order.
    examples:
        Index of each row's example in its task.
    lengths, queries:
        Tokens of each example's input, and the position that looks.
    choices:
        Everything that could have changed the numbers, plain JSON types.
    """

    rows: NDArray[np.float32]
    heads: tuple[Unit, ...]
    examples: tuple[int, ...]
    lengths: tuple[int, ...]
    queries: tuple[int, ...]
    choices: dict[str, Any] = field(default_factory=dict)


def attention(
    model: LoadedModel, items: Sequence[ItemLike], reduce: Reducer, *, batch_size: int | None = None
) -> tuple[Tensor, dict[str, Any]]:
    """What a reducer keeps of every layer's attention weights on every example.

    Parameters
    ----------
    reduce:
        Called once for every layer and batch. The weights are in the model's dtype, and freed afterwards. What it
        returns has the same shape beyond [batch, heads] in every call.

    Returns
    -------
    values, choices:
        [examples, heads of all layers in canonical order, …] on the CPU, in the order of `items`; and what could have
        changed them.

    Raises
    ------
    UsageError
        For no items, or prompts that are empty or too long.
    UnsupportedModel
        Where the model's attention gives no weights.
    InterventionError
        Where what it gives is not the attention that the model runs.
    """
    batches = plan(items, model, batch_size=batch_size)
    found: dict[tuple[int, ...], Tensor] = {}
    with model.measuring(), torch.no_grad():
        _prove(model, batches[0].part(0, 1))

        def work(batch: Batch) -> None:
            parts: list[Tensor] = []

            def take(layer: int, weights: Tensor) -> None:
                parts.append(reduce(layer, weights, batch).cpu())

            _run(model, batch.prompts(model.device), take)
            found[batch.rows] = torch.cat(parts, 1)

        with _eager(model):
            done = within_memory(batches, work)
    first = found[done[0].rows]
    values = torch.empty((len(items), *first.shape[1:]), dtype=first.dtype)
    for batch in done:
        values[list(batch.rows)] = found[batch.rows]
    choices = {
        "attention": "eager",
        "dtype": str(model.dtype).removeprefix("torch."),
        "batches": describe(done),
    }
    return values, choices


def attention_rows(
    model: LoadedModel, items: Sequence[ItemLike], *, query: Query = "answer", batch_size: int | None = None
) -> AttentionTable:
    """The attention of every head from one position of every example, [examples × heads × keys].

    `query` is "answer", the last position of the prompt, or a position for every item. Raises as `attention`, and
    UsageError for positions that are not in the prompt.
    """
    queries = query_positions(items, query)
    lengths = tuple(batch_length(item) for item in items)
    longest = max(lengths, default=0)

    def reduce(_: int, weights: Tensor, batch: Batch) -> Tensor:
        rows = _rows(weights, [queries[row] for row in batch.rows]).to(torch.float32)
        return nn.functional.pad(rows, (0, longest - batch.length), value=float("nan"))

    values, choices = attention(model, items, reduce, batch_size=batch_size)
    return AttentionTable(
        values.numpy(),
        model.layout.units(("head",)),
        tuple(item.index for item in items),
        lengths,
        queries,
        {**choices, "query": _named(query)},
    )


def max_attention(
    model: LoadedModel,
    items: Sequence[ItemLike],
    *,
    query: Query = "answer",
    sink: bool = True,
    batch_size: int | None = None,
) -> ScoreTable:
    """The largest attention weight of every head from one position of every example, [examples × heads].

    The signal of 2606.09607 (its query is the last position). Without `sink` the first token, on which many heads
    rest, is left out; a query at the first position is then refused. Raises as `attention_rows`.
    """
    queries = query_positions(items, query)
    start = 0 if sink else 1
    for item, at in zip(items, queries, strict=True):
        if at < start:
            raise UsageError(
                f"example {item.index} looks from its first token",
                "without the first token there is nothing to look at",
                "choose a later query position, or keep the sink",
            )

    def reduce(_: int, weights: Tensor, batch: Batch) -> Tensor:
        rows = _rows(weights, [queries[row] for row in batch.rows])
        return rows[..., start:].amax(-1).to(torch.float32)

    values, choices = attention(model, items, reduce, batch_size=batch_size)
    choices |= {"signal": "max-attention", "query": _named(query), "sink": sink}
    return ScoreTable(
        values.numpy(), model.layout.units(("head",)), tuple(item.index for item in items), choices
    )


def query_positions(items: Sequence[ItemLike], query: Query) -> tuple[int, ...]:
    """The position of each item that looks. Raises UsageError for an unknown word and positions outside a prompt."""
    if isinstance(query, str):
        if query != "answer":
            raise UsageError(
                f"unknown query {query!r}", "", "use 'answer', or give a position for every example"
            )
        return tuple(len(item.prompt_ids) - 1 for item in items)
    if len(query) != len(items):
        raise UsageError(
            f"{len(query)} query positions for {len(items)} examples", "", "give one for every example"
        )
    for item, at in zip(items, query, strict=True):
        if isinstance(at, bool) or at != int(at) or not 0 <= at < len(item.prompt_ids):
            raise UsageError(
                f"query position {at!r} of example {item.index}",
                f"its prompt has positions 0 to {len(item.prompt_ids) - 1}",
                "count from the start of the prompt",
            )
    return tuple(int(at) for at in query)


def batch_length(item: ItemLike) -> int:
    """Tokens of an item's input: of its prompt, and of its answer as far as that is forced."""
    return Batch((0,), (item,)).length


def _rows(weights: Tensor, queries: Sequence[int]) -> Tensor:
    """Each example's row at its query [batch, heads, keys], in the precision of scores."""
    at = torch.tensor(queries, device=weights.device)
    rows = weights[torch.arange(len(at), device=weights.device), :, at]
    return rows.to(precision(weights.dtype))


def _named(query: Query) -> Any:
    return query if isinstance(query, str) else [int(at) for at in query]


def _run(model: LoadedModel, ids: Tensor, take: Callable[[int, Tensor], None]) -> Tensor:
    """A forward whose attention weights are handed over layer by layer; the trunk's output."""
    seen: list[int] = []
    shape = (len(ids), model.layout.n_heads, ids.shape[1], ids.shape[1])

    def watch(layer: int) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def hook(module: nn.Module, _: tuple[Any, ...], output: Any) -> None:
            weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
            if not isinstance(weights, Tensor) or weights.shape != shape:
                _no_weights(model, f"{type(module).__name__} returns none")
            seen.append(layer)
            take(layer, weights)

        return hook

    with ExitStack() as stack:
        for layer, block in enumerate(model.blocks):
            stack.enter_context(hooks(block.attention.register_forward_hook(watch(layer))))
        hidden: Tensor = model.trunk(ids, use_cache=False).last_hidden_state
    if seen != list(range(model.layout.n_layers)):
        raise InterventionError(
            f"the attention modules of {model.name} ran in the order {seen}",
            "each is read once, from the first layer to the last",
            "register an adapter whose attention path names modules that run once",
        )
    return hidden


def _prove(model: LoadedModel, batch: Batch) -> None:
    """The plain attention is the model's own, and its weights are causal, on one example."""
    ids = batch.prompts(model.device)
    own = model.trunk(ids, use_cache=False).last_hidden_state

    def check(layer: int, weights: Tensor) -> None:
        slack = 16 * torch.finfo(weights.dtype).eps
        what = ""
        if not bool(torch.isfinite(weights).all()):
            what = "some are not finite"
        elif bool((weights < 0).any()) or float(weights.double().sum(-1).max()) > 1 + slack * ids.shape[1]:
            what = "some are negative, or a row sums to more than one"
        elif bool(torch.triu(weights, 1).any()):
            what = "some are on later tokens"
        if what:
            raise InterventionError(
                f"what the attention of layer L{layer} of {model.name} gives are not attention weights",
                what,
                "run in float32; register an adapter whose attention module returns its weights",
            )

    with _eager(model):
        plain = _run(model, ids, check)
    scale = float(own.abs().max())
    gap = float((plain - own).abs().max())
    if not gap <= float(torch.finfo(model.dtype).eps) ** 0.5 * scale:
        raise InterventionError(
            f"the plain attention of {model.name} is not the attention that it runs",
            f"the trunk's output differs by {gap:.3g}, where it is at most {scale:.3g}",
            "load the model with attn_implementation='eager' and measure everything on that",
        )


@contextmanager
def _eager(model: LoadedModel) -> Iterator[None]:
    """The plain implementation for the length of a `with` block. Raises UnsupportedModel where it cannot be had."""
    module: Any = model.module
    before = getattr(module.config, "_attn_implementation", None)
    if before in (None, "eager") or not hasattr(module, "set_attn_implementation"):
        yield
        return
    if not getattr(module, "_can_set_attn_implementation", lambda: True)():
        _no_weights(
            model, f"{type(module).__name__} cannot change its implementation ({before}) once it is built"
        )
    try:
        module.set_attn_implementation("eager")
        yield
    finally:
        module.set_attn_implementation(before)


def _no_weights(model: LoadedModel, why: str) -> NoReturn:
    raise UnsupportedModel(
        f"the attention of {model.name} gives no weights",
        why,
        "attention signals and roles of heads need them; ablation and attribution work without",
    )

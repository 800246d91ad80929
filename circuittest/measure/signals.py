"""Attention signals at the query position: how sharply every head looks, and how much it rests on the first token.

The first token is where many heads rest when they have nothing to do. Heads that rest alike co-vary with whatever makes
them rest, so that a community may be one of resting heads; the second table says how much each does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.measure.attention import attention, query_positions
from circuittest.measure.batches import Batch, ItemLike, precision
from circuittest.models.loaded import LoadedModel
from circuittest.tables import ScoreTable


@dataclass(frozen=True, eq=False)
class Signals:
    """Both tables of one pass, [examples × heads] in canonical order.

    Attributes
    ----------
    largest:
        The largest attention weight of a head at the last position of the prompt (Xu, arXiv 2606.09607).
    first:
        The weight on the first token.
    """

    largest: ScoreTable
    first: ScoreTable


def signals(
    model: LoadedModel, items: Sequence[ItemLike], *, sink: bool = True, batch_size: int | None = None
) -> Signals:
    """The signals of every head on every example; without `sink` the largest weight is that beyond the first token.

    Raises as `circuittest.measure.attention.attention`, and UsageError for prompts of one token without the sink.
    """
    queries = query_positions(items, "answer")
    start = 0 if sink else 1
    if short := [item.index for item, at in zip(items, queries, strict=True) if at < start]:
        raise UsageError(
            f"example {short[0]} has one token", "without the first token there is nothing to look at", ""
        )

    def reduce(_: int, weights: Tensor, batch: Batch) -> Tensor:
        at = torch.tensor([queries[row] for row in batch.rows], device=weights.device)
        rows = weights[torch.arange(len(at), device=weights.device), :, at].to(precision(weights.dtype))
        return torch.stack((rows[..., start:].amax(-1), rows[..., 0]), -1).to(torch.float32)

    values, choices = attention(model, items, reduce, batch_size=batch_size)
    heads, examples = model.layout.units(("head",)), tuple(item.index for item in items)

    def table(column: int, name: str) -> ScoreTable:
        how = {**choices, "signal": name, "query": "answer", "sink": sink}
        return ScoreTable(values[..., column].contiguous().numpy(), heads, examples, how)

    return Signals(table(0, "max-attention"), table(1, "first-token"))

"""Batches without padding: examples of one length together, in sizes that follow from shapes alone.

Clean, counterfactual, ablated and control runs of the same items share one layout, so that no difference between
them comes from the shape of a matrix product, and so that the same inputs give the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.models.loaded import LoadedModel, weight_in_out

#: Activations of one batch are kept below this many bytes, by an estimate from shapes: with what is not estimated, and
#: the rows of a table on their way to a file, attribution stays below 1 GB beyond the model (benchmarks/memory.py).
BATCH_BYTES = 3 << 28


class ItemLike(Protocol):
    """One example as a model sees it: what the measure room reads of a task's item.

    An item may also have ``answer_rest``, the ids of its only answer after the first, and ``ends``, ids of which one
    must follow the whole answer. Its answer is then forced: it follows the prompt in the input, and is read token by
    token (`forced`).
    """

    @property
    def index(self) -> int: ...
    @property
    def prompt_ids(self) -> tuple[int, ...]: ...
    @property
    def counterfactual_ids(self) -> tuple[int, ...]: ...
    @property
    def answer_ids(self) -> tuple[int, ...]: ...
    @property
    def foil_ids(self) -> tuple[int, ...]: ...


def forced(item: ItemLike) -> tuple[int, ...]:
    """The tokens of the answer that the model is given after the prompt; none where one token is all that is read."""
    rest: tuple[int, ...] = getattr(item, "answer_rest", ())
    if getattr(item, "ends", ()):
        return (*item.answer_ids[:1], *rest)
    return (*item.answer_ids[:1], *rest[:-1]) if rest else ()


@dataclass(frozen=True)
class Batch:
    """Items of one length, and equally many tokens of whose answers are read.

    Attributes
    ----------
    rows:
        Positions of the items in the list that was split.
    items:
        The items themselves.
    """

    rows: tuple[int, ...]
    items: tuple[ItemLike, ...]

    @property
    def length(self) -> int:
        """Tokens of each input: of the prompt, and of the answer as far as it is forced."""
        return len(self.items[0].prompt_ids) + self.tail - 1

    @property
    def tail(self) -> int:
        """How many last positions are read: 1, or one per token of a forced answer and what follows it."""
        return 1 + len(forced(self.items[0]))

    def part(self, start: int, stop: int) -> Batch:
        """Some of the items."""
        return Batch(self.rows[start:stop], self.items[start:stop])

    def prompts(self, device: torch.device) -> Tensor:
        """Token ids [items, length]."""
        return torch.tensor([(*item.prompt_ids, *forced(item)) for item in self.items], device=device)

    def counterfactuals(self, device: torch.device) -> Tensor:
        """Token ids of the counterfactual prompts, with the same forced answers [items, length].

        Raises UsageError where a length differs.
        """
        for item in self.items:
            if len(item.counterfactual_ids) != len(item.prompt_ids):
                raise UsageError(
                    f"example {item.index} has {len(item.prompt_ids)} prompt tokens"
                    f" and {len(item.counterfactual_ids)} counterfactual tokens",
                    "activations are compared position by position",
                    "drop the pair, or choose a counterfactual of equal length",
                )
        return torch.tensor([(*item.counterfactual_ids, *forced(item)) for item in self.items], device=device)


def plan(
    items: Sequence[ItemLike], model: LoadedModel, *, batch_size: int | None = None, kept: int = 0
) -> tuple[Batch, ...]:
    """Split items into batches of equal length (and answers read alike), shortest first, in the order given within one.

    `batch_size` limits the examples of a batch; by default the limit follows from `bytes_per_example`, and from the
    numbers per token that are `kept` beside. A bucket
    is cut into parts of nearly equal size. Raises UsageError for an empty list, a prompt that is empty or longer than
    the model's context, or a size below 1.
    """
    if not items:
        raise UsageError("no examples were given", "there is nothing to measure")
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"a batch size of {batch_size}", "", "use at least 1")
    buckets: dict[tuple[int, int, bool], list[int]] = {}
    for row, item in enumerate(items):
        if not item.prompt_ids:
            raise UsageError(f"example {item.index} has an empty prompt")
        more = len(forced(item))
        if (limit := context(model)) is not None and len(item.prompt_ids) + more > limit:
            raise UsageError(
                f"example {item.index} has {len(item.prompt_ids) + more} tokens",
                f"the context of {model.name} is {limit}, beyond which it was never trained",
                "use shorter prompts",
            )
        ended = bool(getattr(item, "ends", ()))
        buckets.setdefault((len(item.prompt_ids) + more, 1 + more, ended), []).append(row)
    batches = []
    for length, tail, ended in sorted(buckets):
        rows = buckets[length, tail, ended]
        most = batch_size or max(
            1, BATCH_BYTES // (bytes_per_example(model, length, tail) + 4 * length * kept)
        )
        parts = -(-len(rows) // most)
        for part in range(parts):
            cut = rows[part * len(rows) // parts : (part + 1) * len(rows) // parts]
            batches.append(Batch(tuple(cut), tuple(items[row] for row in cut)))
    return tuple(batches)


def context(model: LoadedModel) -> int | None:
    """How many tokens the model was made to read; None where its configuration sets no limit (ALiBi)."""
    config: Any = model.module.config
    limit = getattr(config, "max_position_embeddings", None)
    relative = config.model_type == "bloom" or getattr(config, "alibi", False)
    return limit if isinstance(limit, int) and not relative else None


def bytes_per_example(model: LoadedModel, length: int, tail: int = 1) -> int:
    """What one example's activations take in a forward pass that keeps its graph; an estimate from shapes alone.

    `tail` positions are unembedded.
    """
    layout, width = model.layout, model.width
    inner = layout.n_heads * model.head_dim
    hidden = max(width, *_mlp_sizes(model))
    token = layout.n_layers * (12 * width + 6 * inner + 4 * hidden + layout.n_heads * length)
    vocabulary = 3 * tail * weight_in_out(model.unembed).shape[1]
    return 4 * (length * token + vocabulary)


def describe(batches: Sequence[Batch]) -> list[list[int]]:
    """The layout as [[examples, length], …], to be recorded among a table's choices."""
    return [[len(batch.rows), batch.length] for batch in batches]


def precision(dtype: torch.dtype) -> torch.dtype:
    """What scores and outcomes are accumulated in: float32, or float64 for a float64 model."""
    return torch.promote_types(dtype, torch.float32)


def by_row(batches: Sequence[Batch], values: Sequence[Any]) -> Tensor:
    """Put per-batch tensors [items of the batch, ...] into the order of the items that were split."""
    order = torch.tensor([row for batch in batches for row in batch.rows])
    joined = torch.cat(list(values))
    result = torch.empty_like(joined)
    result[order] = joined
    return result


def _mlp_sizes(model: LoadedModel) -> list[int]:
    """Outputs per token of every matrix in the first block's MLP, of a mixture those of its chosen experts."""
    chosen = getattr(model.module.config, "num_experts_per_tok", None) or 1
    matrices = [p for p in model.blocks[0].mlp.parameters() if p.ndim in (2, 3)]
    return [(p.numel() if p.ndim == 2 else chosen * p[0].numel()) // model.width for p in matrices] or [0]

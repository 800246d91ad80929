"""Routing: the weights with which a mixture's router chose its experts for the last token of every prompt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel
from circuittest.measure.attention import query_positions
from circuittest.measure.batches import Batch, ItemLike, describe, plan
from circuittest.measure.memory import within_memory
from circuittest.models.experts import Routed
from circuittest.models.hooks import hooks
from circuittest.models.loaded import LoadedModel


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """Router weights.

    Attributes
    ----------
    values:
        float32 array [examples × mixtures × experts]: the weight with which an expert's output was added, 0 where it
        was not chosen.
    layers:
        The layers that are mixtures.
    examples:
        Index of each row's example in its task.
    choices:
        Everything that could have changed the numbers.
    """

    values: NDArray[np.float32]
    layers: tuple[int, ...]
    examples: tuple[int, ...]
    choices: dict[str, Any] = field(default_factory=dict)


def routing(model: LoadedModel, items: Sequence[ItemLike], *, batch_size: int | None = None) -> RoutingTable:
    """Router weights at the last position of every prompt, in every mixture of the model.

    They are read where the experts are called, so that they are those that took part, whatever the architecture does
    between its router and its experts.

    Raises
    ------
    UnsupportedModel
        A dense model, one whose experts the adapter does not name, and mixtures of unequal numbers of experts.
    UsageError
        No items, or prompts that are empty or too long.
    """
    layers = tuple(layer for layer, block in enumerate(model.blocks) if block.experts is not None)
    if not layers:
        why = "its adapter does not name its experts" if model.mixtures else "it has no router and no experts"
        raise UnsupportedModel(
            f"{model.name} has no routing to condition on",
            why,
            "leave routes out, or use a mixture of experts",
        )
    numbers = {model.layout.count("expert", layer) for layer in layers}
    if len(numbers) > 1:
        raise UnsupportedModel(
            f"the mixtures of {model.name} have {' and '.join(map(str, sorted(numbers)))} experts",
            "their router weights do not form one table",
        )
    (number,) = numbers
    queries = query_positions(items, "answer")
    batches = plan(items, model, batch_size=batch_size)
    found: dict[tuple[int, ...], Tensor] = {}

    def work(batch: Batch) -> None:
        at = torch.tensor([queries[row] for row in batch.rows], device=model.device)
        each = torch.arange(len(at), device=model.device)
        parts: dict[int, Tensor] = {}

        def watch(layer: int) -> Any:
            def look(_: nn.Module, args: tuple[Any, ...]) -> None:
                weights = Routed.of(args, len(batch.rows), layer).dense(number)
                parts[layer] = weights[each, at].to(torch.float32).cpu()

            return look

        with ExitStack() as stack:
            for layer in layers:
                experts = model.blocks[layer].experts
                if experts is not None:
                    stack.enter_context(hooks(experts.register_forward_pre_hook(watch(layer))))
            model.trunk(batch.prompts(model.device), use_cache=False)
        if sorted(parts) != list(layers):
            raise InterventionError(f"some mixtures of {model.name} did not run", "", "check its adapter")
        found[batch.rows] = torch.stack([parts[layer] for layer in layers], 1)

    with model.measuring(), torch.no_grad():
        done = within_memory(batches, work)
    values = torch.empty((len(items), len(layers), number))
    for batch in done:
        values[list(batch.rows)] = found[batch.rows]
    choices = {
        "dtype": str(model.dtype).removeprefix("torch."),
        "query": "answer",
        "batches": describe(done),
    }
    return RoutingTable(values.numpy(), layers, tuple(item.index for item in items), choices)

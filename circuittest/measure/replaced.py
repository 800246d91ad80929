"""What units write where they are replaced: nothing, their mean, or what they write on the counterfactual prompt.

Values are those of the intervention points: the residual that enters the first block ("embed"), the input of every
attention's output projection ("z"), and what every MLP gives before any post-norm ("mlp"). Beside them stands what
would be read if everything before were replaced: the residuals "attn_base", "mlp_base" (in blocks that are not
parallel) and "final", and in front of a post-norm the attention's output "attn".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from circuittest.errors import UsageError, did_you_mean
from circuittest.measure.batches import Batch, ItemLike, plan, precision
from circuittest.measure.trace import Captures, Place
from circuittest.measure.values import check_value
from circuittest.models.hooks import on_input, on_output
from circuittest.models.loaded import LoadedModel

VALUES = ("counterfactual", "zero", "mean")


class Replaced:
    """The replaced values of one kind for one model.

    Raises UsageError for an unknown kind, for means without calibration examples, and for calibration examples that
    are among those measured.
    """

    def __init__(
        self,
        model: LoadedModel,
        value: str,
        items: Sequence[ItemLike],
        calibration: Sequence[ItemLike],
        batch_size: int | None = None,
    ) -> None:
        if value not in VALUES:
            raise UsageError(f"unknown replaced value {value!r}", "", did_you_mean(str(value), VALUES))
        self.model, self.value = model, value
        self.calibration, self.batch_size = calibration, batch_size
        self._fixed: dict[Place, Tensor] | None = None
        check_value(value, items, calibration)

    @torch.no_grad()
    def of(self, batch: Batch) -> Mapping[Place, Tensor]:
        """Values on one batch, by place; each broadcasts to [items, length, features]."""
        if self.value == "counterfactual":
            return writes(self.model, batch.counterfactuals(self.model.device), residuals=True)
        if self._fixed is None:
            if self.value == "mean":
                self._fixed = means(self.model, self.calibration, self.batch_size)
            else:
                options: Any = {"dtype": precision(self.model.dtype), "device": self.model.device}
                inner = self.model.layout.n_heads * self.model.head_dim
                sizes = {"z": inner}
                self._fixed = {
                    place: torch.zeros(sizes.get(place[0], self.model.width), **options)
                    for place in places(self.model)
                }
            self._fixed |= _sums(self.model, self._fixed)
        return self._fixed


def places(model: LoadedModel) -> list[Place]:
    """Where units write: the embedding, then layer by layer heads and MLP."""
    layers = range(model.layout.n_layers)
    return [("embed", 0), *((role, layer) for layer in layers for role in ("z", "mlp"))]


@torch.no_grad()
def writes(model: LoadedModel, ids: Tensor, *, residuals: bool = False) -> dict[Place, Tensor]:
    """What every unit of the untouched model gives on ids [batch, length], by place [batch, length, features].

    With `residuals` also what every reader reads.
    """
    seen = Captures()
    with ExitStack() as stack:
        watch = lambda side, module, *place, **more: stack.enter_context(
            side(module, seen.take(*place, **more))
        )
        watch(on_input, model.blocks[0].block, "embed", 0)
        for layer, block in enumerate(model.blocks):
            watch(on_input, block.out, "z", layer)
            watch(on_output, block.mlp_out, "mlp", layer, copy=model.in_place)
            if residuals:
                watch(on_input, block.block, "attn_base", layer)
                if not model.layout.parallel:
                    watch(on_input, block.mlp_norm or block.mlp, "mlp_base", layer)
                if block.attn_post_norm is not None:
                    watch(on_input, block.attn_post_norm, "attn", layer)
        if residuals:
            watch(on_input, model.final_norm, "final", 0)
        model.trunk(ids, use_cache=False)
    return {place: seen[place] for place in seen.tensors}


def _sums(model: LoadedModel, values: Mapping[Place, Tensor]) -> dict[Place, Tensor]:
    """What readers read where every unit writes the same at every position [width]: biases of projections included."""
    found: dict[Place, Tensor] = {}
    total = values["embed", 0]
    given = lambda place: values[place].to(model.dtype)[None, None]
    for layer, block in enumerate(model.blocks):
        found["attn_base", layer] = total
        attention = block.out.forward(given(("z", layer)))
        if block.attn_post_norm is not None:
            found["attn", layer] = attention[0, 0]
            attention = block.attn_post_norm.forward(attention)
        total = total + attention[0, 0].to(total)
        if not model.layout.parallel:
            found["mlp_base", layer] = total
        mlp = given(("mlp", layer))
        mlp = mlp if block.mlp_post_norm is None else block.mlp_post_norm.forward(mlp)
        total = total + mlp[0, 0].to(total)
    found["final", 0] = total
    return found


def means(
    model: LoadedModel, calibration: Sequence[ItemLike], batch_size: int | None = None
) -> dict[Place, Tensor]:
    """The mean of every unit's value over all positions of all calibration prompts, by place [features]."""
    sums: dict[Place, Tensor] = {}
    rows = 0
    for batch in plan(calibration, model, batch_size=batch_size):
        ids = batch.prompts(model.device)
        rows += ids.numel()
        for place, values in writes(model, ids).items():
            values = values.cpu() if values.device.type == "mps" else values  # which has no float64
            total = values.sum((0, 1), dtype=torch.float64)
            sums[place] = sums[place] + total if place in sums else total
    return {
        place: (total / rows).to(precision(model.dtype)).to(model.device) for place, total in sums.items()
    }

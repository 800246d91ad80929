"""Models whose weights are edited so that units write nothing: what ablation must be equal to."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch

from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.units import Unit
from tests.helpers import tiny


def without(model: LoadedModel, units: Iterable[Unit]) -> LoadedModel:
    """A copy with the units' projection columns, or their MLP's last weight and bias, set to zero."""
    edited = tiny.wrap(copy.deepcopy(model.module))
    with torch.no_grad():
        for part in model.layout.expand(units):
            block = edited.blocks[part.layer or 0]
            if part.kind == "head":
                weight_in_out(block.out).unflatten(0, (model.layout.n_heads, -1))[part.index or 0].zero_()
                continue
            last = [child for child in block.mlp.children() if hasattr(child, "weight")][-1]
            for parameter in last.parameters():
                parameter.zero_()
    return tiny.wrap(edited.module)

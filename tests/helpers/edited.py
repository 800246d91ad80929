"""Models whose weights are edited so that units write nothing: what ablation must be equal to."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch

from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.units import Unit
from tests.helpers import tiny


def without(model: LoadedModel, units: Iterable[Unit]) -> LoadedModel:
    """A copy with the units' projection columns, their MLP's last weight and bias, or their expert's, set to zero."""
    edited = tiny.wrap(copy.deepcopy(model.module))
    with torch.no_grad():
        for part in model.layout.expand(units):
            block = edited.blocks[part.layer or 0]
            if part.kind == "head":
                weight_in_out(block.out).unflatten(0, (model.layout.n_heads, -1))[part.index or 0].zero_()
            elif part.kind == "neuron":
                weight_in_out(block.down)[part.index or 0].zero_()
            elif part.kind == "expert":
                for name, parameter in block.experts.named_parameters():
                    if name.startswith("down_proj"):  # the bias too
                        parameter[part.index or 0].zero_()
            else:
                silence(block.mlp)
    return tiny.wrap(edited.module)


def silence(mlp: torch.nn.Module) -> None:
    """Zero the weights and biases of an MLP's last matrices, of a mixture those of every expert."""
    last = [parameter for name, parameter in mlp.named_parameters() if "down_proj" in name]
    if not last:
        last = list([child for child in mlp.children() if hasattr(child, "weight")][-1].parameters())
    with torch.no_grad():
        for parameter in last:
            parameter.zero_()

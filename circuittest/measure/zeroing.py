"""Zero ablation by hooks: many sets of units at once, one after another along the batch dimension.

A head is the slice of the output projection's input, at all positions; the projection's bias stays. An MLP is its
output. Hooks return new tensors, and weights are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from circuittest.errors import InterventionError, UnsupportedModel
from circuittest.models.hooks import first, hooks, on_input
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit

Parts = tuple[Unit, ...]


class Zeroing:
    """What one pass over stacked sets zeroes, and which of its hooks have fired.

    Attributes
    ----------
    sets:
        Per set its parts: heads and MLPs.
    heads:
        Layer → which heads stay [sets, heads], float.
    mlps:
        Layer → whether the MLP stays [sets], float.
    """

    def __init__(self, model: LoadedModel, sets: Sequence[Parts]) -> None:
        self.model = model
        self.sets = tuple(sets)
        self.heads: dict[int, Tensor] = {}
        self.mlps: dict[int, Tensor] = {}
        self.fired: list[tuple[str, int]] = []
        heads = model.layout.n_heads
        for row, parts in enumerate(self.sets):
            for part in parts:
                layer = part.layer or 0
                if part.kind == "head":
                    mask = self.heads.setdefault(layer, self._ones(len(sets), heads))
                    mask[row, part.index or 0] = 0
                else:
                    self.mlps.setdefault(layer, self._ones(len(sets)))[row] = 0

    def _ones(self, *shape: int) -> Tensor:
        return torch.ones(shape, dtype=self.model.dtype, device=self.model.device)

    def units(self, kind: str, layer: int) -> list[tuple[int, Unit]]:
        """The (row, unit) pairs that one hook is responsible for."""
        return [
            (row, part)
            for row, parts in enumerate(self.sets)
            for part in parts
            if part.kind == kind and part.layer == layer
        ]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Zero the units in every forward inside the `with` block, which must run each hook exactly once."""
        self.fired = []
        with ExitStack() as stack:
            for layer in self.heads:
                stack.enter_context(on_input(self.model.blocks[layer].out, self._head_hook(layer)))
            for layer in self.mlps:
                handle = self.model.blocks[layer].mlp_out.register_forward_hook(self._mlp_hook(layer))
                stack.enter_context(hooks(handle))
            yield
        self._check_fired()

    def _check_fired(self) -> None:
        for kind, layers in (("head", self.heads), ("mlp", self.mlps)):
            for layer in layers:
                times = self.fired.count((kind, layer))
                if times != 1:
                    names = sorted({str(unit) for _, unit in self.units(kind, layer)})
                    raise InterventionError(
                        f"the hook that ablates {', '.join(names)} fired {times} times in one forward pass",
                        "the module it sits on was bypassed"
                        if times == 0
                        else "its module is used more than once",
                        "check the adapter; a fused kernel may bypass the module",
                    )

    def _head_hook(self, layer: int) -> Any:
        def hook(tensor: Tensor) -> Tensor:
            self.fired.append(("head", layer))
            return zero_heads(tensor, self.heads[layer])

        return hook

    def _mlp_hook(self, layer: int) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> Any:
            self.fired.append(("mlp", layer))
            if not isinstance(first(output), Tensor):
                raise UnsupportedModel(
                    f"the MLP of layer L{layer} returns a {type(output).__name__}",
                    "its write to the residual is unclear",
                    "register an adapter whose MLP returns a tensor, or a tuple that begins with one",
                )
            zeroed = zero_mlp(first(output), self.mlps[layer])
            return (zeroed, *output[1:]) if isinstance(output, tuple) else zeroed

        return hook


def zero_heads(tensor: Tensor, keep: Tensor) -> Tensor:
    """A copy of the projection's input [sets · examples, length, heads · size], zero where keep [sets, heads] is."""
    sets, heads = keep.shape
    wide = tensor.view(sets, -1, heads, tensor.shape[-1] // heads)
    return (wide * keep.view(sets, 1, heads, 1)).view_as(tensor)


def zero_mlp(tensor: Tensor, keep: Tensor) -> Tensor:
    """A copy of the MLP's output [sets · examples, length, width], zero where keep [sets] is."""
    return (tensor.view(len(keep), -1) * keep.view(-1, 1)).view_as(tensor)

"""Proof of intervention, unit by unit, at its site: a hook that fired proves nothing, nor do logits that moved.

Heads: the projection ran on an input whose slice is exactly zero and whose other slices are untouched, and its
output changed by exactly −W[:, slice]·z, within the noise of the dtype. MLPs: what the block adds to the residual
is zero. Checked for every unit on the row where its own activation is largest. A unit whose output is zero already
counts as proven, and is listed. Hooks that narrow what a module sees (the last block's answer position) come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from circuittest.errors import InterventionError
from circuittest.measure.batches import precision
from circuittest.measure.zeroing import Zeroing
from circuittest.models.hooks import hooks, on_input, on_output
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.units import Unit

_DO = "do not use these results; check the adapter, and hooks or patches that others left on the model"


@dataclass
class Proof:
    """Watches one pass of a `Zeroing` and judges it. Register before the zeroing's own hooks, judge after the pass.

    Attributes
    ----------
    already_zero:
        Units whose output was zero before it was ablated, found by `check`.
    """

    zeroing: Zeroing
    already_zero: set[Unit] = field(default_factory=set)
    before: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    after: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    @property
    def model(self) -> LoadedModel:
        """The model that is watched."""
        return self.zeroing.model

    @contextmanager
    def watch_before(self) -> Iterator[None]:
        """What the units would have written; to be entered before the zeroing."""
        with ExitStack() as stack:
            for layer in self.zeroing.heads:
                stack.enter_context(
                    on_input(self.model.blocks[layer].out, self._keep(self.before, "z", layer))
                )
            for layer in self.zeroing.mlps:
                stack.enter_context(
                    on_output(self.model.blocks[layer].mlp, self._keep(self.before, "mlp", layer))
                )
            yield

    @contextmanager
    def watch_after(self) -> Iterator[None]:
        """What the modules really ran on and gave; to be entered after the zeroing."""

        def look(layer: int) -> Any:
            def hook(_module: Any, args: tuple[Any, ...], output: Tensor) -> None:
                self.after["z", layer], self.after["out", layer] = args[0], output

            return hook

        with ExitStack() as stack:
            for layer in self.zeroing.heads:
                handle = self.model.blocks[layer].out.register_forward_hook(look(layer))
                stack.enter_context(hooks(handle))
            for layer in self.zeroing.mlps:
                block = self.model.blocks[layer]
                stack.enter_context(on_output(block.mlp, self._keep(self.after, "mlp", layer)))
                stack.enter_context(on_output(block.block, self._keep(self.after, "block", layer)))
                if self.model.layout.parallel:
                    stack.enter_context(on_input(block.block, self._keep(self.after, "base", layer)))
                    stack.enter_context(on_output(block.out, self._keep(self.after, "attn", layer)))
                else:
                    entry = block.mlp if block.mlp_norm is None else block.mlp_norm
                    stack.enter_context(on_input(entry, self._keep(self.after, "base", layer)))
            yield

    @torch.no_grad()
    def check(self) -> None:
        """Raise InterventionError naming the first unit whose ablation is not proven."""
        for layer in sorted(self.zeroing.heads):
            self._check_heads(layer)
        for layer in sorted(self.zeroing.mlps):
            self._check_mlp(layer)

    def _check_heads(self, layer: int) -> None:
        sets, heads = self.zeroing.heads[layer].shape
        before = self._seen(self.before, "z", layer).unflatten(0, (sets, -1)).unflatten(-1, (heads, -1))
        after = self._seen(self.after, "z", layer).unflatten(0, (sets, -1)).unflatten(-1, (heads, -1))
        out = self._seen(self.after, "out", layer).unflatten(0, (sets, -1))
        if after.shape != before.shape:
            raise InterventionError(f"layer L{layer}'s output projection ran on another shape", "", _DO)
        largest, example = before.abs().amax(dim=(2, 4)).max(dim=1)  # [sets, heads]
        kept = self.zeroing.heads[layer] != 0
        for row, unit in self.zeroing.units("head", layer):
            head = unit.index or 0
            at = int(example[row, head])
            if float(after[row, at, :, head].abs().max()) != 0.0:
                raise InterventionError(f"{unit} was not ablated", "the projection still read its slice", _DO)
            others = kept[row]
            if not torch.equal(after[row, at][:, others], before[row, at][:, others]):
                raise InterventionError(
                    f"ablating {unit} changed heads of layer L{layer} that are not in the set", "", _DO
                )
            if float(largest[row, head]) == 0.0:
                self.already_zero.add(unit)
                continue
            self._check_output(unit, before[row, at], after[row, at], out[row, at])

    def _check_output(self, unit: Unit, before: Tensor, after: Tensor, out: Tensor) -> None:
        """Did the projection's output [length, width] change by exactly −W[:, slice]·z?"""
        module = self.model.blocks[unit.layer or 0].out
        dtype = precision(self.model.dtype)
        weight = getattr(module, "weight", None)
        head = unit.index or 0
        if isinstance(weight, Tensor) and weight.is_floating_point() and not self.model.quantised:
            matrix = weight_in_out(module).to(dtype)
            bias = getattr(module, "bias", None)
            expected = after.flatten(1).to(dtype) @ matrix + (0 if bias is None else bias.to(dtype))
            write = before[:, head].to(dtype) @ matrix.unflatten(0, (before.shape[1], -1))[head]
            noise = float(after.flatten(1).to(dtype).norm(dim=1).max() * matrix.norm(dim=0).max())
        else:
            expected = module.forward(after.flatten(1).to(self.model.dtype)).to(dtype)
            only = torch.zeros_like(before)
            only[:, head] = before[:, head]
            write = module.forward(only.flatten(1)).to(dtype) - module.forward(
                torch.zeros_like(only).flatten(1)
            )
            noise = float(expected.norm(dim=1).max())
        error = out.to(dtype) - expected
        tolerance = 16 * torch.finfo(self.model.dtype).eps * max(noise, float(expected.abs().max()))
        if float(error.abs().max()) > tolerance:
            share = float((error * write).sum() / write.pow(2).sum().clamp_min(torch.finfo(dtype).tiny))
            raise InterventionError(
                f"{unit} was not ablated",
                f"the projection's output is not that of its ablated input: {share:.2f} of the unit's write is left",
                _DO,
            )

    def _check_mlp(self, layer: int) -> None:
        sets = len(self.zeroing.mlps[layer])
        before = self._seen(self.before, "mlp", layer).unflatten(0, (sets, -1))
        after = self._seen(self.after, "mlp", layer).unflatten(0, (sets, -1))
        base = self._seen(self.after, "base", layer)
        if self.model.layout.parallel:
            base = base + self._seen(self.after, "attn", layer)
        block = self._seen(self.after, "block", layer)
        added = (block - base).unflatten(0, (sets, -1))
        silent = self._post_norm_of_zero(layer, added)
        tolerance = 4 * torch.finfo(self.model.dtype).eps * float(block.abs().max())
        for row, unit in self.zeroing.units("mlp", layer):
            if float(after[row].abs().max()) != 0.0:
                raise InterventionError(f"{unit} was not ablated", "its output is not zero", _DO)
            if float((added[row] - silent).abs().max()) > tolerance:
                raise InterventionError(
                    f"{unit} was not ablated", "its block still adds something to the residual", _DO
                )
            if float(before[row].abs().max()) == 0.0:
                self.already_zero.add(unit)

    def _post_norm_of_zero(self, layer: int, like: Tensor) -> Tensor:
        norm = self.model.blocks[layer].mlp_post_norm
        zero = torch.zeros_like(like[0, :1, :1])
        return zero if norm is None else norm.forward(zero)

    def _keep(self, where: dict[tuple[str, int], Tensor], role: str, layer: int) -> Any:
        def hook(tensor: Tensor) -> None:
            where[role, layer] = tensor

        return hook

    def _seen(self, where: dict[tuple[str, int], Tensor], role: str, layer: int) -> Tensor:
        if (role, layer) not in where:
            raise InterventionError(
                f"nothing was seen of layer L{layer} while it was ablated", "its modules did not run", _DO
            )
        return where[role, layer]

"""Proof of intervention, unit by unit, at its site: a hook that fired proves nothing, nor do logits that moved.

Heads: the projection ran on an input whose slices are exactly zero and whose other slices are untouched, at every
position; and its output is that of this input (so it changed by exactly −W[:, slice]·z), within the noise of the
dtype, at the position where the head's own activation is largest. MLPs: their output is zero, and so is what the
block adds to the residual after attention. A unit whose output is zero already counts as proven, and is listed.
Hooks that narrow what a module sees (the last block's answer position) come first.
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
class Ledger:
    """What the proofs of one ablation share.

    Attributes
    ----------
    already_zero:
        Units whose output was zero before it was ablated.
    gains:
        Layer → largest norm of a column of its output projection, the scale of rounding errors.
    """

    already_zero: set[Unit] = field(default_factory=set)
    gains: dict[int, float] = field(default_factory=dict)


@dataclass
class Proof:
    """Watches one pass of a `Zeroing` and judges it afterwards."""

    zeroing: Zeroing
    ledger: Ledger = field(default_factory=Ledger)
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
                    on_output(self.model.blocks[layer].mlp_out, self._keep(self.before, "mlp", layer))
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
                stack.enter_context(on_output(block.mlp_out, self._keep(self.after, "mlp", layer)))
                stack.enter_context(on_output(block.block, self._keep(self.after, "block", layer)))
                if self.model.layout.parallel:
                    stack.enter_context(on_input(block.block, self._keep(self.after, "base", layer)))
                    stack.enter_context(on_output(block.out, self._keep(self.after, "attn", layer)))
                else:
                    entry = block.mlp if block.mlp_norm is None else block.mlp_norm
                    # Ahead of hooks that narrow what the MLP sees.
                    stack.enter_context(on_input(entry, self._keep(self.after, "base", layer), ahead=True))
            yield

    @torch.no_grad()
    def check(self) -> None:
        """Raise InterventionError naming the first unit whose ablation is not proven."""
        for layer in sorted(self.zeroing.heads):
            self._check_heads(layer)
        for layer in sorted(self.zeroing.mlps):
            self._check_mlp(layer)

    def _check_heads(self, layer: int) -> None:
        keep = self.zeroing.heads[layer]
        shape = (len(keep), -1, keep.shape[1])  # sets, examples · positions, heads
        before = (
            self._seen(self.before, "z", layer)
            .flatten(0, 1)
            .unflatten(1, (shape[2], -1))
            .unflatten(0, shape[:2])
        )
        after = self._seen(self.after, "z", layer).flatten(0, 1)
        out = self._seen(self.after, "out", layer).flatten(0, 1)
        units = self.zeroing.units("head", layer)
        if len(after) != len(before) * before.shape[1]:
            raise InterventionError(f"the output projection of layer L{layer} ran on another shape", "", _DO)
        if not torch.equal(after.view_as(before), before * keep.view(len(keep), 1, -1, 1)):
            self._blame(units, before, after.view_as(before))
        sets = torch.tensor([row for row, _ in units], device=keep.device)
        heads = torch.tensor([unit.index or 0 for _, unit in units], device=keep.device)
        largest, where = before.abs().amax(3)[sets, :, heads].max(1)
        self.ledger.already_zero.update(
            unit for (_, unit), size in zip(units, largest.tolist(), strict=True) if size == 0.0
        )
        flat = sets * before.shape[1] + where
        self._check_outputs(units, before.flatten(0, 1)[flat, heads], after[flat], out[flat])

    def _blame(self, units: list[tuple[int, Unit]], before: Tensor, after: Tensor) -> None:
        """Name what is wrong with the projection's input [sets, positions, heads, size]."""
        for row, unit in units:
            if float(after[row, :, unit.index or 0].abs().max()) != 0.0:
                raise InterventionError(f"{unit} was not ablated", "the projection still read its slice", _DO)
        changed = (after != before).any(3).any(1).nonzero().tolist()
        named = {(row, unit.index) for row, unit in units}
        other = next(head for row, head in changed if (row, head) not in named)
        layer = units[0][1].layer
        raise InterventionError(
            f"ablating {units[0][1]} changed L{layer}.H{other}, which is not in the set", "", _DO
        )

    def _check_outputs(self, units: list[tuple[int, Unit]], z: Tensor, after: Tensor, out: Tensor) -> None:
        """Is the projection's output [units, width] that of its input `after`? `z` [units, size] was zeroed in it."""
        layer = units[0][1].layer or 0
        module, dtype = self.model.blocks[layer].out, precision(self.model.dtype)
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.is_floating_point() and not self.model.quantised:
            matrix, bias = weight_in_out(module).to(dtype), getattr(module, "bias", None)
            expected = after.to(dtype) @ matrix + (0 if bias is None else bias.to(dtype))
            if layer not in self.ledger.gains:
                self.ledger.gains[layer] = float(matrix.norm(dim=0).max())
            scale = after.to(dtype).norm(dim=1) * self.ledger.gains[layer] + expected.abs().amax(1)
            linear = lambda lost: lost.to(dtype) @ matrix
        else:
            expected = module.forward(after).to(dtype)
            scale = expected.norm(dim=1)
            linear = lambda lost: (module.forward(lost) - module.forward(torch.zeros_like(lost))).to(dtype)
        error = (out.to(dtype) - expected).abs().amax(1)
        wrong = (error > 16 * torch.finfo(self.model.dtype).eps * scale).nonzero().flatten().tolist()
        if wrong:
            unit = units[wrong[0]][1]
            lost = torch.zeros_like(after[0]).unflatten(0, (self.model.layout.n_heads, -1))
            lost[unit.index or 0] = z[wrong[0]]
            write = linear(lost.flatten())
            left = (out[wrong[0]].to(dtype) - expected[wrong[0]]) @ write / write.pow(2).sum()
            raise InterventionError(
                f"{unit} was not ablated",
                f"the projection did not use its ablated input: {float(left):.2f} of the unit's write is left",
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
                self.ledger.already_zero.add(unit)

    def _post_norm_of_zero(self, layer: int, like: Tensor) -> Tensor:
        norm = self.model.blocks[layer].mlp_post_norm
        zero = torch.zeros_like(like[0, :1, :1])
        return zero if norm is None else norm.forward(zero)

    def _keep(self, where: dict[tuple[str, int], Tensor], role: str, layer: int) -> Any:
        def hook(tensor: Tensor) -> None:
            where[role, layer] = tensor.clone() if self.model.in_place else tensor

        return hook

    def _seen(self, where: dict[tuple[str, int], Tensor], role: str, layer: int) -> Tensor:
        if (role, layer) not in where:
            raise InterventionError(
                f"nothing was seen of layer L{layer} while it was ablated", "its modules did not run", _DO
            )
        return where[role, layer]

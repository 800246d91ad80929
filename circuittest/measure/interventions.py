"""Interventions by hooks: many sets of units replaced at once, one set after another along the batch dimension.

A head is the slice of the output projection's input, a neuron a feature of the down projection's (their biases stay),
an MLP its output; an expert is taken out of its mixture's sum. Hooks return new tensors, weights are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from circuittest.errors import InterventionError, UsageError
from circuittest.measure.batches import ItemLike
from circuittest.measure.sites import Site, Values
from circuittest.models.experts import Routed
from circuittest.models.hooks import Change, hooks
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit

Parts = tuple[Unit, ...]

#: Where units are replaced: everywhere, everywhere but at the first position (the attention sink), or only at the
#: last position of the prompt, where the answer is read.
POSITIONS = ("all", "not-first", "answer")


def first_position(positions: str, length: int) -> int:
    """The first position that is replaced in prompts of some length; all later ones are too."""
    return {"all": 0, "not-first": 1, "answer": length - 1}[positions]


def check_positions(positions: str, items: Sequence[ItemLike]) -> None:
    """Raise UsageError for unknown positions, and for prompts that have none of them."""
    if positions not in POSITIONS:
        raise UsageError(f"unknown positions {positions!r}", "", f"known are {', '.join(POSITIONS)}")
    if positions == "not-first":
        for item in items:
            if len(item.prompt_ids) == 1:
                raise UsageError(
                    f"example {item.index} has one prompt token",
                    "without its first position there is nothing to ablate",
                    "use positions='all'",
                )


class Intervention:
    """What one pass over stacked sets replaces by what, and which of its hooks have fired.

    Attributes
    ----------
    sets:
        Per set its parts.
    values:
        What replaces the units of each site on this batch.
    examples, length, start:
        Prompts of a set, tokens of each prompt, and the first position that is replaced.
    masks:
        Site → which units are replaced [sets, units], bool.
    """

    def __init__(
        self,
        model: LoadedModel,
        sets: Sequence[Parts],
        values: Values,
        shape: tuple[int, int],
        positions: str = "all",
    ) -> None:
        self.model, self.sets, self.values = model, tuple(sets), values
        self.examples, self.length = shape
        self.positions, self.start = positions, first_position(positions, self.length)
        self.masks: dict[Site, Tensor] = {}
        self.fired: list[Site] = []
        found: dict[Site, list[tuple[int, int]]] = {}
        for row, parts in enumerate(self.sets):
            for part in parts:
                found.setdefault(Site.of(part), []).append((row, part.index or 0))
        for site, pairs in found.items():
            mask = torch.zeros((len(self.sets), site.units(model)), dtype=torch.bool)
            rows, units = torch.tensor(pairs).unbind(1)
            mask[rows, units] = True
            self.masks[site] = mask.to(site.device(model))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the units in every forward inside the `with` block, which must run each hook exactly once."""
        self.fired = []
        with ExitStack() as stack:
            for site in self.masks:
                if site.kind == "expert":
                    module, (before, after) = site.module(self.model), self._expert_hooks(site)
                    stack.enter_context(hooks(module.register_forward_pre_hook(before)))
                    stack.enter_context(hooks(module.register_forward_hook(after)))
                else:
                    stack.enter_context(site.hooked(self.model, self._hook(site)))
            yield
        self._check_fired()

    def _check_fired(self) -> None:
        for site, mask in self.masks.items():
            times = self.fired.count(site)
            if times != 1:
                names = ", ".join(str(site.unit(i)) for i in mask.any(0).nonzero().flatten().tolist())
                raise InterventionError(
                    f"the hook that ablates {names} fired {times} times in one forward pass",
                    "the module it sits on was bypassed"
                    if times == 0
                    else "its module is used more than once",
                    "check the adapter; a fused kernel may bypass the module",
                )

    def _hook(self, site: Site) -> Change:
        def hook(tensor: Tensor) -> Tensor:
            self.fired.append(site)
            apart = site.apart(self.model, tensor).unflatten(0, (len(self.sets), -1))
            start = self.start_of(apart.shape[2])
            return replaced(apart, self.masks[site], self.values.at[site], start).view_as(tensor)

        return hook

    @property
    def rows(self) -> int:
        """Prompts of all sets together."""
        return len(self.sets) * self.examples

    def start_of(self, seen: int) -> int:
        """The first replaced position among those that a module sees: all, or the last alone."""
        return max(0, self.start - (self.length - seen))

    def _expert_hooks(self, site: Site) -> tuple[Any, Any]:
        rows = self.rows

        def before(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            self.fired.append(site)
            call = Routed.of(args, rows, site.layer)
            removed = self._experts_at(site, call.chosen.shape[1])
            return (*args[:2], without(call, removed).weights.view_as(args[2]))

        def after(_: Any, args: Any, output: Tensor) -> Tensor:
            seen = output.shape[:-1].numel() // rows
            other = self._other_experts(site, seen)
            return output if other is None else output + other.to(output.dtype).reshape(output.shape)

        return before, after

    def _experts_at(self, site: Site, seen: int) -> Tensor:
        """Which experts are replaced [sets · examples, positions, experts]."""
        at = torch.arange(seen, device=self.masks[site].device) >= self.start_of(seen)
        return self.masks[site].repeat_interleave(self.examples, 0)[:, None] & at[:, None]

    def _other_experts(self, site: Site, seen: int) -> Tensor | None:
        """What is added in place of the experts [sets · examples, positions, width]; None for nothing."""
        these = self._experts_at(site, seen)
        if site in self.values.routed:
            return self.values.routed[site].repeat(len(self.sets)).only(these).added(site.module(self.model))
        value = self.values.at[site][:, -seen:]
        if value.shape[2] == 1 and not bool(value.any()):
            return None
        each = value[0].expand(seen, -1, -1)  # a mean, for all examples
        return torch.einsum("rpe,pew->rpw", these.to(value.dtype), each)


def without(call: Routed, removed: Tensor) -> Routed:
    """A call in which some experts [rows, positions, experts] have no weight."""
    return call.only(~removed)


def replaced(apart: Tensor, mask: Tensor, value: Tensor, start: int) -> Tensor:
    """A copy in which masked units have other values from position `start` on.

    apart: [sets, examples, positions, units, size]; mask: [sets, units]; value: broadcast against
    [examples, positions, units, size], of more positions the last ones.
    """
    positions = apart.shape[2]
    wide = mask[:, None, None, :, None]
    if start:
        wide = wide & (torch.arange(positions, device=mask.device) >= start)[:, None, None]
    return torch.where(wide, value[:, -positions:], apart)

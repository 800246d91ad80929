"""Interventions by hooks: many sets of units replaced at once, one set after another along the batch dimension.

A head is the slice of the output projection's input (the projection's bias stays), an MLP is its output. Hooks
return new tensors, and weights are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from circuittest.errors import InterventionError, UsageError
from circuittest.measure.batches import ItemLike
from circuittest.measure.sites import Site
from circuittest.measure.values import Values
from circuittest.models.hooks import Change
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
    length, start:
        Tokens of each prompt, and the first position that is replaced.
    masks:
        Site → which units are replaced [sets, units], bool.
    """

    def __init__(
        self,
        model: LoadedModel,
        sets: Sequence[Parts],
        values: Values,
        *,
        length: int,
        positions: str = "all",
    ) -> None:
        self.model, self.sets, self.values = model, tuple(sets), values
        self.length, self.positions = length, positions
        self.start = first_position(positions, length)
        self.masks: dict[Site, Tensor] = {}
        self.fired: list[Site] = []
        for row, parts in enumerate(self.sets):
            for part in parts:
                site = Site.of(part)
                if site not in self.masks:
                    shape = (len(self.sets), site.units(model))
                    self.masks[site] = torch.zeros(shape, dtype=torch.bool, device=model.device)
                self.masks[site][row, part.index or 0] = True

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the units in every forward inside the `with` block, which must run each hook exactly once."""
        self.fired = []
        with ExitStack() as stack:
            for site in self.masks:
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
            seen = apart.shape[2]  # positions: all, or the last one
            start = max(0, self.start - (self.length - seen))
            return replaced(apart, self.masks[site], self.values[site], start).view_as(tensor)

        return hook


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

"""Experts of a mixture: what each adds, and their removal and replacement with the routing left as it is.

A mixture's experts are one module with fused weights, called with the states of all tokens, the experts chosen for
each and their weights. What expert e adds to a token is its weight times the expert's output, and nothing where it
was not chosen; so a weight of zero removes it exactly, whatever kernel runs, and other values are added to the
module's output.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from circuittest.errors import UnsupportedModel

#: Bytes of single contributions that are held at once.
CHUNK_BYTES = 64 << 20


class Routed(NamedTuple):
    """What the experts of one layer are called with.

    Attributes
    ----------
    states:
        What they read [rows, positions, width].
    chosen, weights:
        The experts of each token and the weight of each [rows, positions, choices].
    """

    states: Tensor
    chosen: Tensor
    weights: Tensor

    @classmethod
    def of(cls, args: tuple[Any, ...], rows: int, layer: int) -> Routed:
        """From the arguments of a call for the tokens of `rows` prompts. Raises UnsupportedModel for others."""
        if len(args) != 3 or args[1].shape != args[2].shape or args[0].shape[:-1] != args[1].shape[:-1]:
            raise UnsupportedModel(
                f"the experts of layer L{layer} are not called with states, chosen experts and their weights",
                "what each of them adds is unclear",
                "register an adapter without experts for this architecture",
            )
        return cls(*(one.reshape(rows, -1, one.shape[-1]) for one in args))

    def flat(self) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of a call, one row per token."""
        return self.states.flatten(0, 1), self.chosen.flatten(0, 1), self.weights.flatten(0, 1)

    def repeat(self, times: int) -> Routed:
        """The same rows, repeated as a whole."""
        return Routed(*(part.repeat(times, 1, 1) for part in self))

    def only(self, these: Tensor) -> Routed:
        """The same with the weights of all other experts at zero. these: [rows, positions, experts], bool."""
        return self._replace(weights=self.weights.masked_fill(~these.gather(2, self.chosen), 0))

    def added(self, experts: nn.Module) -> Tensor:
        """What the experts add in this call [rows, positions, width]; no hooks run."""
        return experts.forward(*self.flat()).view_as(self.states)

    def singles(self, experts: nn.Module) -> Tensor:
        """What each chosen expert adds by itself [rows, positions, choices, width]."""
        states, chosen, weights = self.flat()
        choices = chosen.shape[1]
        single = experts.forward(
            states.repeat_interleave(choices, 0), chosen.reshape(-1, 1), weights.reshape(-1, 1)
        )
        return single.view(*self.chosen.shape, -1)

    def dense(self, number: int) -> Tensor:
        """The weight of every one of `number` experts [rows, positions, experts], zero where it was not chosen."""
        return self.weights.new_zeros(*self.weights.shape[:2], number).scatter_(2, self.chosen, self.weights)

    def sums(self, experts: nn.Module, number: int) -> Tensor:
        """What each expert adds [positions, experts, width], summed over rows in float64."""
        rows, positions, choices = self.chosen.shape
        width = self.states.shape[2]
        cpu = self.states.device.type == "mps"  # which has no float64
        device = torch.device("cpu") if cpu else self.states.device
        total = torch.zeros((positions * number, width), dtype=torch.float64, device=device)
        step = max(1, CHUNK_BYTES // (positions * choices * width * self.states.element_size()))
        for first in range(0, rows, step):
            part = Routed(*(one[first : first + step] for one in self))
            where = part.chosen + torch.arange(positions, device=self.chosen.device)[:, None] * number
            total.index_add_(
                0, where.flatten().to(device), part.singles(experts).flatten(0, 2).to(device, torch.float64)
            )
        return total.view(positions, number, width)

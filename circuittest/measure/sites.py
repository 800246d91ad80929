"""Sites: where the units of one kind in one layer are apart, and are replaced.

| kind | module | tensor | seen as [rows, positions, units, size] |
|---|---|---|---|
| head | `out`, the attention's output projection | its input | heads × head size |
| mlp | `mlp_out` | its output, of a tuple the first element | 1 × width |
| neuron | `down`, the MLP's last projection | its input | neurons × 1 |
| expert | `experts` | see `circuittest.models.experts` | experts × width |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel
from circuittest.models.experts import Routed
from circuittest.models.hooks import Change, first, hooks, on_input
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit

#: Kinds whose site is the input of a projection.
INPUTS = ("head", "neuron")
_ROLES = {"head": "out", "mlp": "mlp_out", "neuron": "down", "expert": "experts"}


class Site(NamedTuple):
    """Where the units of one kind in one layer are replaced."""

    layer: int
    kind: str

    @classmethod
    def of(cls, part: Unit) -> Site:
        """The site of a part (see `Layout.parts`)."""
        return cls(part.layer or 0, part.kind)

    def module(self, model: LoadedModel) -> nn.Module:
        """The module whose input or output it is."""
        module: nn.Module = getattr(model.blocks[self.layer], _ROLES[self.kind])
        return module

    def unit(self, index: int) -> Unit:
        """A unit of this site."""
        return Unit(self.kind, self.layer, None if self.kind == "mlp" else index)

    def units(self, model: LoadedModel) -> int:
        """How many units it has."""
        return model.layout.count(self.kind, self.layer)

    def apart(self, model: LoadedModel, tensor: Tensor) -> Tensor:
        """A view of the tensor at the site [rows, positions, all] with its units apart; see the module's table."""
        return tensor.unflatten(-1, (self.units(model), -1))

    def device(self, model: LoadedModel) -> torch.device:
        """Where the module is: models can be spread over devices."""
        for module in (self.module(model), model.blocks[self.layer].block):
            for parameter in module.parameters():
                return parameter.device
        return model.device

    @contextmanager
    def hooked(self, model: LoadedModel, change: Change) -> Iterator[None]:
        """Pass the tensor at the site through `change` (None leaves it) for the length of a `with` block."""
        module = self.module(model)
        if self.kind in INPUTS:
            with on_input(module, change):
                yield
        else:
            with hooks(module.register_forward_hook(_output_hook(self, change))):
                yield


@dataclass(frozen=True)
class Values:
    """Values of the units of some sites.

    Attributes
    ----------
    at:
        Site → values that broadcast against [examples, positions, units, size].
    routed:
        Sites of experts → the call in which they have their values [examples, positions, …].
    """

    at: Mapping[Site, Tensor]
    routed: Mapping[Site, Routed] = field(default_factory=dict)


def sites(parts: Iterable[Unit]) -> tuple[Site, ...]:
    """The sites of some parts, in the order of layers."""
    return tuple(sorted({Site.of(part) for part in parts}))


@torch.no_grad()
def record(model: LoadedModel, ids: Tensor, wanted: Iterable[Site]) -> Values:
    """The values of all units of some sites in a run on ids [rows, length].

    Under `answer_position_only` the last layer has one position.
    """
    found: dict[Site, Tensor] = {}
    routed: dict[Site, Routed] = {}
    wanted = tuple(wanted)

    def keep(site: Site) -> Change:
        def hook(tensor: Tensor) -> None:
            found[site] = site.apart(model, tensor.clone() if model.in_place else tensor)

        return hook

    def keep_call(site: Site) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            routed[site] = Routed.of(args, len(ids), site.layer)

        return hook

    with ExitStack() as stack:
        for site in wanted:
            if site.kind == "expert":
                stack.enter_context(hooks(site.module(model).register_forward_pre_hook(keep_call(site))))
            else:
                stack.enter_context(site.hooked(model, keep(site)))
        model.trunk(ids, use_cache=False)
    for site in wanted:
        if site not in found and site not in routed:
            raise InterventionError(
                f"nothing was seen of layer L{site.layer} in a forward pass",
                f"the module in which units of kind {site.kind!r} are apart did not run",
                "check the adapter; a fused kernel may bypass the module",
            )
    return Values(found, routed)


def _output_hook(site: Site, change: Change) -> Any:
    def hook(_module: Any, _args: Any, output: Any) -> Any:
        if not isinstance(first(output), Tensor):
            raise UnsupportedModel(
                f"the MLP of layer L{site.layer} returns a {type(output).__name__}",
                "its write to the residual is unclear",
                "register an adapter whose MLP returns a tensor, or a tuple that begins with one",
            )
        new = change(first(output))
        if new is None:
            return None
        return (new, *output[1:]) if isinstance(output, tuple) else new

    return hook

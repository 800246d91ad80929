"""Path patching as its papers write it: three runs of a transformers model with plain hooks, one example at a time.

Run 1 and 2 record what heads and MLPs give on the clean and on the counterfactual prompt; run 3 pins every head (and
MLP, unless they are recomputed) to its clean value and the senders to their counterfactual ones, and records what the
receivers' projections give; run 4 is clean but for those. Shares nothing with the library but unit ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.units import Unit
from tests.helpers.plain import Plain

#: Architecture → what gives queries, keys and values in a block; one name where they are one matrix. OLMo 2 normalises
#: queries and keys over all heads, so that only behind that norm a head has its own.
PROJECTIONS = {
    "gpt2": ("attn.c_attn",),
    "gpt_neox": ("attention.query_key_value",),
    "olmo2": ("self_attn.q_norm", "self_attn.k_norm", "self_attn.v_proj"),
    "": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
}


class ByHooks:
    """A model, and where its parts are.

    groups:
        Its KV heads.
    """

    def __init__(self, module: nn.Module, architecture: str, heads: int, groups: int, size: int) -> None:
        plain = Plain(module, architecture)
        self.module, self.blocks, self.out, self.mlp = plain.module, plain.blocks, plain.out, plain.mlp
        self.projections = next(p for name, p in PROJECTIONS.items() if architecture.startswith(name))
        self.heads, self.groups, self.size, self.neox = (
            heads,
            groups,
            size,
            architecture.startswith("gpt_neox"),
        )

    def logits(
        self,
        ids: Sequence[int],
        other: Sequence[int],
        senders: Sequence[Unit],
        receivers: Sequence[tuple[Unit, str | None]],
        *,
        recompute: bool,
    ) -> Tensor:
        """Logits after the last token, with the receivers all in one layer, or the logits alone."""
        clean, counterfactual = self._record(ids), self._record(other)
        pinned: dict[tuple[str, int], Tensor] = {}
        for layer in range(len(self.blocks)):
            z = clean["z", layer].clone()
            for sender in senders:
                if sender.kind == "head" and sender.layer == layer:
                    columns = slice(sender.index * self.size, (sender.index + 1) * self.size)
                    z[..., columns] = counterfactual["z", layer][..., columns]
            pinned["z", layer] = z
            if Unit("mlp", layer) in senders:
                pinned["mlp", layer] = counterfactual["mlp", layer]
            elif not recompute:
                pinned["mlp", layer] = clean["mlp", layer]
        if Unit("embed") in senders:
            pinned["embed", 0] = counterfactual["embed", 0]
        seen: dict[tuple[str, int], Tensor] = {}
        logits = self._run(ids, pinned, seen)
        if receivers == [(Unit("logits"), None)]:
            return logits
        given: dict[tuple[str, int], Tensor] = {}
        for unit, slot in receivers:
            if unit.kind == "mlp":
                given["mlp", unit.layer] = self._mlp(seen, unit.layer)
            else:
                name, features = self._features(slot, unit.index)
                place = (name, unit.layer)
                given.setdefault(place, clean[place].clone())[..., features] = seen[place][..., features]
        return self._run(ids, given, {})

    def _mlp(self, seen: dict[tuple[str, int], Tensor], layer: int) -> Tensor:
        with torch.no_grad():
            output = self.blocks[layer].get_submodule(self.mlp)(seen["mlp in", layer])
        return output[0] if isinstance(output, tuple) else output

    def _features(self, slot: str | None, index: int) -> tuple[str, Any]:
        """The module that gives a slot, and its columns."""
        part, size = "qkv".index(slot), self.size
        if len(self.projections) == 3:
            return self.projections[part], slice(index * size, (index + 1) * size)
        start = (3 * index + part) * size if self.neox else (part * self.heads + index) * size
        return self.projections[0], slice(start, start + size)

    def _record(self, ids: Sequence[int]) -> dict[tuple[str, int], Tensor]:
        seen: dict[tuple[str, int], Tensor] = {}
        self._run(ids, {}, seen)
        return seen

    def _run(
        self, ids: Sequence[int], given: dict[tuple[str, int], Tensor], seen: dict[tuple[str, int], Tensor]
    ) -> Tensor:
        def before(place: tuple[str, int]) -> Callable[..., Any]:
            def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                first = args[0] if args else kwargs["hidden_states"]
                new = given.get(place, first)
                seen[place] = new.clone()
                return ((new, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": new})

            return hook

        def after(place: tuple[str, int]) -> Callable[..., Any]:
            def hook(_: nn.Module, args: Any, output: Any) -> Any:
                new = given.get(place, output)
                seen[place] = new.clone()
                return new

            return hook

        with ExitStack() as stack, torch.no_grad():

            def enter(module: nn.Module, place: tuple[str, int]) -> None:
                handle = module.register_forward_pre_hook(before(place), with_kwargs=True)
                stack.callback(handle.remove)

            def leave(module: nn.Module, place: tuple[str, int]) -> None:
                stack.callback(module.register_forward_hook(after(place)).remove)

            enter(self.blocks[0], ("embed", 0))
            for layer, block in enumerate(self.blocks):
                enter(block.get_submodule(self.out), ("z", layer))
                enter(block.get_submodule(self.mlp), ("mlp in", layer))
                leave(block.get_submodule(self.mlp), ("mlp", layer))
                for name in self.projections:
                    leave(block.get_submodule(name), (name, layer))
            return self.module(torch.tensor([list(ids)])).logits[0, -1]

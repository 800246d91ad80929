"""Interventions as anyone would write them: one set, one prompt at a time, bare hooks, the whole model.

An implementation apart from the library's: it knows the modules by their names in transformers and shares no hook,
batch, cached residual or mean with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.units import Unit
from tests.helpers.items import FakeItem

#: Prefix of an architecture's name → the blocks, and in them the attention's output projection, what the MLP adds, and
#: the MLP's last projection.
PLACES = {
    "gpt2": ("transformer.h", "attn.c_proj", "mlp", "mlp.c_proj"),
    "gpt_neox": ("gpt_neox.layers", "attention.dense", "mlp", "mlp.dense_4h_to_h"),
    "gptj": ("transformer.h", "attn.out_proj", "mlp", "mlp.fc_out"),
    "bloom": ("transformer.h", "self_attention.dense", "mlp.dense_4h_to_h", "mlp.dense_4h_to_h"),
    "falcon": ("transformer.h", "self_attention.dense", "mlp", "mlp.dense_4h_to_h"),
    "phi3": ("model.layers", "self_attn.o_proj", "mlp", "mlp.down_proj"),
    "phi": ("model.layers", "self_attn.dense", "mlp", "mlp.fc2"),
    "": ("model.layers", "self_attn.o_proj", "mlp", "mlp.down_proj"),
}

#: Unit → its values in one run [length, size].
Record = dict[Unit, Tensor]
Hook = Callable[[Tensor], "Tensor | None"]


class Plain:
    """A module and where its units are."""

    def __init__(self, module: nn.Module, architecture: str, heads: int = 4) -> None:
        layers, self.out, self.mlp, self.down = next(
            p for name, p in PLACES.items() if architecture.startswith(name)
        )
        self.module, self.heads = copy.deepcopy(module), heads  # whose weights are edited now and then
        self.extra: tuple[Unit, ...] = ()  # neurons and experts to record as well
        self.blocks = list(self.module.get_submodule(layers).children())
        self.records: dict[tuple[int, ...], Record] = {}

    def record(self, ids: Sequence[int]) -> Record:
        """The values of every head and MLP, and of the neurons and experts in `extra`, on one prompt."""
        if tuple(ids) in self.records:
            return self.records[tuple(ids)]
        found: Record = {}

        def keep(unit: Unit) -> Hook:
            def hook(tensor: Tensor) -> None:
                found[unit] = tensor[0].clone()

            return hook

        self._run(ids, {unit: keep(unit) for layer in range(len(self.blocks)) for unit in self._units(layer)})
        self.records[tuple(ids)] = found
        return found

    def logits(self, ids: Sequence[int], values: Record, at: Iterable[int]) -> Tensor:
        """Logits after the prompt where units have other values ([length, size] or [size]) at some positions."""
        at = list(at)

        def change(unit: Unit) -> Hook:
            def hook(tensor: Tensor) -> Tensor:
                tensor = tensor.clone()
                for position in at:
                    tensor[0, position] = values[unit][position] if values[unit].ndim == 2 else values[unit]
                return tensor

            return hook

        return self._run(ids, {unit: change(unit) for unit in values})

    def _units(self, layer: int) -> list[Unit]:
        more = [unit for unit in self.extra if unit.layer == layer]
        return [*(Unit("head", layer, i) for i in range(self.heads)), Unit("mlp", layer), *more]

    @torch.no_grad()
    def _run(self, ids: Sequence[int], hooks: dict[Unit, Hook]) -> Tensor:
        handles = []
        for unit, hook in hooks.items():
            block = self.blocks[unit.layer or 0]
            if unit.kind == "head":
                part, wrapped = block.get_submodule(self.out), self._slice(unit.index or 0, hook, self.heads)
                handles.append(part.register_forward_pre_hook(wrapped))
            elif unit.kind == "neuron":
                part = block.get_submodule(self.down)
                wrapped = self._slice(unit.index or 0, hook)
                handles.append(part.register_forward_pre_hook(wrapped))
            elif unit.kind == "expert":
                handles.append(block.mlp.experts.register_forward_hook(_expert(unit.index or 0, hook)))
            else:
                handles.append(block.get_submodule(self.mlp).register_forward_hook(_output(hook)))
        try:
            return self.module(torch.tensor([list(ids)]), use_cache=False).logits[0, -1]
        finally:
            for handle in handles:
                handle.remove()

    def _slice(self, index: int, hook: Hook, units: int | None = None) -> Any:
        def wrapped(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            size = args[0].shape[-1] // units if units else 1
            cut = slice(index * size, (index + 1) * size)
            new = hook(args[0][..., cut])
            if new is None:
                return args
            whole = args[0].clone()
            whole[..., cut] = new
            return (whole, *args[1:])

        return wrapped


def _output(hook: Hook) -> Any:
    def wrapped(_: nn.Module, args: Any, output: Any) -> Any:
        new = hook(output[0] if isinstance(output, tuple) else output)
        if new is None:
            return output
        return (new, *output[1:]) if isinstance(output, tuple) else new

    return wrapped


def _expert(index: int, hook: Hook) -> Any:
    """What an expert adds is what is missing from the sum when its last matrix is zero."""

    def wrapped(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        last = [part for name, part in module.named_parameters() if name.startswith("down_proj")]
        kept = [part[index].clone() for part in last]
        for part in last:
            part[index] = 0
        rest = module.forward(*args)
        for part, before in zip(last, kept, strict=True):
            part[index] = before
        own = module.forward(*args) - rest
        new = hook(own.unsqueeze(0))
        return output if new is None else output - own + new[0]  # which other experts may have changed

    return wrapped


def scores(logits: Tensor, item: FakeItem) -> dict[str, float]:
    """The graded outcomes of one example from its logits."""
    logs = logits.double().log_softmax(0)
    answers, foils = list(dict.fromkeys(item.answer_ids)), list(dict.fromkeys(item.foil_ids))
    return {
        "log_prob": float(logs[answers].logsumexp(0)),
        "logit_diff": float(logits[answers].mean() - logits[foils].mean()),
        "prob_diff": float(logs[answers].exp().sum() - logs[foils].exp().sum()),
    }

"""Proof that edges were replaced at their site: slot by slot, on one example, at the position that moved most.

Every slot with a replaced edge must have read the run's residual plus exactly its replaced writes minus the run's own,
each write recomputed here by itself from what the module wrote; and what left the slot (for MLPs and logits: entered
them) must be what the model's own modules make of that. Deliberately slow and plain, unlike what it checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError
from circuittest.measure.trace import Place
from circuittest.measure.wires import Wires, sources
from circuittest.models.hooks import first, hooks
from circuittest.models.loaded import LoadedModel
from circuittest.models.wiring import slot_features

_DO = "do not use these results; check the adapter, and hooks or patches that others left on the model"
#: Rounding of a sum of writes and a projection, relative to the largest of what is summed.
_NOISE = {torch.float64: 1e-11, torch.float32: 1e-4, torch.float16: 3e-2, torch.bfloat16: 0.2}


@dataclass(frozen=True)
class Read:
    """What some readers of one circuit read at one position of its first example [readers, width]."""

    circuit: int
    readers: tuple[int, ...]
    position: int
    mixed: Tensor
    residual: Tensor


class Proof:
    """Watches one pass of a `Rewired` and judges it afterwards."""

    def __init__(
        self, model: LoadedModel, wires: Wires, values: Mapping[Place, Tensor], examples: int
    ) -> None:
        self.model, self.wires, self.values, self.examples = model, wires, values, examples
        self.reads: list[Read] = []
        self.own: dict[Place, Tensor] = {}
        self.seen: dict[Place, Tensor] = {}

    def read(self, circuit: int, readers: list[int], mixed: Tensor, residual: Tensor) -> None:
        """What readers read in a circuit [readers, rows, width]; rows are all positions, or each example's last few."""
        of_first = mixed.view(len(readers), self.examples, -1, mixed.shape[-1])[:, 0]
        own = self._firsts(residual)[circuit].to(mixed.device)
        own = own[len(own) - of_first.shape[1] :]  # [positions, width]
        at = int((of_first - own).abs().amax((0, 2)).argmax())
        position = residual.shape[1] - len(own) + at
        self.reads.append(
            Read(circuit, tuple(readers), position, _wide(of_first[:, at]).clone(), _wide(own[at]))
        )

    @contextmanager
    def watching(self, start: int = 0) -> Iterator[None]:
        """Look at what units write, leaves the slots, and enters MLPs and final norm; to be entered last.

        What units in the layers before `start` wrote is given in `own`.
        """

        def out(into: dict[Place, Tensor], place: Place) -> Callable[..., None]:
            def hook(_module: nn.Module, _args: Any, output: Any) -> None:
                into[place] = self._firsts(first(output))

            return hook

        def enter(into: dict[Place, Tensor], place: Place) -> Callable[..., None]:
            def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                into[place] = self._firsts(args[0] if args else kwargs["hidden_states"])

            return hook

        blocks, own, seen = self.model.blocks, self.own, self.seen
        entered = [(blocks[0].block, own, ("embed", 0)), (self.model.final_norm, seen, ("final", 0))]
        left: list[tuple[nn.Module, dict[Place, Tensor], Place]] = []
        for layer, block in list(enumerate(blocks))[start:]:
            entered += [(block.out, own, ("z", layer)), (block.mlp, seen, ("mlp_in", layer))]
            left.append((block.mlp_out, own, ("mlp", layer)))
            for role in ("qkv",) if block.qkv is not None else ("q", "k", "v"):
                if (module := block.slot(role)) is not None:
                    left.append((module, seen, (role, layer)))
        handles = [
            module.register_forward_pre_hook(enter(into, place), with_kwargs=True)
            for module, into, place in entered
        ]
        with hooks(
            *handles, *(module.register_forward_hook(out(into, place)) for module, into, place in left)
        ):
            yield

    @torch.no_grad()
    def check(self) -> None:
        """Raise InterventionError naming the first slot that did not read what it should have."""
        read_by = {(read.circuit, reader) for read in self.reads for reader in read.readers}
        for circuit, reader in self.wires.replaced.any(1).nonzero().tolist():
            if (circuit, reader) not in read_by:
                raise InterventionError(
                    f"{self._name(reader)} was not patched", "nothing was mixed for it", _DO
                )
        for read in self.reads:
            differences, after_post = self._differences(read)
            for row, reader in enumerate(read.readers):
                terms = differences[self.wires.replaced[read.circuit, :, reader]]
                expected = read.residual + terms.sum(0)
                scale = read.residual.abs().max() + terms.abs().amax(1).sum()
                for change in after_post:
                    moved = change(self.wires.replaced[read.circuit, :, reader])
                    expected, scale = expected + moved, scale + moved.abs().max()
                self._compare(reader, "its replaced writes", read.mixed[row], expected, scale)
            self._check_sites(read)

    def _check_sites(self, read: Read) -> None:
        """Did the modules that read go on with what was mixed? All readers of one projection at once."""
        layout, model = self.model.layout, self.model
        heads, groups = layout.n_heads, layout.n_kv_heads
        inputs = read.mixed.to(model.dtype).to(model.device)
        normed: dict[nn.Module, Tensor] = {}
        projected: dict[str, Tensor] = {}
        for row, reader in enumerate(read.readers):
            layer, slot = divmod(reader, self.wires.slots)
            if reader == len(layout.readers) - 1:
                found = self._seen("final", 0, reader)[read.circuit, read.position]
                self._compare(reader, "what was mixed for it", found, inputs[row], inputs[row].abs().max())
                continue
            block = model.blocks[layer]
            is_mlp = slot == self.wires.slots - 1
            norm = block.mlp_norm if is_mlp else block.attn_norm
            given = inputs
            if norm is not None:
                given = normed[norm] = normed[norm] if norm in normed else norm.forward(inputs[None])[0]
            if is_mlp:
                found = self._seen("mlp_in", layer, reader)[read.circuit, read.position]
                what = "the norm of what was mixed for it"
                self._compare(reader, what, found, given[row], given[row].abs().max())
                continue
            kind, index = (
                ("q", slot) if slot < heads else ("kv"[(slot - heads) // groups], (slot - heads) % groups)
            )
            role = "qkv" if block.qkv is not None else kind
            if role not in projected:
                projection, module = getattr(block, role), block.slot(role)
                whole = projection.forward(given[None])
                projected[role] = (whole if module in (None, projection) else module.forward(whole))[0]
            features = slot_features(model.adapter, kind, heads, groups, model.head_dim)[index]
            found = self._seen(role, layer, reader)[read.circuit, read.position, features]
            whole = projected[role][row]
            what = "the projection of what was mixed for it"
            self._compare(reader, what, found, whole[features], whole.abs().max())

    def _differences(self, read: Read) -> tuple[Tensor, list[Callable[[Tensor], Tensor]]]:
        """Replaced minus own write of every writer [writers, width], and what attention layers behind a post-norm add
        for a reader's row of replaced writers; those heads' own rows are zero.
        """
        model, layout = self.model, self.model.layout
        found = torch.zeros((len(layout.writers), model.width), dtype=torch.float64)
        behind: list[Callable[[Tensor], Tensor]] = []
        for role, layer, writers in sources(layout):
            if not bool(self.wires.replaced[read.circuit, writers][:, list(read.readers)].any()):
                continue
            own, other = (
                self.own[role, layer][read.circuit, read.position],
                self._other(role, layer, read.position),
            )
            if role == "embed":
                found[writers] = _wide(other) - _wide(own)
            elif role == "mlp":
                post = model.blocks[layer].mlp_post_norm
                pair = torch.stack([other.to(own).expand_as(own), own])
                pair = pair if post is None else post.forward(pair)
                found[writers] = (_wide(pair[0]) - _wide(pair[1]))[None]
            else:
                terms = self._heads(layer, own, other)
                post = model.blocks[layer].attn_post_norm
                if post is None:
                    found[writers] = terms
                else:
                    total = model.blocks[layer].out.forward(own[None, None])[0, 0]
                    behind.append(_behind(post, total, terms, writers))
        return found, behind

    def _heads(self, layer: int, own: Tensor, other: Tensor) -> Tensor:
        """Replaced minus own write of every head of a layer, each by the module alone [heads, width]."""
        heads, module = self.model.layout.n_heads, self.model.blocks[layer].out
        only = torch.eye(heads, dtype=own.dtype, device=own.device)
        only = only.repeat_interleave(own.shape[-1] // heads, dim=1)
        zero = _wide(module.forward(torch.zeros_like(own)[None, None])[0, 0])
        parts = [_wide(module.forward((only * one.to(own))[None])[0]) - zero for one in (other, own)]
        return parts[0] - parts[1]

    def _other(self, role: str, layer: int, position: int) -> Tensor:
        values = self.values[role, layer]
        return values[0, position] if values.ndim == 3 else values

    def _firsts(self, rows: Tensor) -> Tensor:
        """The first example of every circuit [circuits, length, features]."""
        return rows[:: self.examples].clone()

    def _seen(self, role: str, layer: int, reader: int) -> Tensor:
        if (role, layer) not in self.seen:
            raise InterventionError(
                f"nothing was seen of {self._name(reader)}", "its module did not run", _DO
            )
        return self.seen[role, layer]

    def _compare(self, reader: int, what: str, found: Tensor, expected: Tensor, scale: Tensor) -> None:
        error = float((_wide(found) - _wide(expected)).abs().max())
        if not error <= _NOISE.get(self.model.dtype, 0.2) * float(scale):
            raise InterventionError(
                f"{self._name(reader)} was not patched",
                f"it did not read {what}: off by {error:.3g} where values reach {float(scale):.3g}",
                _DO,
            )

    def _name(self, reader: int) -> str:
        unit, slot = self.model.layout.readers[reader]
        return f"{unit}.{slot}" if slot else str(unit)


def _behind(post: nn.Module, total: Tensor, terms: Tensor, writers: slice) -> Callable[[Tensor], Tensor]:
    def change(replaced: Tensor) -> Tensor:
        changed = _wide(total) + terms[replaced[writers]].sum(0)
        pair = torch.stack([changed.to(total.dtype).to(total.device), total])[:, None]
        normed = _wide(post.forward(pair))
        return normed[0, 0] - normed[1, 0]

    return change


def _wide(tensor: Tensor) -> Tensor:
    return tensor.cpu().double()  # some devices have no float64

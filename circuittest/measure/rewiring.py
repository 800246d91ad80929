"""One forward pass in which every reader reads its own residual: some writes are the run's own, others are replaced.

A reader's residual is the sum of what its edges carry (`circuittest.measure.wires`). Its norm and its projection are
recomputed on that, for the query of each head and the key and value of each KV group; attention and MLPs then run as
they are. So a unit recomputes from what its edges brought, and the residual stream of the module itself feeds no reader
(path patching; Hanna et al., arXiv 2403.17806, `evaluate_graph` of their published code).

Biases of attention output projections belong to no head and stay. Behind a post-norm (Gemma 2 and 3, OLMo 2) heads do
not add up: what a reader reads of an attention layer is the post-norm of the sum of its heads, each with the value
that its edge to this reader carries, as if those heads had been replaced in the whole layer.

Circuits are stacked along the batch dimension, one after another. The differences of the writes of all units with a
replaced edge are kept once, and mixed reader layer by reader layer in one matrix product for each circuit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError
from circuittest.measure.batches import precision
from circuittest.measure.buffers import Buffers
from circuittest.measure.slots import Slots
from circuittest.measure.trace import Place
from circuittest.measure.wires import SourceBlock, Wires
from circuittest.models.hooks import instead, on_input, on_output
from circuittest.models.loaded import LoadedModel, weight_in_out

if TYPE_CHECKING:
    from circuittest.measure.rewiring_proof import Proof


class Rewired:
    """A forward pass of `circuits × examples` rows with the wires' edges replaced.

    Parameters
    ----------
    slots:
        The slot modules of every layer.
    values:
        Replaced values by place, each broadcasting to [examples, length, features].
    examples, length, tail:
        Shape of one circuit's rows, and how many of its last positions are read.
    proof:
        Watches the pass, where it is to be proven.
    start, clean:
        The layer in which the pass resumes, before which nothing is replaced, and what the untouched model writes by
        place.
    """

    def __init__(
        self,
        model: LoadedModel,
        slots: Sequence[tuple[Slots, ...]],
        wires: Wires,
        values: Mapping[Place, Tensor],
        examples: int,
        length: int,
        tail: int,
        buffers: Buffers,
        proof: Proof | None = None,
        start: int = 0,
        clean: Mapping[Place, Tensor] | None = None,
    ) -> None:
        self.model, self.slots, self.wires, self.values = model, slots, wires, values
        self.examples, self.length, self.tail = examples, length, tail
        self.buffers, self.proof, self.start, self.clean = buffers, proof, start, clean or {}
        self.dtype = precision(model.dtype)
        #: Where writes are collected and mixed, of a model that is spread over several devices.
        self.device = values["embed", 0].device
        self.coefficients = wires.coefficients.to(self.dtype).to(self.device)
        self.from_replaced: list[list[bool]] = wires.from_replaced.tolist()
        #: Packed writes that simply add up: all, but for heads in front of a post-norm.
        self.additive = self.coefficients.clone()
        for (role, layer), block in wires.blocks.items():
            if role == "z" and model.blocks[layer].attn_post_norm is not None:
                self.additive[:, :, block.rows] = 0
        #: The MLPs that also read the attention of their own block.
        mlps = range(wires.slots - 1, len(model.layout.readers) - 1, wires.slots)
        self.pending = frozenset() if model.layout.parallel else frozenset(mlps)
        #: Per layer and slot module the slots with replaced edges; and those readers, module by module.
        self.active = [[self._active(one) for one in modules] for modules in slots]
        self.attention = [
            [
                layer * wires.slots + one.order[slot]
                for one, which in zip(*both, strict=True)
                for slot in which
            ]
            for layer, both in enumerate(zip(slots, self.active, strict=True))
        ]
        self.fired: Counter[Place] = Counter()
        self._expected: set[Place] = set()
        self._kept: dict[Place, Tensor] = {}
        self._projected: dict[Place, Tensor] = {}
        self._mlp_inputs: list[Tensor] = []

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Rewire the one forward pass inside the `with` block; every module it needs must run exactly once."""
        with ExitStack() as stack:
            self._fill()
            for layer in range(self.start, self.model.layout.n_layers):
                block = self.model.blocks[layer]
                self._watch(stack, "block", layer, on_input, block.block, self._at_block(layer))
                mlp = self.wires.mlp_reader(layer)
                for slots, which in zip(self.slots[layer], self.active[layer], strict=True):
                    if which:
                        stack.enter_context(instead(slots.module, self._slot(slots, which)))
                        self._expected.add((slots.role, layer))
                if ("z", layer) in self.wires.blocks:
                    self._watch(stack, "z", layer, on_input, block.out, self._heads_written(layer))
                    if block.attn_post_norm is not None:
                        post, keep = block.attn_post_norm, self._keep
                        self._watch(stack, "attn", layer, on_input, post, keep("attn", layer))
                        self._watch(stack, "attn_post", layer, on_output, post, keep("attn_post", layer))
                if mlp and not self.model.layout.parallel and block.mlp_norm is not None:
                    self._watch(
                        stack, "mlp_norm", layer, on_input, block.mlp_norm, self._keep("mlp_norm", layer)
                    )
                if mlp:
                    self._watch(stack, "mlp_in", layer, on_input, block.mlp, self._mlp_reads(layer))
                if ("mlp", layer) in self.wires.blocks:
                    self._watch(stack, "mlp", layer, on_output, block.mlp_out, self._mlp_written(layer))
            if self.wires.logits_reader():
                self._watch(stack, "final", 0, on_input, self.model.final_norm, self._logits_read)
            if self.proof is not None:
                stack.enter_context(self.proof.watching(self.start))
            yield
        for place in sorted(self._expected):
            if self.fired[place] != 1:
                raise InterventionError(
                    f"the module {place[0]!r} of layer L{place[1]} ran {self.fired[place]} times in one forward pass",
                    "edges that end or start there could not be replaced",
                    "check the adapter; a fused kernel may bypass the module",
                )

    def _fill(self) -> None:
        """What units wrote in the layers before `start`, which are those of the untouched model."""
        before = [("embed", 0), *((role, layer) for layer in range(self.start) for role in ("z", "mlp"))]
        for role, layer in before if self.start else ():
            if (role, layer) in self.clean:
                values = self.clean[role, layer].repeat(len(self.wires), 1, 1)
                if self.proof is not None:
                    self.proof.own[role, layer] = values[:: self.examples]
                if (role, layer) in self.wires.blocks:
                    self._written(role, layer, values)

    def _written(self, role: str, layer: int, values: Tensor) -> None:
        if role == "embed":
            rows = self._rows(self.wires.blocks["embed", 0])
            self._packed()[:, rows.start] = self._difference("embed", 0, values)
        elif role == "mlp":
            self._mlp_written(layer)(values)
        else:
            self._heads_written(layer)(values)
            post = self.model.blocks[layer].attn_post_norm
            if post is not None:
                attention = self.clean["attn", layer].repeat(len(self.wires), 1, 1)
                self._kept["attn", layer], self._kept["attn_post", layer] = attention, post.forward(attention)

    def _watch(
        self,
        stack: ExitStack,
        role: str,
        layer: int,
        side: Callable[..., Any],
        module: nn.Module,
        change: Callable[[Tensor], Tensor | None],
    ) -> None:
        def hook(tensor: Tensor) -> Tensor | None:
            self.fired[role, layer] += 1
            return change(tensor)

        self._expected.add((role, layer))
        stack.enter_context(side(module, hook))

    def _active(self, slots: Slots) -> list[int]:
        """Which slots of a module have replaced edges."""
        first, readers = slots.layer * self.wires.slots, self.wires.readers
        return [slot for slot, reader in enumerate(slots.order) if first + reader in readers]

    # Writes -----------------------------------------------------------------------------------------------------

    def _packed(self) -> Tensor:
        """[circuits, 2 + packed rows, examples · length, width]; first the residuals, own and replaced, of a reader."""
        shape = (len(self.wires), 2 + self.wires.rows, self.examples * self.length, self.model.width)
        return self.buffers.get("packed", shape, self.values["embed", 0], self.dtype)

    def _rows(self, block: SourceBlock) -> slice:
        return slice(2 + block.rows.start, 2 + block.rows.stop)

    def _difference(self, role: str, layer: int, own: Tensor) -> Tensor:
        """Replaced minus own value [circuits, examples · length, features]."""
        own = own.unflatten(0, (len(self.wires), self.examples)).to(self.dtype)
        return (self.values[role, layer].to(own) - own).flatten(1, 2)

    def _heads_written(self, layer: int) -> Callable[[Tensor], None]:
        def hook(z: Tensor) -> None:
            heads = self.model.layout.n_heads
            weight = weight_in_out(self.model.blocks[layer].out).to(self.dtype).unflatten(0, (heads, -1))
            target = self._packed()[:, self._rows(self.wires.blocks["z", layer])]
            for row, difference in enumerate(self._difference("z", layer, z)):
                by_head = difference.unflatten(1, (heads, -1)).transpose(0, 1)
                if by_head.device == self.device:
                    torch.bmm(by_head, weight, out=target[row])
                else:
                    target[row] = torch.bmm(by_head, weight)

        return hook

    def _mlp_written(self, layer: int) -> Callable[[Tensor], None]:
        def hook(output: Tensor) -> None:
            post = self.model.blocks[layer].mlp_post_norm
            target = self._packed()[:, self._rows(self.wires.blocks["mlp", layer])]
            if post is None:
                target[:, 0] = self._difference("mlp", layer, output)
            else:
                own = post.forward(output).to(self.dtype).unflatten(0, (len(self.wires), self.examples))
                shape = (self.examples, *output.shape[1:])
                replaced = post.forward(self.values["mlp", layer].to(output).expand(shape))
                target[:, 0] = (replaced.to(self.dtype) - own).flatten(1, 2)

        return hook

    def _keep(self, role: str, layer: int) -> Callable[[Tensor], None]:
        def hook(tensor: Tensor) -> None:
            self._kept[role, layer] = tensor

        return hook

    # Reads ------------------------------------------------------------------------------------------------------

    def _at_block(self, layer: int) -> Callable[[Tensor], None]:
        """At the input of a block: its queries, keys and values, and what can be mixed of its MLP's input."""

        def hook(residual: Tensor) -> None:
            if layer == 0 and ("embed", 0) in self.wires.blocks:
                self._written("embed", 0, residual)
            attention, mlp = self.attention[layer], self.wires.mlp_reader(layer)
            parallel = self.model.layout.parallel
            self._mlp_inputs = []
            if not attention and not (mlp and parallel):
                return
            found: list[list[Tensor]] = [[] for _ in self.slots[layer]]
            for circuit in range(len(self.wires)):
                mixed = self._mixed(
                    circuit, attention + mlp, self.wires.seen(layer), residual, ("attn_base", layer)
                )
                ready = attention + (mlp if parallel else [])
                self._look(circuit, ready, mixed[: len(ready)], residual)
                start = 0
                for parts, slots, which in zip(found, self.slots[layer], self.active[layer], strict=True):
                    if which:
                        parts.append(slots(mixed[start : start + len(which)].to(slots.device), which))
                        start += len(which)
                if mlp:
                    self._mlp_inputs.append(mixed[-1].clone())
            for parts, slots in zip(found, self.slots[layer], strict=True):
                if parts:
                    self._projected[slots.role, layer] = torch.stack(parts)

        return hook

    def _slot(self, slots: Slots, which: list[int]) -> Callable[..., Tensor]:
        def forward(own: Callable[..., Tensor], hidden: Tensor, *more: Any, **options: Any) -> Tensor:
            self.fired[slots.role, slots.layer] += 1
            count = len(slots.order)
            values = self._projected.pop((slots.role, slots.layer)).transpose(1, 2)
            if len(which) == count:
                # [circuits, rows, slots, size] → [circuits · examples, length, slots · size]
                return values.reshape(*hidden.shape[:2], -1).to(self.model.dtype)
            new = own(hidden, *more, **options).clone()
            new.view(len(values), -1, count, values.shape[-1])[:, :, which] = values.to(new.dtype)
            return new

        return forward

    def _mlp_reads(self, layer: int) -> Callable[[Tensor], Tensor]:
        def hook(normed: Tensor) -> Tensor:
            block, parallel = self.model.blocks[layer], self.model.layout.parallel
            reader = self.wires.mlp_reader(layer)
            if not parallel:
                residual = normed if block.mlp_norm is None else self._kept.pop(("mlp_norm", layer))
                for circuit in range(len(self.wires)):
                    self._finish_mlp(circuit, layer, reader, residual)
            mixed = torch.stack(self._mlp_inputs).view(normed.shape).to(normed.device, self.model.dtype)
            self._mlp_inputs = []
            return mixed if block.mlp_norm is None else block.mlp_norm.forward(mixed)

        return hook

    def _finish_mlp(self, circuit: int, layer: int, reader: list[int], residual: Tensor) -> None:
        """Add to an MLP's mixed input what the attention of its own block brought."""
        start, stop = self.wires.seen(layer), self.wires.seen(layer, own_heads=True)
        base = self._base("mlp_base", layer) if self.from_replaced[circuit][reader[0]] else None
        own_residual = (self._of(circuit, residual) if base is None else base).to(self.device)
        if circuit == len(self._mlp_inputs):  # no attention reader of this block mixed the earlier writes
            start = 0
            self._mlp_inputs.append(torch.zeros_like(own_residual, dtype=self.dtype))
        mixed = self._mlp_inputs[circuit].add_(own_residual)
        if stop > start:
            packed = self._packed()[circuit, 2 + start : 2 + stop].flatten(1)
            mixed.view(1, -1).addmm_(self.additive[circuit, reader, start:stop], packed)
        after = None if start == 0 else layer
        self._add_post_norms(circuit, reader, mixed[None], layer + 1, after)
        self._look(circuit, reader, mixed[None], residual)

    def _logits_read(self, residual: Tensor) -> Tensor:
        reader = self.wires.logits_reader()
        new = residual.clone()
        rows = new.unflatten(0, (len(self.wires), self.examples))
        for circuit in range(len(self.wires)):
            mixed = self._mixed(circuit, reader, self.wires.rows, residual, ("final", 0), last=True)
            self._look(circuit, reader, mixed, residual)
            rows[circuit, :, -self.tail :] = mixed[0].to(new.dtype).unflatten(0, (self.examples, self.tail))
        return new

    # Mixing -----------------------------------------------------------------------------------------------------

    def _of(self, circuit: int, rows: Tensor) -> Tensor:
        """One circuit's rows [examples · length, width] of [circuits · examples, length, width]."""
        return rows[circuit * self.examples : (circuit + 1) * self.examples].flatten(0, 1)

    def _last(self, rows: Tensor) -> Tensor:
        """Of [..., examples · length, width] the positions that are read."""
        return rows.unflatten(-2, (self.examples, self.length))[..., -self.tail :, :].flatten(-3, -2)

    def _base(self, role: str, layer: int) -> Tensor:
        """What a reader of any circuit reads where all is replaced [examples · length, width]."""
        shape = (self.examples, self.length, self.model.width)
        return self.values[role, layer].to(self.dtype).expand(shape).flatten(0, 1)

    def _mixed(
        self,
        circuit: int,
        readers: list[int],
        seen: int,
        residual: Tensor,
        base: Place,
        *,
        last: bool = False,
    ) -> Tensor:
        """What readers read in one circuit [readers, rows, width]; with `last` at the positions that are read only.

        In blocks that are not parallel the MLP's row lacks its residual and what comes from its own block.
        """
        packed = self._packed()[circuit, : 2 + seen]
        packed[0], packed[1] = self._of(circuit, residual), self._base(*base)
        if last:
            packed = self._last(packed)
        layer = min(readers[0] // self.wires.slots, self.model.layout.n_layers)
        weights = packed.new_zeros((len(readers), 2 + seen))
        for row, reader in enumerate(readers):
            if reader not in self.pending:
                weights[row, int(self.from_replaced[circuit][reader])] = 1
        weights[:, 2:] = self.additive[circuit, readers, :seen]
        out = self.buffers.get("reads", (len(readers), packed.shape[1], packed.shape[2]), packed, self.dtype)
        torch.mm(weights, packed.flatten(1), out=out.flatten(1))
        self._add_post_norms(circuit, readers, out, layer, None, last=last)
        return out

    def _add_post_norms(
        self,
        circuit: int,
        readers: list[int],
        mixed: Tensor,
        stop: int,
        start: int | None,
        *,
        last: bool = False,
    ) -> None:
        """Add, for attention layers with a post-norm, how replaced heads change what the layer adds."""
        for layer in range(start or 0, stop):
            block, post = self.wires.blocks.get(("z", layer)), self.model.blocks[layer].attn_post_norm
            if block is None or post is None:
                continue
            weights = self.coefficients[circuit, readers, block.rows]
            packed = self._packed()[circuit, self._rows(block)]
            at = self._last if last else lambda rows: rows
            for from_replaced in (False, True):
                touched = [
                    row
                    for row, (reader, any_of) in enumerate(zip(readers, weights.any(1).tolist(), strict=True))
                    if any_of and self.from_replaced[circuit][reader] == from_replaced
                ]
                if not touched:
                    continue
                if from_replaced:
                    before = at(self._base("attn", layer)).to(self.device)
                    after = self._through(post, before)
                else:
                    parts = (self._kept[role, layer].to(self.device) for role in ("attn", "attn_post"))
                    before, after = (at(self._of(circuit, part)) for part in parts)
                sums = (weights[touched] @ at(packed).flatten(1)).view(-1, *before.shape) + before
                mixed[touched] += self._through(post, sums) - after

    def _through(self, norm: nn.Module, rows: Tensor) -> Tensor:
        return norm.forward(rows.to(self.model.dtype)).to(self.device, self.dtype)

    def _look(self, circuit: int, readers: list[int], mixed: Tensor, residual: Tensor) -> None:
        if self.proof is not None and readers:
            self.proof.read(circuit, readers, mixed, residual)

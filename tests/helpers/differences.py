"""Central finite differences of a metric under small changes of one write or of what one reader reads.

An implementation apart from the library's: no Jacobian is written down, no gradient taken but the post-norms'.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from circuittest.measure.batches import Batch
from circuittest.measure.metrics import Targets, last_rows, metric_values
from circuittest.models.hooks import on_input, on_output
from circuittest.models.loaded import LoadedModel, weight_in_out
from circuittest.units import Edge, Unit

EPSILON = 1e-5
Change = Callable[[float], "list[tuple[nn.Module, str, Callable[[Tensor], Tensor | None]]]"]


class Differences:
    """Finite differences on one batch of one model (float64).

    Around the clean run, or around a run in which `share` of the way from the counterfactual's embeddings to the clean
    ones enters the blocks; changes of writes are always those from the clean to the counterfactual run. `others` are
    activations to take in place of the counterfactual run's.
    """

    enter: Tensor | None = None

    def __init__(
        self,
        model: LoadedModel,
        batch: Batch,
        metric: str,
        *,
        share: float = 1.0,
        others: dict[tuple[str, int | None], Tensor] | None = None,
    ) -> None:
        self.model, self.batch, self.metric = model, batch, metric
        self.targets = Targets.of(batch.items, model.device)
        self.clean = self.record(batch.prompts(model.device))
        self.other = others or self.record(batch.counterfactuals(model.device))
        if share != 1.0:
            self.enter = share * self.clean["embed", 0] + (1 - share) * self.other["embed", 0]
        self.at = self.record(batch.prompts(model.device))

    def node(self, unit: Unit) -> Tensor:
        """d metric / d ε [examples] as the unit's own output moves by ε · (counterfactual − clean)."""
        block = self.model.blocks[unit.layer or 0]
        if unit.kind == "embed":
            delta = self._delta("embed", 0)
            return self._central(lambda e: [(block.block, "in", lambda x: x + e * delta)])
        if unit.kind == "mlp":
            delta = self._delta("mlp", unit.layer)
            return self._central(lambda e: [(block.mlp_out, "out", lambda x: x + e * delta)])
        delta = torch.zeros_like(self.clean["z", unit.layer])
        cut = self._cut(unit)
        delta[..., cut] = self._delta("z", unit.layer)[..., cut]
        return self._central(lambda e: [(block.out, "in", lambda x: x + e * delta)])

    def edge(self, edge: Edge) -> Tensor:
        """d metric / d ε [examples] as one reader reads a residual moved by ε · Δ write of the source."""
        write = self.write(edge.source)
        target, model = edge.target, self.model
        if target.kind == "logits":
            return self._central(lambda e: [(model.final_norm, "in", lambda x: x + e * write)])
        block = model.blocks[target.layer or 0]
        if target.kind == "mlp":
            residual = self.at["mlp_read", target.layer]
            norm = block.mlp_norm or nn.Identity()
            return self._central(lambda e: [(block.mlp, "in", lambda x: norm.forward(residual + e * write))])
        residual = self.at["attn_read", target.layer]
        norm = block.attn_norm or nn.Identity()
        module, rows = self._slot(edge)
        within = {"q": block.q_norm, "k": block.k_norm}.get(edge.slot or "")

        def read(e: float) -> Tensor:
            out = module.forward(norm.forward(residual + e * write))
            return out if within is None else within.forward(out)

        def change(e: float) -> list[tuple[nn.Module, str, Callable[[Tensor], Tensor | None]]]:
            def swap(out: Tensor) -> Tensor:
                new = out.clone()
                new[..., rows] = read(e)[..., rows]
                return new

            return [(within or module, "out", swap)]

        return self._central(change)

    def write(self, unit: Unit) -> Tensor:
        """Change of what a unit adds to the residual, to first order where a post-norm follows."""
        if unit.kind == "embed":
            return self._delta("embed", 0)
        block = self.model.blocks[unit.layer or 0]
        if unit.kind == "mlp":
            write, norm, at = (
                self._delta("mlp", unit.layer),
                block.mlp_post_norm,
                self.at["mlp", unit.layer],
            )
        else:
            cut = self._cut(unit)
            write = self._delta("z", unit.layer)[..., cut] @ weight_in_out(block.out)[cut]
            norm, at = block.attn_post_norm, self.at["attn", unit.layer]
        if norm is None:
            return write
        return (norm.forward(at + EPSILON * write) - norm.forward(at - EPSILON * write)) / (2 * EPSILON)

    def _slot(self, edge: Edge) -> tuple[nn.Module, list[int]]:
        """The projection that an edge ends in and the features of its output that belong to the slot."""
        model, index = self.model, edge.target.index or 0
        block, d = model.blocks[edge.target.layer or 0], model.head_dim
        if block.qkv is None:
            module = {"q": block.q, "k": block.k, "v": block.v}[edge.slot or ""]
            return module, list(range(index * d, (index + 1) * d))
        heads, kv = model.layout.n_heads, model.layout.n_kv_heads
        if model.adapter.fused == "stacked":
            place = {"q": index, "k": heads + index, "v": heads + kv + index}[edge.slot or ""]
        else:  # per KV head its query heads, its key, its value
            r = heads // kv
            query = index // r * (r + 2) + index % r
            place = {"q": query, "k": index * (r + 2) + r, "v": index * (r + 2) + r + 1}[edge.slot or ""]
        return block.qkv, list(range(place * d, (place + 1) * d))

    def _cut(self, unit: Unit) -> slice:
        d = self.model.head_dim
        return slice((unit.index or 0) * d, ((unit.index or 0) + 1) * d)

    def _delta(self, role: str, layer: int | None) -> Tensor:
        return self.other[role, layer or 0] - self.clean[role, layer or 0]

    def _central(self, change: Change) -> Tensor:
        return (self._value(change(EPSILON)) - self._value(change(-EPSILON))) / (2 * EPSILON)

    @torch.no_grad()
    def _value(self, changes: list[tuple[nn.Module, str, Callable[[Tensor], Tensor | None]]]) -> Tensor:
        with ExitStack() as stack:
            self._enter(stack)
            for module, side, change in changes:
                stack.enter_context((on_input if side == "in" else on_output)(module, change))
            hidden = self.model.trunk(
                self.batch.prompts(self.model.device), use_cache=False
            ).last_hidden_state
        clean = self.clean["rows", 0]
        rows = last_rows(hidden, self.batch.tail)
        return metric_values(self.model, rows, self.targets, self.metric, clean=clean)

    def _enter(self, stack: ExitStack) -> None:
        if (enter := self.enter) is not None:
            stack.enter_context(on_input(self.model.blocks[0].block, lambda _: enter))

    @torch.no_grad()
    def record(self, ids: Tensor) -> dict[tuple[str, int | None], Tensor]:
        seen: dict[tuple[str, int | None], Tensor] = {}

        def keep(role: str, layer: int) -> Callable[[Tensor], None]:
            def hook(tensor: Tensor) -> None:
                seen[role, layer] = tensor.clone()

            return hook

        with ExitStack() as stack:
            self._enter(stack)
            stack.enter_context(on_input(self.model.blocks[0].block, keep("embed", 0)))
            for layer, block in enumerate(self.model.blocks):
                stack.enter_context(on_input(block.out, keep("z", layer)))
                stack.enter_context(on_output(block.out, keep("attn", layer)))
                stack.enter_context(on_output(block.mlp_out, keep("mlp", layer)))
                stack.enter_context(on_input(block.attn_norm or block.attention, keep("attn_read", layer)))
                stack.enter_context(on_input(block.mlp_norm or block.mlp, keep("mlp_read", layer)))
            hidden = self.model.trunk(ids, use_cache=False).last_hidden_state
            seen["rows", 0] = last_rows(hidden, self.batch.tail)
        return seen

"""Which edges of stacked circuits carry a replaced write: masks, and how the writes they need are packed.

An edge runs from one of `Layout.writers` to one of `Layout.readers`. With the difference D = replaced − own write, what
a reader reads is the run's own residual plus D of its replaced edges, or equally the residual of a run in which all is
replaced minus D of its kept edges. The shorter sum is taken: where next to all is replaced it is exact, while the other
would leave the rounding of what cancels, which norms then blow up. Only units in such a sum need their D at hand. They
come in blocks (the embedding, the heads of a layer, its MLP), packed one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circuittest.errors import UnitError
from circuittest.measure.edges import visible
from circuittest.units import Edge, Layout


@dataclass(frozen=True)
class SourceBlock:
    """Units that write together.

    Attributes
    ----------
    role, layer:
        ("embed", 0), ("z", layer) for the heads of a layer, ("mlp", layer).
    writers:
        Their places in `Layout.writers`.
    rows:
        Their rows among the packed writes.
    """

    role: str
    layer: int
    writers: slice
    rows: slice


class Wires:
    """The edges that are replaced in each of several circuits of one layout.

    Attributes
    ----------
    replaced:
        bool [circuits, writers, readers], in the orders of `Layout.writers` and `Layout.readers`.
    from_replaced:
        bool [circuits, readers]: does the sum of a reader start from the replaced run's residual?
    blocks:
        (role, layer) → the source blocks that any sum needs, in the order of the forward pass.
    readers:
        The readers in which any replaced edge ends.
    """

    def __init__(self, layout: Layout, replaced: Tensor) -> None:
        self.layout = layout
        self.replaced = replaced
        kept = torch.from_numpy(visible(layout)) & ~replaced
        self.from_replaced = replaced.sum(1) > kept.sum(1)
        self._summed = torch.where(self.from_replaced[:, None], kept, replaced)
        self.blocks = {(block.role, block.layer): block for block in self._pack(self._summed.any(2).any(0))}
        self.readers = frozenset(replaced.any(1).any(0).nonzero().flatten().tolist())

    def _pack(self, active: Tensor) -> Iterable[SourceBlock]:
        row = 0
        for role, layer, writers in sources(self.layout):
            if bool(active[writers].any()):
                count = writers.stop - writers.start
                yield SourceBlock(role, layer, writers, slice(row, row + count))
                row += count

    def __len__(self) -> int:
        return len(self.replaced)

    @property
    def rows(self) -> int:
        """How many writes are packed."""
        return max((block.rows.stop for block in self.blocks.values()), default=0)

    @cached_property
    def coefficients(self) -> Tensor:
        """What packed differences are multiplied with for each reader [circuits, readers, packed rows]: 0, 1 or −1."""
        found = torch.zeros((len(self), len(self.layout.readers), self.rows), dtype=torch.float64)
        for block in self.blocks.values():
            found[:, :, block.rows] = self._summed[:, block.writers].transpose(1, 2).double()
        return torch.where(self.from_replaced[:, :, None], -found, found)

    def mlp_reader(self, layer: int) -> list[int]:
        """The MLP of a layer as a reader, where any replaced edge ends in it."""
        reader = (layer + 1) * self.slots - 1
        return [reader] if reader in self.readers else []

    def logits_reader(self) -> list[int]:
        """The logits as a reader, where any replaced edge ends in them."""
        reader = len(self.layout.readers) - 1
        return [reader] if reader in self.readers else []

    @property
    def slots(self) -> int:
        """Readers of one layer: q of every head, k and v of every KV group, the MLP."""
        return self.layout.n_heads + 2 * self.layout.n_kv_heads + 1

    def seen(self, layer: int, *, own_heads: bool = False) -> int:
        """How many packed writes come before the attention of a layer, or before its MLP with `own_heads`."""
        before = [
            block.rows.stop
            for block in self.blocks.values()
            if block.role == "embed"
            or block.layer < layer
            or (own_heads and block.layer == layer and block.role == "z")
        ]
        return max(before, default=0)


def sources(layout: Layout) -> Iterator[tuple[str, int, slice]]:
    """Role, layer and places among the writers of every block of units that write together, in forward order."""
    yield "embed", 0, slice(0, 1)
    for layer in range(layout.n_layers):
        start = 1 + layer * (layout.n_heads + 1)
        yield "z", layer, slice(start, start + layout.n_heads)
        yield "mlp", layer, slice(start + layout.n_heads, start + layout.n_heads + 1)


def masks(layout: Layout, circuits: Sequence[NDArray[np.intp]], *, keep: bool) -> NDArray[np.bool_]:
    """Which edges are replaced [circuits, writers, readers]: all but the circuit's, or with `keep` False just those.

    circuits: per circuit the places of its edges, as `places` gives them.
    """
    sees = visible(layout)
    listed = np.zeros((len(circuits), sees.size), dtype=bool)
    for row, edges in enumerate(circuits):
        listed[row, edges] = True
    listed = listed.reshape(len(circuits), *sees.shape)
    return sees & ~listed if keep else listed


def places(layout: Layout, edges: Iterable[Edge]) -> NDArray[np.intp]:
    """Where edges are in a flattened [writers × readers] matrix. Raises UnitError for one the layout does not have."""
    readers = len(layout.readers)
    found = [writer * readers + reader for writer, reader in (place(layout, edge) for edge in edges)]
    return np.array(found, dtype=np.intp)


def place(layout: Layout, edge: Edge) -> tuple[int, int]:
    """(writer, reader) of an edge."""
    source, target = edge.source, edge.target
    layout.check((source, target))
    if source.kind not in ("embed", "head", "mlp") or not layout.sees(target, source):
        raise UnitError(
            f"the model has no edge {edge}",
            "its target reads before its source writes"
            if source.kind in ("embed", "head", "mlp")
            else "edges start at the embedding, at heads and at MLPs",
            "name an edge of the layout",
        )
    heads, groups = layout.n_heads, layout.n_kv_heads
    writer = 0
    if source.layer is not None:
        writer = 1 + source.layer * (heads + 1) + (heads if source.kind == "mlp" else source.index or 0)
    start = (target.layer or 0) * (heads + 2 * groups + 1)
    within = {
        "q": target.index or 0,
        "k": heads + (target.index or 0),
        "v": heads + groups + (target.index or 0),
        None: heads + 2 * groups,
    }[edge.slot]
    return writer, len(layout.readers) - 1 if target.kind == "logits" else start + within

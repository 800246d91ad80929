"""Path patching: what the model does when some units' counterfactual writes reach some readers directly, and no others.

Wang et al., arXiv 2211.00593; Goldowsky-Dill et al., arXiv 2304.05969. The senders' counterfactual values go through
the residual stream into the receivers' slots and nowhere else; the receivers run on what they then read, and what they
change runs on to the logits in every way there is. That is the knock-out of the edges from senders to receivers
(`circuittest.measure.rewiring`): norms are recomputed, and a receiver behind another receiver reads what that one now
writes.

With ``mlps="recomputed"`` MLPs between senders and receivers pass on what the senders bring, as Wang et al. have it:
receivers read the senders and all MLPs as they are in a run in which the senders are at their counterfactual values,
every other head at its clean one, and MLPs run on what they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuittest.errors import InterventionError, UsageError, did_you_mean
from circuittest.measure.batches import Batch, ItemLike
from circuittest.measure.patching import patch_edges
from circuittest.measure.replaced import Replaced, writes
from circuittest.measure.trace import Place
from circuittest.models.hooks import Change, on_input, on_output
from circuittest.models.loaded import LoadedModel
from circuittest.paths import Paths
from circuittest.tables import OutcomeTable
from circuittest.units import Edge, Layout, Unit

Between = Literal["frozen", "recomputed"]
BETWEEN = ("frozen", "recomputed")


def path_patch(
    model: LoadedModel,
    items: Sequence[ItemLike],
    paths: Sequence[Paths],
    *,
    mlps: str = "frozen",
    batch_size: int | None = None,
) -> OutcomeTable:
    """Outcomes of every example with the senders of each group of paths at their counterfactuals, for its receivers.

    Parameters
    ----------
    paths:
        `Paths.of(layout, senders, receivers)`. The direct effect of a unit is that on the receiver ``logits``.
    mlps:
        "frozen": MLPs between senders and receivers stay at their clean values, so that a path is one edge.
        "recomputed": they pass on what the senders bring. MLPs behind a receiver run normally in both.
    batch_size:
        Most examples in a batch; by default it follows from shapes.

    Returns
    -------
    OutcomeTable
        Rows in the order of `paths`, named by the edges that carry something else; columns in the order of `items`.

    Raises
    ------
    UsageError
        For no paths or examples, an unknown choice, and counterfactuals of another length.
    UnsupportedModel
        For quantised models.
    InterventionError
        Where a patch is not proven at its site; the message names the slot.
    """
    if mlps not in BETWEEN:
        raise UsageError(f"unknown choice {mlps!r} for MLPs between", "", did_you_mean(str(mlps), BETWEEN))
    if not paths:
        raise UsageError("no paths were given", "", "pass at least one")
    if mlps == "frozen":
        replaced = Replaced(model, "counterfactual", items, ())
        rows = [path.edges for path in paths]
        table = patch_edges(model, items, rows, replaced, keep=False, batch_size=batch_size)
        return OutcomeTable(table.sets, table.columns, table.examples, {**table.choices, "mlps": mlps})
    return _through(model, items, paths, batch_size)


def carriers(layout: Layout, path: Paths, mlps: str) -> tuple[Edge, ...]:
    """The edges that carry something else: from the senders, and from MLPs that pass on what they bring."""
    if mlps == "frozen":
        return path.edges
    between = [
        mlp for mlp in layout.units(("mlp",)) if any(layout.sees(mlp, sender) for sender in path.senders)
    ]
    found = {
        Edge(mlp, *reader) for mlp in between for reader in path.receivers if layout.sees(reader[0], mlp)
    }
    return tuple(sorted(found | set(path.edges)))


def _through(
    model: LoadedModel, items: Sequence[ItemLike], paths: Sequence[Paths], batch_size: int | None
) -> OutcomeTable:
    """The table where MLPs between pass things on: one run for each group of senders."""
    named = tuple(carriers(model.layout, path, "recomputed") for path in paths)
    columns: dict[str, np.ndarray] = {}
    for senders in dict.fromkeys(path.senders for path in paths):
        rows = [row for row, path in enumerate(paths) if path.senders == senders]
        reached = Reached(model, senders, items)
        table = patch_edges(
            model, items, [named[row] for row in rows], reached, keep=False, batch_size=batch_size
        )
        for name, values in table.columns.items():
            columns.setdefault(name, np.full((len(paths), len(items)), np.nan))[rows] = values
    return OutcomeTable(named, columns, table.examples, {**table.choices, "mlps": "recomputed"})


class Reached(Replaced):
    """What every unit writes where senders are at their counterfactuals, other heads are clean, and MLPs run."""

    def __init__(self, model: LoadedModel, senders: Sequence[Unit], items: Sequence[ItemLike]) -> None:
        super().__init__(model, "counterfactual", items, ())
        self.senders = frozenset(senders)

    @torch.no_grad()
    def of(self, batch: Batch) -> Mapping[Place, Tensor]:
        model = self.model
        ids = batch.prompts(model.device)
        clean, other = writes(model, ids), writes(model, batch.counterfactuals(model.device))
        given: dict[Place, Tensor] = {}
        if Unit("embed") in self.senders:
            given["embed", 0] = other["embed", 0]
        for layer in range(model.layout.n_layers):
            given["z", layer] = self._heads(layer, clean["z", layer], other["z", layer])
            if Unit("mlp", layer) in self.senders:
                given["mlp", layer] = other["mlp", layer]
        with ExitStack() as stack:
            for (role, layer), value in given.items():
                block = model.blocks[layer]
                module = {"embed": block.block, "z": block.out, "mlp": block.mlp_out}[role]
                side = on_output if role == "mlp" else on_input
                stack.enter_context(side(module, _give(value)))
            found = writes(model, ids, residuals=True)
        for (role, layer), value in given.items():
            if not torch.equal(found[role, layer], value):
                raise InterventionError(
                    f"{role!r} of layer L{layer} did not take its value",
                    "what it passed on is not what it was given",
                    "do not use these results; check the adapter, and hooks or patches that others left on the model",
                )
        return found

    def _heads(self, layer: int, clean: Tensor, other: Tensor) -> Tensor:
        """Clean values [batch, length, heads · size], those of senders counterfactual."""
        heads = self.model.layout.n_heads
        sends = [Unit("head", layer, head) in self.senders for head in range(heads)]
        chosen = torch.tensor(sends, device=clean.device).repeat_interleave(clean.shape[-1] // heads)
        return torch.where(chosen, other, clean)


def _give(value: Tensor) -> Change:
    return lambda _: value.clone()  # into which the model may write

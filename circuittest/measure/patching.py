"""Patching: what the model does when only a circuit is left to it, or when a circuit alone is knocked out.

Edges are replaced exactly (`circuittest.measure.rewiring`); units by `ablate`, of which this is the complement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circuittest.circuit import Circuit
from circuittest.errors import CircuitError, UnsupportedModel, UsageError, did_you_mean
from circuittest.measure import values as ablation_values
from circuittest.measure.ablation import ablate
from circuittest.measure.batches import Batch, ItemLike, describe, plan, precision
from circuittest.measure.buffers import Buffers
from circuittest.measure.metrics import Targets, last_rows, outcomes, undefined
from circuittest.measure.replaced import VALUES, Replaced, writes
from circuittest.measure.rewiring import Rewired
from circuittest.measure.rewiring_proof import Proof
from circuittest.measure.slots import Slots, slots_of
from circuittest.measure.suffix import clean_run, resume, shortcuts
from circuittest.measure.trace import Place
from circuittest.measure.wires import Wires, masks, places
from circuittest.models.loaded import LoadedModel
from circuittest.progress import advance, following
from circuittest.tables import Member, OutcomeTable
from circuittest.units import Edge, Unit

#: Tokens of one forward of stacked circuits, and bytes of the buffers that it mixes from.
PASS_TOKENS = 1024
PASS_BYTES = 256 << 20
LEVELS = ("edges", "units")
Members = tuple[Member, ...]


def patch(
    model: LoadedModel,
    items: Sequence[ItemLike],
    circuits: Sequence[Circuit | Iterable[Member]],
    *,
    keep: bool,
    level: str = "edges",
    value: str = "counterfactual",
    calibration: Sequence[ItemLike] = (),
    batch_size: int | None = None,
) -> OutcomeTable:
    """Outcomes of every example where every circuit is all that is left, or is what is missing.

    Parameters
    ----------
    circuits:
        Circuits, or collections of edges (of units at the level of units).
    keep:
        True: everything outside the circuit is replaced. False: the circuit is replaced, and nothing else.
    level:
        "edges": what an edge carries is replaced, for its reader alone. "units": what a unit writes is replaced for
        all; the units outside a circuit are the heads and MLPs that are none of its parts, never the embedding.
    value:
        By what: "counterfactual", the write on the example's counterfactual prompt; "zero"; "mean", one vector per
        unit over all positions of the calibration examples. Units may have any value of `ablate`.
    calibration:
        Held-out examples, of which means are taken.
    batch_size:
        Most examples in a batch; by default it follows from shapes.

    Returns
    -------
    OutcomeTable
        Rows in the order of `circuits`, named by their edges (units); columns in the order of `items`. With `keep`
        the empty circuit is the model of which nothing is left.

    Raises
    ------
    UsageError
        For no circuits or examples, unknown choices, counterfactuals of another length, means without calibration.
    CircuitError
        For units in a circuit of edges, and edges in one of units.
    UnitError
        For members that the model does not have.
    UnsupportedModel
        For edges of quantised models, whose projections cannot be taken apart by head.
    InterventionError
        Where a patch is not proven at its site; the message names the slot.
    """
    values = VALUES if level == "edges" else ablation_values.VALUES
    for name, given, known in (("level", level, LEVELS), ("replaced value", value, values)):
        if given not in known:
            raise UsageError(f"unknown {name} {given!r}", "", did_you_mean(str(given), known))
    if not circuits:
        raise UsageError("no circuits were given", "", "pass at least one")
    named = tuple(_members(circuit, level) for circuit in circuits)
    choices = {"patched": level, "keep": keep, "value": value}
    if level == "units":
        sets = [_replaced_units(model, units, keep) for units in named]
        table = ablate(model, items, sets, value=value, calibration=calibration, batch_size=batch_size)
        return OutcomeTable(named, table.columns, table.examples, {**table.choices, **choices})
    replaced = Replaced(model, value, items, calibration, batch_size)
    table = patch_edges(model, items, named, replaced, keep=keep, batch_size=batch_size)
    return OutcomeTable(named, table.columns, table.examples, {**choices, **table.choices})


def patch_edges(
    model: LoadedModel,
    items: Sequence[ItemLike],
    circuits: Sequence[Members],
    replaced: Replaced,
    *,
    keep: bool,
    batch_size: int | None = None,
) -> OutcomeTable:
    """Outcomes where each circuit of edges is kept or knocked out, by any replaced values. Raises as `patch`."""
    if model.quantised:
        raise UnsupportedModel(
            f"{model.name} is quantised",
            "what an edge carries is computed with the rows of a projection that belong to one head",
            "patch units, or the unquantised model",
        )
    todo = list(dict.fromkeys(circuits))  # equal circuits run once
    where = [places(model.layout, (edge for edge in edges if isinstance(edge, Edge))) for edges in todo]
    batches = plan(items, model, batch_size=batch_size)
    runs = _Runs(model, where, keep, len(items))
    with model.measuring(), torch.no_grad(), following("patching", len(items) * len(todo)):
        for number, batch in enumerate(batches):
            runs.batch(batch, replaced, prove=number == 0)
    names = sorted(set(runs.columns) - set(undefined(items)))
    order = [todo.index(edges) for edges in circuits]
    columns = {name: runs.columns[name][order] for name in names}
    choices = {"dtype": str(model.dtype).removeprefix("torch."), "batches": describe(batches)}
    return OutcomeTable(tuple(circuits), columns, tuple(item.index for item in items), choices)


class _Runs:
    """The outcomes of all circuits, filled pass by pass."""

    def __init__(
        self, model: LoadedModel, todo: Sequence[NDArray[np.intp]], keep: bool, examples: int
    ) -> None:
        self.model, self.todo, self.keep, self.examples = model, todo, keep, examples
        self.columns: dict[str, NDArray[np.float64]] = {}
        self.slots: list[tuple[Slots, ...]] = [
            slots_of(model, layer) for layer in range(model.layout.n_layers)
        ]
        self.buffers = Buffers()
        # Circuits whose first replaced edges end in the same layer run together: other layers are then left alone.
        self.order = sorted(range(len(todo)), key=lambda row: self._first(todo[row]))

    def _first(self, edges: NDArray[np.intp]) -> int:
        """The first layer in which knocked-out edges end; the number of layers for none."""
        layout = self.model.layout
        if self.keep or not len(edges):
            return 0 if self.keep else layout.n_layers
        slots = layout.n_heads + 2 * layout.n_kv_heads + 1
        return int((edges % len(layout.readers)).min()) // slots

    def _start(self, rows: Iterable[int]) -> int:
        """The layer before which a pass of some circuits replaces nothing; at most the last."""
        return min(*(self._first(self.todo[row]) for row in rows), self.model.layout.n_layers - 1)

    def batch(self, batch: Batch, replaced: Replaced, *, prove: bool) -> None:
        """Run every circuit on one batch, a few examples and circuits at a time."""
        tokens = _tokens(self.model)
        step = max(1, tokens // batch.length)
        for first in range(0, len(batch.items), step):
            part = batch.part(first, first + step)
            values = replaced.of(part)
            together = max(1, tokens // (len(part.items) * batch.length))
            groups = [self.order[i : i + together] for i in range(0, len(self.order), together)]
            clean: Mapping[Place, Tensor] = {}
            if any(self._start(group) for group in groups):
                clean = writes(self.model, part.prompts(self.model.device), residuals=True)
            for group in groups:
                self._run(part, values, clean, group, prove and first == 0)
                advance(len(part.items) * len(group))

    @cached_property
    def tuples(self) -> bool:
        """Do the blocks return tuples? Asked where passes resume, which is tried first."""
        ids = torch.zeros((1, 2), dtype=torch.long, device=self.model.device)
        shortcuts(self.model, ids)
        return clean_run(self.model, ids, ()).tuples

    def _run(
        self,
        batch: Batch,
        values: Mapping[Place, Tensor],
        clean: Mapping[Place, Tensor],
        rows: list[int],
        prove: bool,
    ) -> None:
        edges = [self.todo[row] for row in rows]
        wires = Wires(self.model.layout, torch.from_numpy(masks(self.model.layout, edges, keep=self.keep)))
        ids = batch.prompts(self.model.device)
        proof = Proof(self.model, wires, values, len(ids)) if prove else None
        start = self._start(rows)
        shape = (len(ids), batch.length, batch.tail)
        rewired = Rewired(self.model, self.slots, wires, values, *shape, self.buffers, proof, start, clean)
        residual = clean["attn_base", start].repeat(len(rows), 1, 1) if start else None
        with resume(self.model, start, residual, tuples=start > 0 and self.tuples), rewired.applied():
            stacked = ids.repeat(len(rows), 1)
            hidden = last_rows(self.model.trunk(stacked, use_cache=False).last_hidden_state, batch.tail)
        if proof is not None:
            proof.check()
        found = outcomes(self.model, hidden, Targets.of(batch.items, self.model.device).repeat(len(rows)))
        for name, column in found.items():
            table = self.columns.setdefault(name, np.full((len(self.todo), self.examples), np.nan))
            table[np.ix_(rows, list(batch.rows))] = column.cpu().numpy().reshape(len(rows), -1)


def _tokens(model: LoadedModel) -> int:
    """Tokens of one pass: as many as the buffers have room for, by shapes alone."""
    layout = model.layout
    vectors = 1 + len(layout.writers) + layout.n_heads + 2 * layout.n_kv_heads + 1
    return min(PASS_TOKENS, PASS_BYTES // (vectors * model.width * precision(model.dtype).itemsize))


def _members(circuit: Circuit | Iterable[Member], level: str) -> Members:
    """The members of a circuit in canonical order, all of the kind that the level asks for."""
    given = list(circuit)
    wanted, other = (Edge, "units") if level == "edges" else (Unit, "edges")
    for member in given:
        if not isinstance(member, wanted):
            raise CircuitError(
                f"{member} is no member of a circuit of {level}",
                f"circuits of {level} are patched here",
                f"leave it out, or patch at level {other!r}",
            )
    return tuple(sorted(set(given), key=lambda member: member.order))


def _replaced_units(model: LoadedModel, units: Members, keep: bool) -> tuple[Unit, ...]:
    chosen = tuple(unit for unit in units if isinstance(unit, Unit))
    if not keep:
        return chosen
    model.layout.check(chosen)
    left = set(model.layout.expand(chosen))
    for unit in left:
        if unit.kind not in ("embed", "head", "mlp"):
            raise UsageError(
                f"{unit} cannot be kept",
                "what is replaced outside a circuit are whole heads and MLPs",
                "keep heads, KV groups, attention layers and MLPs",
            )
    return tuple(unit for unit in model.layout.units(("head", "mlp")) if unit not in left)

"""Ablation: what the model does on every example when sets of units are removed, or get another value.

Sets are stacked along the batch dimension and grouped by their lowest layer; only the blocks from there on are
rerun, from the clean run's residual. Every set's intervention is proven on its first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circuittest.errors import InterventionError, UsageError
from circuittest.measure.batches import Batch, ItemLike, describe, forced, plan
from circuittest.measure.interventions import Intervention, Parts, check_positions, first_position
from circuittest.measure.metrics import Targets, last_rows, outcomes, undefined
from circuittest.measure.proof import Ledger, Proof
from circuittest.measure.sites import Values, sites
from circuittest.measure.suffix import (
    CleanRun,
    answer_position_only,
    clean_run,
    resume,
    same_heads,
    shortcuts,
)
from circuittest.measure.values import CALIBRATED, Source, check_value, source, zeros
from circuittest.models.loaded import LoadedModel
from circuittest.progress import advance, following
from circuittest.tables import OutcomeTable
from circuittest.units import Unit

#: Tokens of one forward of stacked sets; more brings nothing on a CPU.
PASS_TOKENS = 1024
_KINDS = ("head", "kv", "attn", "mlp", "expert", "neuron")


def ablate(
    model: LoadedModel,
    items: Sequence[ItemLike],
    sets: Sequence[Iterable[Unit]],
    *,
    value: str = "zero",
    positions: str = "all",
    calibration: Sequence[ItemLike] = (),
    batch_size: int | None = None,
    seed: int = 0,
) -> OutcomeTable:
    """Outcomes of every example under the ablation of every set.

    Parameters
    ----------
    sets:
        Heads, KV groups, attention layers, MLPs, their neurons and experts, in any mixture; the empty set is the
        untouched model.
    value:
        What the units are replaced by: "zero"; "mean", one vector per unit, over the calibration examples and the
        positions that are replaced, every token counting once; "mean-positions", a mean per position over the
        calibration examples of the same length; "counterfactual", the values on the example's own counterfactual
        prompt; "resample", those on a calibration example of the same length, drawn at random.
    positions:
        Where: "all"; "not-first", all but the first, which attention uses as a sink; "answer", the last alone.
    calibration:
        Held-out examples, for means and resampling.
    batch_size:
        Most examples in a batch; by default it follows from shapes.
    seed:
        Of the draws of "resample".

    Returns
    -------
    OutcomeTable
        Rows in the order of `sets`, columns in the order of `items`. "candidates" and "logit_diff" are there
        only when every item has foils. ``choices["unchanged"]`` lists units that had these values anyway, in the
        first batch (in the last layer: at the last position, where alone it is read).

    Raises
    ------
    UsageError
        For no sets or examples, an unknown value or positions, units of kinds that cannot be ablated, calibration
        examples that are missing, of no fitting length or among the items, and counterfactuals of another length.
    UnitError
        For units that the model does not have.
    InterventionError
        Where a unit's ablation is not proven at its site; the message names the unit.
    """
    check_value(value, items, calibration)
    check_positions(positions, items)
    check_forced(value, positions, [*items, *calibration] if value in CALIBRATED else items)
    if not sets:
        raise UsageError("no sets to ablate were given", "", "pass at least one, e.g. the empty set ()")
    named = tuple(tuple(sorted(set(units))) for units in sets)
    parts = [_parts(model, units) for units in named]
    todo = sorted(dict.fromkeys(parts), key=_lowest(model))  # equal interventions run once
    batches = plan(items, model, batch_size=batch_size)
    found = {one: _Row(len(items)) for one in todo}
    with model.measuring(), torch.no_grad(), following("ablation", len(items) * len(todo)):
        replacing = source(
            model,
            value,
            sites(part for one in todo for part in one),
            items,
            calibration=calibration,
            start=lambda length: first_position(positions, length),
            batch_size=batch_size,
            seed=seed,
        )
        exact = shortcuts(model, batches[0].prompts(model.device)[:1])
        run = _Run(model, todo, replacing, positions, found, exact.heads)
        for number, batch in enumerate(batches):
            with answer_position_only(model) if exact.cut and batch.tail == 1 else nullcontext():
                run.batch(batch, prove=number == 0)
    measures = sorted(set.intersection(*(set(row.values) for row in found.values())))
    measures = [name for name in measures if name not in undefined(items)]
    columns = {name: np.stack([found[one].values[name] for one in parts]) for name in measures}
    choices = {
        "ablation": value,
        "positions": positions,
        "dtype": str(model.dtype).removeprefix("torch."),
        "batches": describe(batches),
        **replacing.choices,
        "unchanged": [str(unit) for unit in sorted(run.ledger.unchanged)],
    }
    return OutcomeTable(named, columns, tuple(item.index for item in items), choices)


def canary(model: LoadedModel, item: ItemLike, *, layer: int | None = None) -> tuple[float, float]:
    """Ablate all heads of one layer (the middle one by default) and see the residual move.

    Returns
    -------
    moved, noise:
        Largest change of the trunk's output at the last position, and the same for a mere re-run.

    Raises
    ------
    InterventionError
        Where the change is not above the noise.
    """
    layer = model.layout.n_layers // 2 if layer is None else layer
    unit = Unit("attn", layer)
    parts = _parts(model, (unit,))
    with model.measuring(), torch.no_grad():
        ids = torch.tensor([item.prompt_ids], device=model.device)
        clean = clean_run(model, ids, ()).rows
        noise = float((clean_run(model, ids, ()).rows - clean).abs().max())
        zero = Intervention(model, [parts], zeros(model, sites(parts)), (1, ids.shape[1]))
        with zero.applied():
            rows = last_rows(model.trunk(ids, use_cache=False).last_hidden_state)
    moved = float((rows - clean).abs().max())
    floor = max(10 * noise, 4 * torch.finfo(model.dtype).eps * float(clean.abs().max()))
    if not moved > floor:
        raise InterventionError(
            f"ablating {unit} moved nothing",
            f"the output at the last position changed by {moved:.3g}, the noise is {floor:.3g}",
            "check the adapter's path to the attention's output projection",
        )
    return moved, noise


class _Row:
    """The outcomes of one set, filled batch by batch."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self.values: dict[str, NDArray[np.float64]] = {}

    def put(self, rows: Sequence[int], found: dict[str, Tensor]) -> None:
        for name, values in found.items():
            column = self.values.setdefault(name, np.full(self.examples, np.nan))
            column[list(rows)] = values.numpy()


@dataclass
class _Run:
    """The passes of one ablation."""

    model: LoadedModel
    todo: Sequence[Parts]
    source: Source
    positions: str
    found: dict[Parts, _Row]
    same_heads: bool = False
    ledger: Ledger = field(default_factory=Ledger)

    def batch(self, batch: Batch, *, prove: bool) -> None:
        """Every set on one batch, as many in one pass as `PASS_TOKENS` allows."""
        model, lowest = self.model, _lowest(self.model)
        ids, targets = batch.prompts(model.device), Targets.of(batch.items, model.device)
        active = [one for one in self.todo if one]
        per_pass = max(1, PASS_TOKENS // ids.numel())
        groups = [active[start : start + per_pass] for start in range(0, len(active), per_pass)]
        starts = [min(map(lowest, group)) for group in groups]
        clean: CleanRun | None = None
        if any(starts) or () in self.found:
            clean = clean_run(model, ids, starts, batch.tail)
        if () in self.found and clean is not None:
            self.found[()].put(batch.rows, _on_cpu(outcomes(model, clean.rows, targets)))
            advance(len(ids))
        values = self.source.of(batch) if active else Values({})
        for group, start in zip(groups, starts, strict=True):
            rows = self._ablated_rows(ids, group, start, clean, values, tail=batch.tail, prove=prove)
            results = outcomes(model, rows, targets.repeat(len(group)))
            for position, one in enumerate(group):
                part = slice(position * len(ids), (position + 1) * len(ids))
                own = {name: column[part] for name, column in results.items()}
                self.found[one].put(batch.rows, _on_cpu(own))
            advance(len(group) * len(ids))

    def _ablated_rows(
        self,
        ids: Tensor,
        group: Sequence[Parts],
        start: int,
        clean: CleanRun | None,
        values: Values,
        *,
        tail: int,
        prove: bool,
    ) -> Tensor:
        """The trunk's last rows [sets · examples, width] ([…, tail, width]) with each set ablated in its own rows."""
        model = self.model
        residual = clean.residuals[start].repeat(len(group), 1, 1) if clean is not None and start else None
        intervention = Intervention(model, group, values, (len(ids), ids.shape[1]), self.positions)
        proof = Proof(intervention, self.ledger)
        stacked = ids.repeat(len(group), 1)
        with ExitStack() as stack:
            stack.enter_context(resume(model, start, residual, tuples=clean is not None and clean.tuples))
            if clean is not None and self.same_heads:
                stack.enter_context(same_heads(model, start, clean.heads[start].repeat(len(group), 1, 1)))
            if not prove:
                with intervention.applied():
                    return last_rows(model.trunk(stacked, use_cache=False).last_hidden_state, tail)
            with proof.watch_before(), intervention.applied(), proof.watch_after():
                rows = last_rows(model.trunk(stacked, use_cache=False).last_hidden_state, tail)
        proof.check()
        return rows


def check_forced(value: str, positions: str, items: Sequence[ItemLike]) -> None:
    """Raise UsageError for what is not defined where answers of several tokens follow the prompt."""
    choices = f"value {value!r}" if value in ("mean-positions", "resample") else ""
    choices = choices or (f"positions {positions!r}" if positions == "answer" else "")
    if choices and any(map(forced, items)):
        raise UsageError(
            f"ablation with {choices} for answers of several tokens",
            "positions after the prompt hold the answer itself",
            "use the value 'zero', 'mean' or 'counterfactual' at positions 'all' or 'not-first', or score first tokens",
        )


def _parts(model: LoadedModel, units: Iterable[Unit]) -> Parts:
    """What the ablation of some units touches (heads, MLPs, neurons, experts), in canonical order.

    Neurons and experts of an MLP that is replaced as a whole add nothing to that.
    """
    for unit in units:
        if unit.kind not in _KINDS:
            raise UsageError(
                f"{unit} cannot be ablated",
                f"units of kind {unit.kind!r} have no ablation",
                "ablate heads, KV groups, attention layers, MLPs, neurons and experts",
            )
    model.layout.check(units)
    parts = model.layout.expand(units)
    whole = {part.layer for part in parts if part.kind == "mlp"}
    return tuple(part for part in parts if part.kind not in ("neuron", "expert") or part.layer not in whole)


def _lowest(model: LoadedModel) -> Callable[[Parts], int]:
    """A function from parts to the lowest layer they touch; the number of layers for none."""
    return lambda parts: min((part.layer or 0 for part in parts), default=model.layout.n_layers)


def _on_cpu(found: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.cpu() for name, values in found.items()}

"""Proof of intervention for experts: what was called with which weights, and what came out.

The module ran on the weights that it would have had, but exactly zero for the experts of the set at the positions
asked for; and its output is the sum of what the other chosen experts add by themselves plus the values asked for,
expert by expert, within the noise of the dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from circuittest.errors import InterventionError
from circuittest.measure.batches import precision
from circuittest.measure.interventions import Intervention
from circuittest.measure.sites import Site
from circuittest.models.experts import Routed
from circuittest.models.hooks import hooks
from circuittest.units import Unit

DO = "do not use these results; check the adapter, and hooks or patches that others left on the model"


class ExpertProof:
    """Watches the experts of one layer in one pass of an `Intervention` and judges them afterwards."""

    def __init__(self, intervention: Intervention, site: Site) -> None:
        self.intervention, self.site = intervention, site
        self.module = site.module(intervention.model)
        self.before: Routed | None = None
        self.after: Routed | None = None
        self.output = torch.zeros(0)

    @contextmanager
    def watch_before(self) -> Iterator[None]:
        """What the experts would have been called with; to be entered before the intervention."""

        def look(_: Any, args: tuple[Any, ...]) -> None:
            self.before = Routed.of(args, self.intervention.rows, self.site.layer)

        with hooks(self.module.register_forward_pre_hook(look)):
            yield

    @contextmanager
    def watch_after(self) -> Iterator[None]:
        """What they were called with, and what they gave; to be entered after the intervention."""

        def look(_: Any, args: tuple[Any, ...], output: Tensor) -> None:
            self.after = Routed.of(args, self.intervention.rows, self.site.layer)
            self.output = output.view_as(self.after.states)

        with hooks(self.module.register_forward_hook(look)):
            yield

    def check(self) -> set[Unit]:
        """The units whose values were already those asked for. Raises InterventionError, naming a unit."""
        if self.before is None or self.after is None:
            raise InterventionError(
                f"nothing was seen of the experts of layer L{self.site.layer} while they were ablated",
                "their module did not run",
                DO,
            )
        site, sets = self.site, len(self.intervention.sets)
        rows, units = named_units(self.intervention, site)
        seen = self.before.chosen.shape[1]
        start = first_replaced(self.intervention, seen)
        asked = torch.zeros((sets, 1, seen, site.units(self.intervention.model)), dtype=torch.bool)
        asked[rows.cpu(), :, start:, units.cpu()] = True
        removed = (
            asked.to(self.before.chosen.device).expand(-1, self.intervention.examples, -1, -1).flatten(0, 1)
        )
        self._check_call(removed)
        self._check_output(removed)
        weights = self.before.dense(asked.shape[3])
        named = zip(rows.tolist(), units.tolist(), strict=True)
        return {site.unit(unit) for row, unit in named if self._same(row, unit, start, weights)}

    def _check_call(self, removed: Tensor) -> None:
        before, after = self._calls()
        first = self.site.unit(int(named_units(self.intervention, self.site)[1][0]))
        if not (torch.equal(before.states, after.states) and torch.equal(before.chosen, after.chosen)):
            raise InterventionError(
                f"ablating {first} changed what the experts read, or which were chosen", "", DO
            )
        taken = removed.gather(2, before.chosen)
        expected = torch.where(taken, torch.zeros_like(before.weights), before.weights)
        wrong = (after.weights != expected).nonzero().tolist()
        if wrong:
            at = tuple(wrong[0])
            unit = self.site.unit(int(before.chosen[at]))
            if bool(taken[at]):
                raise InterventionError(f"{unit} was not ablated", "its weight is not zero", DO)
            raise InterventionError(f"ablating {first} changed {unit}, which is not in the set", "", DO)

    def _check_output(self, removed: Tensor) -> None:
        """Is the output the sum of what the kept experts add, plus the values of the removed ones?"""
        before, _ = self._calls()
        dtype = precision(self.intervention.model.dtype)
        kept = before.singles(self.module).to(dtype)
        kept = kept * ~removed.gather(2, before.chosen).unsqueeze(3)
        values = self.intervention.values
        if self.site in values.routed:
            other = values.routed[self.site].repeat(len(self.intervention.sets))
            new = other.singles(self.module).to(dtype) * removed.gather(2, other.chosen).unsqueeze(3)
        else:
            value = values.at[self.site][:, -removed.shape[1] :].to(dtype)
            number = removed.shape[2]
            new = torch.zeros_like(kept[:, :, :1])
            size = torch.zeros_like(new)
            for expert in range(number):
                one = value[:, :, min(expert, value.shape[2] - 1)] * removed[:, :, expert, None]
                new[:, :, 0] += one
                size[:, :, 0] += one.abs()
        sizes = size if self.site not in values.routed else new.abs()
        expected = kept.sum(2) + new.sum(2)
        scale = (kept.abs().sum(2) + sizes.sum(2)).amax(2)
        error = (self.output.to(dtype) - expected).abs().amax(2)
        fine = error <= 16 * torch.finfo(self.intervention.model.dtype).eps * scale
        if not bool(fine.all()):
            row = int((~fine).any(1).nonzero()[0]) // self.intervention.examples
            rows, units = named_units(self.intervention, self.site)
            mine = units[rows == row].tolist()
            who = (
                f"{self.site.unit(mine[0])} was not ablated" if mine else "a set without experts changed them"
            )
            raise InterventionError(who, "what its mixture gives is not what was asked for", DO)

    def _same(self, row: int, unit: int, start: int, weights: Tensor) -> bool:
        """Had an expert of a set this value already, wherever it was replaced? weights: [rows, positions, experts]."""
        before, _ = self._calls()
        each = self.intervention.examples
        mine = slice(row * each, (row + 1) * each)
        weight = weights[mine, start:, unit]
        values = self.intervention.values
        if self.site not in values.routed:
            value = values.at[self.site]
            value = value[:, -before.chosen.shape[1] :, min(unit, value.shape[2] - 1)]
            value = value[:, start:] if value.shape[1] > 1 else value
            return not bool(weight.any()) and not bool(value.any())
        other = values.routed[self.site]
        states = (before.states[mine, start:] == other.states[:, start:]).all(2)
        return bool(
            ((weight == other.dense(weights.shape[2])[:, start:, unit]) & (states | (weight == 0))).all()
        )

    def _calls(self) -> tuple[Routed, Routed]:
        if self.before is None or self.after is None:
            raise InterventionError("nothing was seen of the experts")
        return self.before, self.after


def named_units(intervention: Intervention, site: Site) -> tuple[Tensor, Tensor]:
    """The set and the index of every unit of a site that is to be replaced, from the sets themselves."""
    found = [
        (row, part.index or 0)
        for row, parts in enumerate(intervention.sets)
        for part in parts
        if Site.of(part) == site
    ]
    table = torch.tensor(found, device=intervention.masks[site].device)
    return table[:, 0], table[:, 1]


def first_replaced(intervention: Intervention, seen: int) -> int:
    """The first replaced position among the last `seen` of each prompt."""
    length = intervention.length
    replaced = {"all": length, "not-first": length - 1, "answer": 1}[intervention.positions]
    return max(0, seen - replaced)

"""Measuring controls a look at a time: where the threshold is known first, stop as soon as it is decided.

The looks are fixed by the number of control sets alone (`circuittest.stats.sequential`), and each look is one call of
the lab for each of its tables, so that neither what else was measured nor how fast the machine is moves a number.

Claims whose verdict rests on controls stop early: necessity, graded necessity, closure, selective ablation, and a
transfer of the first two. Elsewhere there is nothing to stop. The controls of sufficiency, specificity and
concentration stand beside an estimate that they do not move; independence, equivalence and completeness have none. The
references of minimality are controls, but a unit above 0.9 of them is shown to be so by 36 at the least, and by 57 at
the tenth of the error probability that an early look may spend, so that nearly all of the usual hundred are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from circuittest.budget import affordable
from circuittest.controls import Controls
from circuittest.stats import Look, looks
from circuittest.stats.inference import Floats, Inference
from circuittest.units import Unit

Sets = tuple[tuple[Unit, ...], ...]
#: Outcomes [R × n] under the control sets: one table for every measure, task or condition that a claim needs.
Tables = tuple[Floats, ...]


class Spendable(Inference, Protocol):
    """An inference that can be one of several looks."""

    def spending(self, share: float) -> Self:
        """The same at this share of the error probability (`circuittest.stats.inference.DrawnInference.spending`)."""


AnyInference = TypeVar("AnyInference", bound=Spendable)


@dataclass(frozen=True)
class Looked(Generic[AnyInference]):
    """What was measured by the time measuring stopped.

    Attributes
    ----------
    drawn:
        The control sets measured, in the order of the rows. `enumerated` says whether these are all matched sets.
    tables:
        Their outcomes, each [R × n].
    inference:
        At the share of the error probability that the last look taken may spend.
    share:
        That share; 1 without a threshold to decide.
    details:
        ``{"budget": …}`` for the record, or nothing where there was a single look.
    hints:
        Where the budget of forwards ended the looks.
    planned:
        How many control sets there would have been.
    """

    drawn: Controls
    tables: Tables
    inference: AnyInference
    share: float
    details: dict[str, Any]
    hints: tuple[str, ...] = ()
    planned: int = 0

    @property
    def sets(self) -> Sets:
        """The control sets measured."""
        return self.drawn.sets

    @property
    def table(self) -> Floats:
        """The first table, for claims that have no other."""
        return self.tables[0]

    @property
    def complete(self) -> bool:
        """Whether all planned sets were measured."""
        return len(self.sets) == self.planned


def measure_controls(
    drawn: Controls,
    outcomes: Callable[[Sets], Tables],
    infer: Callable[[Tables, Controls], AnyInference],
    *,
    decide: float | None,
    forwards: tuple[int, int],
    confidence: float = 0.95,
    seed: int = 0,
    refutable: bool = True,
    blocked: Callable[[Tables], bool] = lambda tables: False,
) -> Looked[AnyInference]:
    """Measure control sets until what is asked is decided, or all of them.

    Parameters
    ----------
    drawn:
        The controls of the claim; all matched sets, where they were enumerated, are then taken in random order.
    outcomes:
        Per-example outcomes of some sets; called once a look.
    infer:
        The inference from the rows so far and the sets they belong to.
    decide:
        The threshold, or None to measure everything in one call.
    forwards:
        How many the claim needs beside its controls, and for each control set.
    confidence:
        Of the interval that must leave the threshold out.
    refutable:
        False for an estimate that is a lower bound: its interval's upper end decides nothing.
    blocked:
        Whether a gate fails on the rows so far; then measuring goes on, whatever the interval.
    """
    if decide is None:
        tables = outcomes(drawn.sets)
        return Looked(drawn, tables, infer(tables, drawn), 1.0, {}, planned=len(drawn.sets))
    sets = drawn.sets
    if drawn.enumerated:
        order = np.random.default_rng(seed).permutation(len(sets))
        sets = tuple(sets[i] for i in order)
    plan = looks(len(sets))
    beside, each = forwards
    tables = ()
    taken: list[dict[str, Any]] = []
    done, ended = 0, False
    for look in plan:
        if done and not affordable(each * (look.controls - done)):
            ended = True
            break
        more = outcomes(sets[done : look.controls])
        tables = _joined(tables, more) if done else more
        done = look.controls
        so_far = replace(drawn, sets=sets[:done], enumerated=drawn.enumerated and done == len(sets))
        last, inference = look, infer(tables, so_far).spending(look.share)
        low, high = inference.interval(confidence)
        taken.append({"controls": done, "share": look.share, "interval": [_finite(low), _finite(high)]})
        # strictly: a tie with the threshold decides one comparison and not the other
        if (low > decide or (refutable and high < decide)) and not blocked(tables):
            break
    budget = {
        "decide": decide,
        "planned": [step.controls for step in plan],
        "looks": taken,
        "forwards": beside + each * done,
        "forwards_saved": each * (len(sets) - done),
    }
    hints: tuple[str, ...] = ()
    if ended:
        hints = (f"the budget of forwards ended the looks at {done} of {len(sets)} controls",)
    return Looked(so_far, tables, inference, last.share, {"budget": budget}, hints, len(sets))


def planned(drawn: Controls, decide: float | None) -> dict[str, Any]:
    """The choices that decide which controls are measured: nothing without a threshold."""
    if decide is None:
        return {}
    plan: tuple[Look, ...] = looks(len(drawn.sets))
    return {"decide": decide, "looks": [look.controls for look in plan]}


def _joined(tables: Tables, more: Tables) -> Tables:
    return tuple(np.concatenate((old, new)) for old, new in zip(tables, more, strict=True))


def _finite(value: float) -> float | None:
    """For a record, in which an infinite end is None."""
    return float(value) if np.isfinite(value) else None

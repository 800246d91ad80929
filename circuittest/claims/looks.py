"""Measuring controls a look at a time: where the threshold is known first, stop as soon as it is decided.

The looks are fixed by the number of control sets alone (`circuittest.stats.sequential`), and each look is one call of
the lab, so that neither what else was measured nor how fast the machine is moves a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from circuittest.budget import affordable
from circuittest.controls import Controls
from circuittest.stats import Look, looks
from circuittest.stats.inference import DrawnInference, Floats
from circuittest.units import Unit

Sets = tuple[tuple[Unit, ...], ...]


@dataclass(frozen=True)
class Looked:
    """What was measured by the time measuring stopped.

    Attributes
    ----------
    sets:
        The control sets measured, in the order of the rows.
    table:
        Their outcomes [R × n].
    enumerated:
        Whether these are all matched sets.
    inference:
        At the share of the error probability that the last look taken may spend.
    share:
        That share; 1 without a threshold to decide.
    details:
        ``{"budget": …}`` for the record, or nothing where there was a single look.
    hints:
        Where the budget of forwards ended the looks.
    """

    sets: Sets
    table: Floats
    enumerated: bool
    inference: DrawnInference
    share: float
    details: dict[str, Any]
    hints: tuple[str, ...] = ()


def measure_controls(
    drawn: Controls,
    outcomes: Callable[[Sets], Floats],
    infer: Callable[[Floats, bool], DrawnInference],
    *,
    decide: float | None,
    confidence: float = 0.95,
    seed: int = 0,
    refutable: bool = True,
    blocked: Callable[[Floats], bool] = lambda table: False,
    others: int = 0,
) -> Looked:
    """Measure control sets until a threshold is decided, or all of them.

    Parameters
    ----------
    drawn:
        The controls of the claim; all matched sets, where they were enumerated, are then taken in random order.
    outcomes:
        Per-example outcomes [sets × n] of some sets; called once a look.
    infer:
        The inference from the rows so far, and whether these are all matched sets.
    decide:
        The threshold, or None to measure everything in one call.
    confidence:
        Of the interval that must leave the threshold out.
    refutable:
        False for an estimate that is a lower bound: its interval's upper end decides nothing.
    blocked:
        Whether a gate fails on the rows so far; then measuring goes on, whatever the interval.
    others:
        Interventions that the claim needs beside its controls, for the count of forwards.
    """
    if decide is None:
        table = outcomes(drawn.sets)
        return Looked(drawn.sets, table, drawn.enumerated, infer(table, drawn.enumerated), 1.0, {})
    sets = drawn.sets
    if drawn.enumerated:
        order = np.random.default_rng(seed).permutation(len(sets))
        sets = tuple(sets[i] for i in order)
    plan = looks(len(sets))
    rows: list[Floats] = []
    taken: list[dict[str, Any]] = []
    done, ended = 0, False
    for look in plan:
        if rows and not affordable(rows[0].shape[1] * (look.controls - done)):
            ended = True
            break
        spent = look.share
        rows.append(outcomes(sets[done : look.controls]))
        done = look.controls
        table = np.concatenate(rows)
        everything = drawn.enumerated and done == len(sets)
        inference = infer(table, everything).spending(spent)
        low, high = inference.interval(confidence)
        taken.append({"controls": done, "share": look.share, "interval": [low, high]})
        # strictly: a tie with the threshold decides one comparison and not the other
        if (low > decide or (refutable and high < decide)) and not blocked(table):
            break
    n = table.shape[1]
    budget = {
        "decide": decide,
        "planned": [step.controls for step in plan],
        "looks": taken,
        "forwards": n * (others + done),
        "forwards_saved": n * (len(sets) - done),
    }
    hints: tuple[str, ...] = ()
    if ended:
        hints = (f"the budget of forwards ended the looks at {done} of {len(sets)} controls",)
    return Looked(sets[:done], table, everything, inference, spent, {"budget": budget}, hints)


def planned(drawn: Controls, decide: float | None) -> dict[str, Any]:
    """The choices that decide which controls are measured: nothing without a threshold."""
    if decide is None:
        return {}
    plan: tuple[Look, ...] = looks(len(drawn.sets))
    return {"decide": decide, "looks": [look.controls for look in plan]}

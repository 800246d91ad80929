"""A budget of forwards for each claim: counts, never seconds, so that a verdict does not depend on the machine.

A forward is one example through the whole model once; a backward counts as two. What a claim asks of its labs counts
whether or not a table was there already, for a verdict must not depend on what else was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from circuittest.errors import CircuittestError


class OverBudget(CircuittestError):
    """A claim needs more forwards than its budget holds."""


@dataclass
class Meter:
    """Forwards asked for so far, and the limit, if any."""

    limit: int | None
    spent: int = 0


_meter: ContextVar[Meter | None] = ContextVar("circuittest_budget", default=None)


@contextmanager
def metered(limit: int | None) -> Iterator[None]:
    """Count the forwards of one claim; a claim measured inside another shares its budget."""
    if _meter.get() is not None:
        yield
        return
    token = _meter.set(Meter(limit))
    try:
        yield
    finally:
        _meter.reset(token)


def within_budget() -> bool:
    """Is a claim being counted?"""
    return _meter.get() is not None


def affordable(forwards: int) -> bool:
    """Does the budget hold so many more?"""
    meter = _meter.get()
    return meter is None or meter.limit is None or meter.spent + forwards <= meter.limit


def charge(forwards: int) -> None:
    """Take forwards from the budget before they are run. Raises OverBudget."""
    meter = _meter.get()
    if meter is None:
        return
    if not affordable(forwards):
        raise OverBudget(
            f"the budget of {meter.limit} forwards is too small",
            f"{meter.spent} are spent and the next step takes {forwards}",
            "raise --circuit-budget, or take fewer examples or controls",
        )
    meter.spent += forwards

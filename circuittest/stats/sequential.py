"""Stopping early: looks at growing numbers of control sets, and a p-value that may stop by itself.

*Looks.* Outcomes under control sets form a crossed table: the same examples meet every set, so that its cells are no
sequence of independent values and a bound for such a sequence would be wrong. What stays valid is to judge the whole
table, with the same two-way inference, at a few numbers of sets fixed beforehand, and to share the error probability
among these looks (Bonferroni's inequality, which holds for looks that depend on each other in any way):

    P(some look's interval misses theta) <= sum_k share_k * alpha <= alpha.

So whichever look measuring stops at, its interval covers as it says and its verdict is wrong as rarely as one without
looks. Most of alpha is kept for the last look, as O'Brien & Fleming (1979) do: a claim that no early look decides loses
a few percent of width. Their own boundary spends 1e-5 of alpha on the first look, which no resampling resolves.

*Besag-Clifford.* The rank p-value of a circuit among its controls, drawn until h of them were at least as harmful.

Numbers of sets stop a measurement, never seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from circuittest.errors import UsageError

#: The first look, in control sets; below twice as many there is a single look.
FIRST = 10
#: Looks double up to here, and then grow fourfold: each costs some of alpha.
DOUBLE_UP_TO = 40
#: What all looks before the last spend together of the error probability.
EARLY = 0.3


@dataclass(frozen=True)
class Look:
    """One planned look.

    Attributes
    ----------
    controls:
        Control sets measured by then.
    share:
        Part of the error probability that it spends.
    """

    controls: int
    share: float


def looks(total: int) -> tuple[Look, ...]:
    """The planned looks at up to `total` control sets; one alone where there are fewer than 20.

    40 sets are looked at when there are 10, 20 and 40; 500 when there are 10, 20, 40, 160 and 500.
    """
    if total < 1:
        raise UsageError(f"looks at {total} control sets", "at least one is needed")
    counts: list[int] = []
    count = FIRST
    while 2 * count <= total:
        counts.append(count)
        count *= 2 if count < DOUBLE_UP_TO else 4
    if not counts:
        return (Look(total, 1.0),)
    early = EARLY / len(counts)
    return (*(Look(count, early) for count in counts), Look(total, 1.0 - EARLY))


@dataclass(frozen=True)
class SequentialP:
    """A rank p-value that stopped by its own rule.

    Attributes
    ----------
    p:
        h/l when the h-th harmful control was the l-th drawn; (1 + harmful)/(1 + drawn) when all planned were drawn
        first; None while neither has happened.
    drawn, at_least_as_harmful:
        How many controls were looked at, and how many of them counted.
    """

    p: float | None
    drawn: int
    at_least_as_harmful: int


def besag_clifford(circuit: float, controls: Iterable[float], *, hits: int = 10, planned: int) -> SequentialP:
    """The sequential Monte Carlo p-value of Besag & Clifford (1991): stop at the `hits`-th control at least as harmful.

    Valid at every level, P(p <= a) <= a, for exchangeable controls; a circuit that is not special costs `hits`/p draws.

    Parameters
    ----------
    circuit, controls:
        Outcome with the circuit ablated, and those with each control set ablated in the order drawn (lower is more
        harmful; ties count). Only as many as needed are taken.
    hits, planned:
        h, and the most controls to draw.

    Returns
    -------
    SequentialP
        With p None where `controls` ended before either rule applied: looking at p any earlier is not valid.
    """
    if hits < 1 or planned < hits:
        raise UsageError(f"{hits} hits among {planned} controls", "hits is at least 1 and at most planned")
    drawn = harmful = 0
    for value in controls:
        drawn += 1
        harmful += value <= circuit + 1e-12
        if harmful == hits:
            return SequentialP(hits / drawn, drawn, harmful)
        if drawn == planned:
            return SequentialP((1 + harmful) / (1 + planned), drawn, harmful)
    return SequentialP(None, drawn, harmful)

"""Minimal faithful circuits: the fewest edges that hold most of the behaviour (Tigges et al., arXiv 2407.10827, §2.2).

Edges are taken from the logits backwards, each time the one with the largest |mean score| among those that end in a
unit which is there already, and what no path from the embedding reaches is pruned. The circuit is the smallest one
tried whose faithfulness (m(C) − m(∅)) / (m(M) − m(∅)) is at least the level, and is so for every larger one tried, up
to a cap in percent of this model's own edges. Everything outside a circuit is counterfactual, exactly.

The paper's published code differs in what this module does not follow: its faithfulness is m(C)/m(M), so that under
a counterfactual that turns m round 0.8 of it is 0.9 here; its cap is 1,600 edges whatever the model, and what never
reaches the level is returned as a circuit of 1,600; a bisection finds one crossing, and not one that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from circuittest.circuit import Circuit
from circuittest.errors import UsageError
from circuittest.find.ranking import percent
from circuittest.find.sizes import connected
from circuittest.stats.crossing import CrossingInference
from circuittest.stats.resampling import Floats, count_blocks
from circuittest.tables import ScoreTable
from circuittest.units import Edge, Layout, Unit

#: Each size of the first grid is at most so much larger than the last.
STEP = 1.5
#: Sizes looked at between the last that fails and the first that holds, and how often.
INSIDE, ROUNDS = 4, 4
#: No closer than this share of the size found.
PRECISION = 0.02
#: Samples of examples, drawn with replacement.
RESAMPLES = 1000

#: The metric [circuits × examples] with only each circuit kept.
Measure = Callable[[Sequence[tuple[Edge, ...]]], Floats]


@dataclass(frozen=True)
class Point:
    """One size that was tried.

    Attributes
    ----------
    taken:
        Edges taken from the logits backwards.
    edges, nodes:
        What pruning leaves of them, and the heads and MLPs among their ends.
    faithfulness:
        (m(C) − m(∅)) / (m(M) − m(∅)), never clamped.
    """

    taken: int
    edges: int
    nodes: int
    faithfulness: float


@dataclass(frozen=True)
class Minimal:
    """The smallest circuit tried that is faithful and stays so, or that there is none within the cap.

    Attributes
    ----------
    circuit:
        Its edges; empty where the level was not reached.
    units:
        The same circuit as heads and MLPs: every head or MLP that one of its edges leaves.
    reached:
        Is there such a circuit?
    reason:
        Why there is none, or "".
    faithfulness:
        Of the circuit on the examples that chose its size; None where there is none. Those that judge it are for the
        claim ``sufficiency``.
    level, cap, total:
        The level asked for, the cap in edges, and all edges of the model.
    curve:
        Every size tried, rising.
    interval:
        Of the size in edges at 95 %, given the ranking and the sizes tried (`circuittest.stats.crossing`); None at an
        end that lies beyond the cap.
    resamples:
        Size in edges → share of the samples of examples in which it was the smallest; "not reached" and "undefined"
        (no range between the model and nothing) are others.
    """

    circuit: Circuit
    units: Circuit
    reached: bool
    reason: str
    faithfulness: float | None
    level: float
    cap: int
    total: int
    curve: tuple[Point, ...] = ()
    interval: tuple[int | None, int | None] = (None, None)
    resamples: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """Of all edges."""
        return len(self.circuit.edges) / self.total if self.reached else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "circuit": self.circuit.to_dict(),
            "units": [str(unit) for unit in self.units.units],
            "reached": self.reached,
            "reason": self.reason,
            "edges": len(self.circuit.edges) if self.reached else None,
            "nodes": len(self.units.units) if self.reached else None,
            "share": self.share,
            "faithfulness": self.faithfulness,
            "level": self.level,
            "cap": self.cap,
            "of": self.total,
            "interval": list(self.interval),
            "resamples": dict(self.resamples),
            "curve": [vars(point) for point in self.curve],
        }


def minimal(
    table: ScoreTable,
    layout: Layout,
    measure: Measure,
    *,
    level: float = 0.8,
    cap: str | int = "5%",
    usable: Callable[[Floats, Floats], str] = lambda full, empty: "",
    origin: Mapping[str, Any] | None = None,
    name: str = "minimal",
    seed: int = 0,
) -> Minimal:
    """Search over sizes: a grid up to the cap, then closer and closer below the smallest size that holds.

    Parameters
    ----------
    table:
        Scores of all edges of the layout; their means rank.
    measure:
        Called a few times, each time with all circuits that are tried together.
    level:
        The least faithfulness, between 0 and 1.
    cap:
        Most edges taken, as a number or in percent of all of the model's (``"5%"``: rounded down, at least 1).
    usable:
        From m(M) and m(∅) [examples]: why nothing may be divided by their difference, or "".
    origin:
        What the circuits record beside what is found here.

    Raises
    ------
    UsageError
        For a level or cap out of range, and for a table that does not hold every edge of the layout.
    """
    if not 0 < level < 1:
        raise UsageError(f"faithfulness is {level!r}", "it is a share between 0 and 1", "say 0.8")
    total = len(table.members)
    most = _cap(cap, total)
    order = from_logits(table, layout)
    everything = tuple(sorted(order))
    how = {**(origin or {}), "faithfulness": level, "cap": most, "of": total}

    def circuits(taken: int, reason: str = "") -> tuple[Circuit, Circuit]:
        edges = connected(order[:taken], layout)
        more = how if not reason else {**how, "empty": reason}
        units = nodes(edges)
        return (
            Circuit(edges=tuple(edges), name=name, layout=layout, origin=more),
            Circuit(units=units, name=name, layout=layout, origin=more),
        )

    def none(reason: str, **more: Any) -> Minimal:
        return Minimal(*circuits(0, reason), False, reason, None, level, most, total, **more)

    sizes = grid(most)
    rows = measure([(), everything, *(tuple(connected(order[:n], layout)) for n in sizes)])
    empty, full = rows[0], rows[1]
    if reason := usable(full, empty):
        return none(reason)
    tried = dict(zip(sizes, rows[2:] - empty, strict=True))
    reach = full - empty
    for inside in _closer(tried, reach, level):
        found = measure([tuple(connected(order[:n], layout)) for n in inside])
        tried.update(zip(inside, found - empty, strict=True))

    sizes = sorted(tried)
    points = {n: _point(connected(order[:n], layout), n, tried[n], reach) for n in sizes}
    curve = tuple(points.values())
    interval = _interval(points, tried, reach, level, total, seed)
    told: dict[str, Any] = {
        "curve": curve,
        "interval": interval,
        "resamples": _resampled(points, tried, reach, level, seed),
    }
    size = holds([points[n].faithfulness for n in sizes], level)
    if size is None:
        best = max(curve, key=lambda point: point.faithfulness)
        return none(
            f"no circuit of at most {most} of the {total} edges reaches a faithfulness of {level:g} and keeps it up to "
            f"the cap: it is {curve[-1].faithfulness:.3g} there, and at most {best.faithfulness:.3g} (with "
            f"{best.edges} edges)",
            **told,
        )
    chosen = curve[size]
    return Minimal(*circuits(chosen.taken), True, "", chosen.faithfulness, level, most, total, **told)


def from_logits(table: ScoreTable, layout: Layout) -> list[Edge]:
    """All edges in the order in which they are taken: from the logits backwards, the largest |mean score| first.

    An edge can be taken when the unit it ends in is there: the logits at first, then every unit that an edge taken
    leaves. A KV group is there when one of its heads is. Equal scores are taken in canonical order.

    Raises UsageError for a table that does not hold every edge of the layout, or has no examples.
    """
    edges = [member for member in table.members if isinstance(member, Edge)]
    if len(edges) != len(table.members) or len(edges) != sum(1 for _ in layout.edges()):
        raise UsageError(
            "a circuit is grown from the scores of all edges",
            f"the table has {len(edges)} of them",
            'score with level="edges" and universe="all"',
        )
    if not table.examples:
        raise UsageError("a circuit is grown from scores", "the table has no examples")
    means = np.abs(table.values.mean(axis=0, dtype=np.float64))
    into: dict[Unit, list[int]] = {}
    for place, edge in enumerate(edges):
        into.setdefault(edge.target, []).append(place)
    open_, there, order = list[tuple[float, int]](), {Unit("logits")}, list[Edge]()

    def enter(unit: Unit) -> None:
        for place in into.pop(unit, ()):
            heappush(open_, (-means[place], place))

    enter(Unit("logits"))
    while open_:
        edge = edges[heappop(open_)[1]]
        order.append(edge)
        if edge.source not in there:
            there.add(edge.source)
            enter(edge.source)
            if edge.source.kind == "head":
                enter(layout.kv_group(edge.source))
    return order


def nodes(edges: Sequence[Edge]) -> tuple[Unit, ...]:
    """The heads and MLPs that edges leave: of a connected circuit, all there are."""
    return tuple(sorted({edge.source for edge in edges if edge.source.kind != "embed"}))


def grid(most: int) -> list[int]:
    """Sizes from 1 to the cap, every one at first and then each at most `STEP` times the last."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, int(found[-1] * STEP))))
    return found


def holds(values: Sequence[float], level: float) -> int | None:
    """The first place from which on every value is at least the level; None where the last is not."""
    below = [place for place, value in enumerate(values) if value < level]
    start = below[-1] + 1 if below else 0
    return start if start < len(values) else None


def _closer(tried: Mapping[int, Floats], reach: Floats, level: float) -> Iterator[list[int]]:
    """Sizes to try next, as long as that can make the circuit smaller; `tried` is filled between the rounds."""
    for _ in range(ROUNDS):
        sizes = sorted(tried)
        start = holds([float(tried[n].mean() / reach.mean()) for n in sizes], level)
        if start is None:
            return
        low, high = sizes[start - 1] if start else 0, sizes[start]
        if high - low <= max(1.0, PRECISION * high):
            return
        inside = np.linspace(low, high, min(INSIDE, high - low - 1) + 2)[1:-1]
        yield sorted({round(float(n)) for n in inside})


def _point(edges: Sequence[Edge], taken: int, gained: Floats, reach: Floats) -> Point:
    return Point(taken, len(edges), len(nodes(edges)), float(gained.mean() / reach.mean()))


def _interval(
    points: Mapping[int, Point],
    tried: Mapping[int, Floats],
    reach: Floats,
    level: float,
    total: int,
    seed: int,
) -> tuple[int | None, int | None]:
    """Of the size, in edges. Sizes of which pruning leaves nothing are no candidates: they do what nothing does."""
    sizes = [n for n, point in sorted(points.items()) if point.edges]
    rows = [tried[n] for n in sizes]
    if not sizes or sizes[-1] < total:
        sizes, rows = [*sizes, total], [*rows, reach]  # of all edges it is 1
    found = CrossingInference(np.vstack(rows), reach, sizes, level=level, seed=seed).interval()
    low, high = (points[int(end)].edges if int(end) in points else None for end in found)
    return low, high


def _resampled(
    points: Mapping[int, Point], tried: Mapping[int, Floats], reach: Floats, level: float, seed: int
) -> dict[str, float]:
    """How often each size is the smallest that holds, over samples of the examples; the circuits stay the same."""
    sizes = sorted(points)
    table = np.vstack([tried[n] for n in sizes])
    counts = dict.fromkeys([str(points[n].edges) for n in sizes], 0)
    counts |= {"not reached": 0, "undefined": 0}
    for weights in count_blocks(seed, RESAMPLES, reach.size):
        spans, gained = weights @ reach, weights @ table.T
        for span, row in zip(spans, gained, strict=True):
            if span <= 0:
                counts["undefined"] += 1
                continue
            start = holds(list(row / span), level)
            counts["not reached" if start is None else str(points[sizes[start]].edges)] += 1
    return {size: count / RESAMPLES for size, count in counts.items() if count}


def _cap(cap: str | int, total: int) -> int:
    if isinstance(cap, bool) or not isinstance(cap, (str, int)):
        raise UsageError(f"cap is {cap!r}", "it is a number of edges or a percentage", 'write "5%"')
    if isinstance(cap, str):
        share = percent(cap, "cap")
        most = max(1, int(share * total // 100)) if 0 < share <= 100 else 0
    else:
        most = cap
    if not 1 <= most <= total:
        raise UsageError(f"cap is {cap!r}", f"the model has {total} edges", "ask for some or all of them")
    return most

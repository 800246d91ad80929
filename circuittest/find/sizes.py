"""Circuits of growing size from one table of edge scores, and the areas that judge them together: CPR and CMD.

The Mechanistic Interpretability Benchmark (Mueller et al., arXiv 2504.13151, and its published code) takes the n edges
with the largest |mean score| for ten sizes n, removes what is not connected, and measures faithfulness f at each,
f = (m(C) − m(∅)) / (m(M) − m(∅)) of metrics averaged over examples, where everything outside C is counterfactual. With
sizes as shares x of all edges,

    CPR = ∫ f dx,    CMD = ∫ |1 − f| dx    over x from 0 to 1,

by trapezoids between the sizes measured and the ends, where f(0) = 0 and f(1) = 1 by definition. (The benchmark's code
leaves out what lies before its smallest size, 0.1 % of the edges.)

Removing what is not connected changes no outcome where replaced writes are counterfactual: a unit that no edge reaches
writes its counterfactual anyway, and what a unit writes that no edge leaves is read by none. Where they are zero or
means, only the latter holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circuittest.circuit import Circuit
from circuittest.errors import UsageError
from circuittest.find.ranking import percent
from circuittest.tables import ScoreTable
from circuittest.units import Edge, Layout, Unit

#: Sizes of the benchmark, in percent of all edges.
MIB_SIZES = ("0.1%", "0.2%", "0.5%", "1%", "2%", "5%", "10%", "20%", "50%", "100%")


@dataclass(frozen=True)
class Areas:
    """Faithfulness over sizes in two numbers.

    Attributes
    ----------
    cpr:
        ∫ f dx, the larger the more of the behaviour small circuits hold; above 1 where circuits overshoot.
    cmd:
        ∫ |1 − f| dx, 0 where every circuit does as much as the model.
    """

    cpr: float
    cmd: float


def edge_circuits(
    table: ScoreTable,
    sizes: Sequence[int | str] = MIB_SIZES,
    *,
    layout: Layout | None = None,
    prune: bool = True,
    origin: Mapping[str, Any] | None = None,
) -> list[Circuit]:
    """The n edges with the largest |mean score| over the examples, for every size; equal scores in canonical order.

    Parameters
    ----------
    table:
        Scores of edges.
    sizes:
        Numbers of edges, or percentages of the table's (``"5%"``: rounded down, as the benchmark does).
    layout:
        The model's, which the circuits are then bound to. Without it they are bound to none, and what is connected
        follows from the table, which must have every edge.
    prune:
        Leave out edges of units that no edge reaches or that no edge leaves, repeatedly; the embedding needs none to
        reach it. A head is reached by its query or by key or value of its KV group, and a KV group is left where one
        of its heads is.
    origin:
        What else to record, e.g. the digests of the prompts that chose the circuits.

    Raises
    ------
    UsageError
        For a table of units or without examples, sizes out of range, and an incomplete table without a layout.
    """
    edges = [member for member in table.members if isinstance(member, Edge)]
    if len(edges) != len(table.members) or not edges:
        raise UsageError("circuits of edges need a table of edge scores", "", 'score with level="edges"')
    if not table.examples:
        raise UsageError("circuits of edges need scores", "the table has no examples")
    wiring = layout
    if prune and wiring is None:
        wiring = _read_layout(edges)
    means = np.abs(table.values.mean(axis=0, dtype=np.float64))
    order = np.argsort(-means, kind="stable")
    found = []
    for size in sizes:
        count = _count(size, len(edges))
        chosen = [edges[i] for i in order[:count]]
        kept = connected(chosen, wiring) if prune and wiring is not None else chosen
        name = f"top {count} edge{'' if count == 1 else 's'}"
        how = {
            **(origin or {}),
            "scores": dict(table.choices),
            "rule": "abs-mean",
            "edges": count,
            "pruned": count - len(kept),
            "examples": list(table.examples),
        }
        found.append(Circuit(edges=tuple(kept), name=name, layout=layout, origin=how))
    return found


def connected(edges: Sequence[Edge], layout: Layout) -> list[Edge]:
    """The edges on a path from the embedding or a unit so reached, to the logits, in the order given."""
    heads_of = lambda unit: layout.parts(unit) if unit.kind == "kv" else (unit,)
    left = list(edges)
    while True:
        reached = {Unit("embed")} | {unit for edge in left for unit in heads_of(edge.target)}
        leaving = {Unit("logits")} | {edge.source for edge in left}
        alive = reached & leaving | {Unit("logits")}
        kept = [e for e in left if e.source in alive and not alive.isdisjoint(heads_of(e.target))]
        if len(kept) == len(left):
            return kept
        left = kept


def faithfulness(kept: ArrayLike, full: ArrayLike, empty: ArrayLike) -> NDArray[np.float64]:
    """(m(C) − m(∅)) / (m(M) − m(∅)) of every circuit [circuits], m averaged over examples; never clamped.

    Parameters
    ----------
    kept:
        The metric with only each circuit kept [circuits × examples].
    full, empty:
        The same of the whole model and of the empty circuit [examples].

    Raises
    ------
    UsageError
        Where model and empty circuit are equal: the ratio is then undefined.
    """
    values, whole, none = (np.asarray(part, dtype=np.float64) for part in (kept, full, empty))
    span = float(whole.mean() - none.mean())
    if span == 0 or not np.isfinite(span):
        raise UsageError(
            "faithfulness is undefined",
            "the model and the empty circuit have the same mean metric",
            "choose a metric that tells clean from counterfactual prompts",
        )
    result: NDArray[np.float64] = (values.mean(axis=-1) - none.mean()) / span
    return result


def areas(shares: ArrayLike, values: ArrayLike, *, ends: bool = True) -> Areas:
    """CPR and CMD of faithfulness values at sizes in shares of all edges (above 0, at most 1, increasing).

    `ends`: from 0 to 1, with what f is there by definition. False: between the smallest size and the largest, as the
    benchmark's code has it.

    Raises UsageError for no sizes (fewer than two without the ends), sizes that do not increase, and values that are
    not finite.
    """
    x, y = np.asarray(shares, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2 - ends:
        raise UsageError(f"areas over {x.size} sizes and {y.size} values", "", "give some of each")
    if not (np.diff(x) > 0).all() or not x[0] > 0 or not x[-1] <= 1 or not np.isfinite(y).all():
        raise UsageError(
            "areas need increasing shares of all edges, and finite values",
            f"shares are {x.tolist()}, values {y.tolist()}",
            "sort the sizes and give each once",
        )
    if ends:
        x, before, after = with_ends(x)
        y = np.array([*[0.0] * before, *y, *[1.0] * after])
    weights = trapezoid(x)
    return Areas(float(weights @ y), float(weights @ np.abs(1 - y)))


def with_ends(shares: ArrayLike) -> tuple[NDArray[np.float64], int, int]:
    """Sizes from 0 to 1, and how many were added before and after those given (which may hold 1)."""
    x = np.asarray(shares, dtype=np.float64)
    after = int(x[-1] < 1)
    return np.array([0.0, *x, *[1.0] * after]), 1, after


def trapezoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights w with w @ y the area under (x, y)."""
    steps = np.diff(x)
    weights = np.zeros_like(x)
    weights[:-1] += steps / 2
    weights[1:] += steps / 2
    return weights


def _count(size: int | str, total: int) -> int:
    if isinstance(size, str):
        share = percent(size, "size")
        count = int(share * total // 100) if share <= 100 else total + 1
    elif isinstance(size, bool) or not isinstance(size, int):
        raise UsageError(f"a circuit size of {size!r}", "", 'write a number of edges, or a percentage: "5%"')
    else:
        count = size
    if not 0 <= count <= total:
        raise UsageError(f"a circuit size of {size!r}", f"the table has {total} edges", "ask for fewer")
    return count


def _read_layout(edges: Sequence[Edge]) -> Layout:
    """The layout of a table that has every edge. Raises UsageError where it has not."""
    count = lambda kind: 1 + max((e.target.index or 0 for e in edges if e.target.kind == kind), default=-1)
    layers = 1 + max((e.target.layer or 0 for e in edges if e.target.kind == "mlp"), default=-1)
    heads, groups = count("head"), count("kv")
    within = any(e.source.kind == "head" and e.source.layer == e.target.layer for e in edges)
    if min(layers, heads, groups) > 0 and heads % groups == 0:
        layout = Layout(layers, heads, groups, parallel=not within)
        if len(edges) == sum(1 for _ in layout.edges()):
            return layout
    raise UsageError(
        "the table does not have every edge of an architecture",
        "which units share keys and values cannot be read from it",
        "pass layout=model.layout",
    )

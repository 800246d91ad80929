"""A lab whose scores are planted: every subtask has a true mean score of every edge or unit, and examples are noisy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from circuittest.find.induced import edge_universe
from circuittest.tables import ScoreTable
from circuittest.units import Layout
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=3, n_heads=4, n_kv_heads=2)
EDGES = edge_universe(LAYOUT, "all")
UNITS = LAYOUT.units(("head", "mlp"))


class ScoreLab(TableLab):
    """`edges` and `units` are scores of all examples, discovery examples first; `features` one mapping per example."""

    def __init__(
        self,
        features: Sequence[Mapping[str, Any]],
        *,
        edges: np.ndarray | None = None,
        units: np.ndarray | None = None,
        discover: int | None = None,
        groups: Sequence[str] | None = None,
        twin: ScoreLab | None = None,
        others: dict[str, Any] | None = None,
    ) -> None:
        count = len(features)
        first = count // 2 if discover is None else discover
        data = task_data(first, count - first)
        group = groups or [""] * count
        named = [
            replace(item, features=features[item.index], group=group[item.index])
            for item in (*data.discover, *data.evaluate)
        ]
        data = replace(data, discover=tuple(named[:first]), evaluate=tuple(named[first:]))
        super().__init__(
            lambda ablated, i: float(len(ablated) < len(UNITS)), layout=LAYOUT, data=data, others=others
        )
        self.tables = {"edges": edges, "units": units}
        self.twin = twin
        self.asked: list[dict[str, Any]] = []

    def scores(
        self, split: str = "discover", *, universe: Any = "heads", level: str = "units", **how: Any
    ) -> ScoreTable:  # type: ignore[override]
        self.asked.append({"split": split, "universe": universe, "level": level, **how})
        of_edges = level == "edges"
        members = EDGES if of_edges else UNITS
        wanted = edge_universe(LAYOUT, universe) if of_edges else LAYOUT.universe(universe)
        items = getattr(self.data, split)
        first = items[0].index if items else 0
        values = np.asarray(self.tables[level], dtype=np.float32)[first : first + len(items)]
        return ScoreTable(values, members, tuple(item.index for item in items)).columns(wanted)

    def untrained(self, seed: int = 0) -> ScoreLab:  # type: ignore[override]
        if self.twin is None:
            raise NotImplementedError
        return self.twin


def noisy(means: np.ndarray, block: Sequence[int], noise: float, seed: int = 0) -> np.ndarray:
    """[examples × members] the mean scores of each example's block [blocks × members] and independent noise."""
    rng = np.random.default_rng([seed, 1])  # not the stream that drew the means
    return means[list(block)] + noise * rng.standard_normal((len(block), means.shape[1]))


def correlated(rho: float, blocks: int, members: int, seed: int = 0) -> np.ndarray:
    """[blocks × members] whose rows have sample correlation `rho` exactly, pair by pair."""
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((blocks + 1, members))
    raw -= raw.mean(1, keepdims=True)
    basis = np.linalg.qr(raw.T)[0].T
    return np.sqrt(rho) * basis[0] + np.sqrt(1 - rho) * basis[1:]

"""Which edges belong to a universe, and which edges a set of units spans."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import UnitError
from circuittest.units import UNIVERSES, Edge, Layout, Unit

Mask = NDArray[np.bool_]


def edge_universe(layout: Layout, name: str | Iterable[str]) -> tuple[Edge, ...]:
    """The edges that discovery ranks, in canonical order.

    "all" is every edge, those of the embedding and the logits included. Any other universe has the edges between its
    units ("heads": head to head); k and v edges, which end in KV groups, count as edges into heads.

    Raises
    ------
    UnitError
        For an unknown universe, and for kinds that edges do not end in.
    """
    layout.universe(name)  # an unknown name is refused with the closest known one
    if name == "all":
        return _edges(layout)
    kinds: set[str] = set()
    for one in [name] if isinstance(name, str) else name:
        kinds |= set(UNIVERSES.get(one, (one,)))
    if wrong := kinds - {"head", "mlp"}:
        raise UnitError(
            f"no universe of edges: {name!r}", f"edges run between heads and MLPs, not {min(wrong)}"
        )
    chosen = {"kv": "head" in kinds, "head": "head" in kinds, "mlp": "mlp" in kinds}
    found = [
        e for e in layout.edges() if chosen.get(e.source.kind, False) and chosen.get(e.target.kind, False)
    ]
    if not found:
        raise UnitError(
            f"the universe {name!r} has no edges", "this architecture has one layer of such units"
        )
    return tuple(found)


@lru_cache(maxsize=4)
def _edges(layout: Layout) -> tuple[Edge, ...]:
    """All edges; large models have hundreds of thousands, made once."""
    return tuple(layout.edges())


class Spanned:
    """The edges between units, for many sets of them at once.

    An edge is spanned when both its ends are in the set; a KV group is in it when one of its heads is. Edges of the
    embedding and the logits belong to no unit set: they would be in every circuit.

    Parameters
    ----------
    layout, members:
        The architecture and its heads and MLPs that the columns of a membership stand for.
    """

    def __init__(self, layout: Layout, members: Iterable[Unit]) -> None:
        columns = {unit: i for i, unit in enumerate(members)}
        if wrong := sorted({u.kind for u in columns} - {"head", "mlp"}):
            raise UnitError(f"units of kind {wrong[0]} span no edges", "edges run between heads and MLPs")
        readers: dict[Unit, list[int]] = {}
        for unit, column in columns.items():
            readers.setdefault(unit, []).append(column)
            if unit.kind == "head":
                readers.setdefault(layout.kv_group(unit), []).append(column)
        kept = [e for e in _edges(layout) if e.source in columns and e.target in readers]
        self.edges: tuple[Edge, ...] = tuple(kept)
        self._sources = np.array([columns[e.source] for e in kept], dtype=np.intp)
        slots = sorted(readers)
        place = {unit: i for i, unit in enumerate(slots)}
        self._readers = [readers[unit] for unit in slots]
        self._targets = np.array([place[e.target] for e in kept], dtype=np.intp)
        self.n_units = len(columns)

    def probability(self, k: int) -> NDArray[np.float64]:
        """[edges] with which probability a uniform set of k units spans each edge."""
        total = self.n_units
        readers = np.array([len(columns) for columns in self._readers])
        # given the source, none of g readers is among the other k - 1 of N - 1 units
        steps = np.arange(int(readers.max(initial=1)))
        shares = np.clip(total - k - steps, 0, None) / np.clip(total - 1 - steps, 1, None)
        none = np.cumprod(shares)[readers - 1] if readers.size else np.zeros(0)
        return np.asarray(k / total * (1 - none[self._targets]))

    def of(self, inside: Mask) -> Mask:
        """[rows × edges] which edges each row of `inside` [rows × members] spans."""
        reads = np.stack([inside[:, columns].any(1) for columns in self._readers], axis=1)
        return np.asarray(inside[:, self._sources] & reads[:, self._targets])

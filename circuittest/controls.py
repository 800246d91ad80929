"""C³: capacity-matched random controls of a circuit (Li & Subramani, arXiv 2605.08348, section 3.2).

A control is a set of units outside the circuit, inside the same universe, with as many units of each kind (and,
with ``match="layer"``, of each kind in each layer) as the circuit. Where no such set exists the control is
infeasible: an error, never a smaller set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb, prod

import numpy as np

from circuittest.errors import ControlError
from circuittest.units import Layout, Unit

Stratum = tuple[str, int]  # kind, and the layer or -1 where layers are not matched

#: Populations up to this size are enumerated instead of sampled (claims.md, "Controls").
ENUMERATE_UP_TO = 500


@dataclass(frozen=True)
class Controls:
    """Matched control sets and what is known of the population they come from.

    Attributes
    ----------
    sets:
        The control sets, each in canonical order.
    population:
        How many distinct matched sets exist.
    enumerated:
        True when `sets` is the whole population, so that there is no sampling error.
    overlap:
        Mean Jaccard index over pairs of sets; None for a single set.
    """

    sets: tuple[tuple[Unit, ...], ...]
    population: int
    enumerated: bool
    overlap: float | None


def matched_controls(
    circuit: Iterable[Unit],
    universe: Sequence[Unit],
    layout: Layout,
    *,
    count: int,
    seed: int,
    match: str = "kind",
) -> Controls:
    """Draw `count` distinct matched controls, or enumerate all when there are few.

    Raises
    ------
    ControlError
        When no matched set exists (naming the kind and the numbers), the circuit is empty or leaves the
        universe, or `match` or `count` make no sense.
    """
    pools, need = _strata(circuit, universe, layout, match)
    if count < 1:
        raise ControlError(f"{count} controls were asked for", "at least one is needed")
    strata = sorted(need)
    population = prod(comb(len(pools.get(s, ())), need[s]) for s in strata)
    if population == 0:
        kind, layer = next(s for s in strata if len(pools.get(s, ())) < need[s])
        where = "" if layer < 0 else f" in layer {layer}"
        have = len(pools.get((kind, layer), ()))
        raise ControlError(
            "no matched control exists",
            f"the circuit holds {need[kind, layer]} units of kind {kind}{where} and only {have} are left outside it",
            "lower K, restrict the universe, or judge a smaller circuit",
        )
    if population <= max(count, ENUMERATE_UP_TO):
        parts = [list(combinations(pools[s], need[s])) for s in strata]
        sets = tuple(tuple(sorted(sum(choice, ()))) for choice in product(*parts))
        return Controls(sets, population, True, _overlap(sets))
    rng = np.random.default_rng(seed)
    drawn: dict[tuple[Unit, ...], None] = {}
    while len(drawn) < count:
        units: list[Unit] = []
        for s in strata:
            units += [pools[s][i] for i in rng.choice(len(pools[s]), need[s], replace=False)]
        drawn.setdefault(tuple(sorted(units)))
    sets = tuple(drawn)
    return Controls(sets, population, False, _overlap(sets))


def _strata(
    circuit: Iterable[Unit], universe: Sequence[Unit], layout: Layout, match: str
) -> tuple[dict[Stratum, list[Unit]], Counter[Stratum]]:
    if match not in ("kind", "layer"):
        raise ControlError(f"unknown match {match!r}", "", "use 'kind' or 'layer'")
    units = tuple(sorted(set(circuit)))
    if not units:
        raise ControlError("the circuit is empty", "there is nothing to match")
    outside = sorted(set(units) - set(universe))
    if outside:
        raise ControlError(
            f"{outside[0]} is not in the universe that controls are drawn from",
            f"the universe ranks {', '.join(sorted({u.kind for u in universe}))}",
            "widen the universe, or judge a circuit inside it",
        )
    touched = set(layout.expand(units))
    key = (lambda u: (u.kind, -1)) if match == "kind" else (lambda u: (u.kind, u.layer))
    pools: dict[Stratum, list[Unit]] = {}
    for unit in sorted(set(universe)):
        # A KV group and its heads are the same parameters: a control must not touch the circuit by another name.
        if not touched.intersection(layout.parts(unit)):
            pools.setdefault(key(unit), []).append(unit)
    return pools, Counter(key(unit) for unit in units)


def _overlap(sets: Sequence[tuple[Unit, ...]]) -> float | None:
    if len(sets) < 2:
        return None
    members = sorted({unit for units in sets for unit in units})
    column = {unit: i for i, unit in enumerate(members)}
    member = np.zeros((len(sets), len(members)))
    for row, units in enumerate(sets):
        member[row, [column[u] for u in units]] = 1
    shared = member @ member.T
    size = member.sum(1)
    jaccard = shared / (size[:, None] + size[None, :] - shared)
    upper = np.triu_indices(len(sets), 1)
    return float(jaccard[upper].mean())

"""C³: capacity-matched random controls of a circuit (Li & Subramani, arXiv 2605.08348, section 3.2).

A control is a set of units outside the circuit, inside the same universe, with as many units of each kind (and,
with ``match="layer"``, of each kind in each layer, or with ``match="sink"``, of each kind at each of the levels that
are given) as the circuit. Where no such set exists the control is infeasible: an error, never a smaller set.

Random *circuits* (``outside=False``) are drawn from the whole universe, the circuit's own units included, and
only the circuit itself is left out. Against them the circuit's rank is an exact p-value of "this circuit is a
random one"; against controls outside it is not: they share units with each other and none with the circuit, so
that they vary less than a random circuit does (with a third of 48 heads a rank p of 0.05 comes up in 18 to 25 %
of random circuits).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import comb, prod

import numpy as np

from circuittest.errors import ControlError
from circuittest.units import Layout, Unit

Stratum = tuple[str, int]  # kind, and the layer or level, or -1 where only kinds are matched

#: Populations up to this size are enumerated instead of sampled (claims.md, "Controls").
ENUMERATE_UP_TO = 500
#: More are not drawn: a slip of some zeros would ablate for days.
MOST = 10_000


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
    outside: bool = True,
    levels: Mapping[Unit, int] | None = None,
) -> Controls:
    """Draw `count` distinct matched controls, or enumerate all when there are few.

    `outside`: controls have no unit of the circuit; False: any other matched set of the universe. `levels`: for
    ``match="sink"``, the level of every unit of the universe.

    Raises
    ------
    ControlError
        When no matched set exists (naming the kind and the numbers), the circuit is empty or leaves the
        universe, or `match` or `count` make no sense.
    """
    members = tuple(circuit)
    pools = strata(members, universe, layout, match, outside=outside, levels=levels)
    if count < 1:
        raise ControlError(f"{count} controls were asked for", "at least one is needed")
    if count > MOST:
        raise ControlError(
            f"{count} controls were asked for",
            f"at most {MOST} are drawn",
            "ask for some hundred: more decides nothing",
        )
    itself = tuple(sorted(set(members)))
    population = prod(comb(len(pool), need) for pool, need in pools.values()) - (not outside)
    if not population:
        raise ControlError(
            "no other matched set exists", "the circuit holds all units of its kinds", "widen the universe"
        )
    if population <= max(count, ENUMERATE_UP_TO):
        parts = [list(combinations(pool, need)) for pool, need in pools.values()]
        every = (tuple(sorted(chain.from_iterable(choice))) for choice in product(*parts))
        sets = tuple(units for units in every if units != itself)
        return Controls(sets, population, True, _overlap(sets))
    rng = np.random.default_rng(seed)
    drawn: dict[tuple[Unit, ...], None] = {}
    while len(drawn) < count:
        units: list[Unit] = []
        for pool, need in pools.values():
            units += [pool[i] for i in rng.choice(len(pool), need, replace=False)]
        if tuple(sorted(units)) != itself:
            drawn.setdefault(tuple(sorted(units)))
    sets = tuple(drawn)
    return Controls(sets, population, False, _overlap(sets))


def strata(
    circuit: Iterable[Unit],
    universe: Iterable[Unit],
    layout: Layout,
    match: str = "kind",
    *,
    outside: bool = True,
    levels: Mapping[Unit, int] | None = None,
) -> dict[Stratum, tuple[list[Unit], int]]:
    """What a matched control is made of: per stratum the units to choose from, and how many to choose.

    Strata are sorted, and so are the units in each. Raises ControlError as `matched_controls` does.
    """
    if match not in ("kind", "layer", "sink"):
        raise ControlError(f"unknown match {match!r}", "", "use 'kind', 'layer' or 'sink'")
    if (match == "sink") != (levels is not None):
        raise ControlError(
            f"match {match!r} {'with' if levels else 'without'} levels", "'sink' matches levels"
        )
    members = tuple(circuit)
    if not members:
        raise ControlError("the circuit is empty", "there is nothing to match")
    if not all(isinstance(member, Unit) for member in members):
        raise ControlError("the circuit holds edges", "controls are sets of units", "judge its units")
    units = tuple(sorted(set(members)))
    ranked = sorted(set(universe))
    strangers = sorted(set(units) - set(ranked))
    if strangers:
        raise ControlError(
            f"{strangers[0]} is not in the universe that controls are drawn from",
            f"the universe ranks {', '.join(sorted({u.kind for u in ranked}))}",
            "widen the universe, or judge a circuit inside it",
        )

    def stratum(unit: Unit) -> Stratum:
        if levels is not None:
            return (unit.kind, levels[unit])
        return (unit.kind, -1 if match == "kind" or unit.layer is None else unit.layer)

    need = Counter(stratum(unit) for unit in units)
    mixed = sorted({kind for kind, _ in need} & {"head", "kv", "attn"})
    if len(mixed) > 1:
        raise ControlError(
            f"the circuit mixes units of kinds {', '.join(mixed)}",
            "they are made of the same heads, so sets of equal counts need not ablate equally much",
            "write the circuit in one of these kinds",
        )
    touched = set(layout.expand(units)) if outside else frozenset[Unit]()
    pools: dict[Stratum, list[Unit]] = {key: [] for key in sorted(need)}
    for unit in ranked:
        # A KV group and its heads are the same parameters: a control must not touch the circuit by another name.
        if stratum(unit) in pools and not touched.intersection(layout.parts(unit)):
            pools[stratum(unit)].append(unit)
    for (kind, layer), pool in pools.items():
        if len(pool) < need[kind, layer]:
            where = (
                "" if layer < 0 else f" in layer {layer}" if levels is None else f" at {match} level {layer}"
            )
            raise ControlError(
                "no matched control exists",
                f"the circuit holds {need[kind, layer]} units of kind {kind}{where}"
                f" and only {len(pool)} are left outside it",
                "lower K, restrict the universe, or judge a smaller circuit",
            )
    return {key: (pool, need[key]) for key, pool in pools.items()}


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

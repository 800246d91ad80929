"""The control set that hurts most: greedy over matched units outside a circuit.

A search over subsets is never complete. What it finds bounds from below how much a control of this size can hurt; what
it does not find may exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from circuittest.controls import Stratum
from circuittest.stats.resampling import Floats
from circuittest.units import Unit

#: What is left [sets × examples] of a measure with each of these sets ablated; less is more harm.
Left = Callable[[Sequence[tuple[Unit, ...]]], Floats]


def most_harmful(left: Left, pools: dict[Stratum, tuple[list[Unit], int]], width: int) -> list[Unit]:
    """Units in the order in which they are taken, as many of each stratum as it needs.

    First every unit alone; then, one after the other, the unit that does most harm beside those that are taken, tried
    among the `width` of each stratum that do most harm alone. Ties: canonical order.

    Parameters
    ----------
    left:
        Measured on examples that will not judge what is found.
    pools:
        `circuittest.controls.strata` of the circuit.
    """
    units = sorted(unit for pool, _ in pools.values() for unit in pool)
    stratum = {unit: key for key, (pool, _) in pools.items() for unit in pool}
    alone = dict(zip(units, left([(unit,) for unit in units]).mean(1).tolist(), strict=True))
    wanted = {key: need for key, (_, need) in pools.items()}
    taken: list[Unit] = []
    while sum(wanted.values()):
        tried = []
        for key, need in wanted.items():
            free = [unit for unit in units if stratum[unit] == key and unit not in taken] if need else []
            tried += sorted(free, key=lambda unit: (alone[unit], unit))[:width]
        if taken:
            harm = left([tuple(sorted([*taken, unit])) for unit in tried]).mean(1).tolist()
        else:
            harm = [alone[unit] for unit in tried]
        best = min(zip(harm, tried, strict=True))[1]
        taken.append(best)
        wanted[stratum[best]] -= 1
    return taken

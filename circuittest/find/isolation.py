"""Is a community more isolated than chance, on examples that did not propose it?

Clustering finds isolated sets in pure noise, so isolation where the community was found shows nothing. On other
examples it is compared with random sets of as many heads, of as many in each layer, or of as many at each level of rest
on the first token: heads of a layer read the same input, and heads that rest go together whatever they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

from circuittest.controls import matched_controls
from circuittest.errors import ControlError
from circuittest.find.cluster_scores import isolation
from circuittest.find.communities import Structure
from circuittest.units import Layout, Unit

MATCHES = ("kind", "layer", "sink")
DRAWS = 499
#: Levels of rest on the first token, with equally many heads each.
SINK_LEVELS = 3


def isolation_elsewhere(
    units: Sequence[Unit],
    there: Structure,
    layout: Layout,
    levels: Mapping[Unit, int],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float | None, dict[str, float | None]]:
    """Isolation of a set in a structure of other examples, and its rank p among random sets for each of `MATCHES`.

    Heads that do not take part there are left out. The random sets are drawn from all heads that do, the community's
    own included, so that the rank is exact; None where isolation is undefined or no other such set exists.
    """
    known = [unit for unit in units if unit in there.units]
    place = {unit: row for row, unit in enumerate(there.units)}
    own = isolation(there.matrix, [place[unit] for unit in known]) if known else float("nan")
    if isnan(own):
        return None, dict.fromkeys(MATCHES)
    found: dict[str, float | None] = {}
    for match in MATCHES:
        try:
            drawn = matched_controls(
                known,
                there.units,
                layout,
                count=draws,
                seed=seed,
                match=match,
                outside=False,
                levels=levels if match == "sink" else None,
            )
        except ControlError:
            found[match] = None
            continue
        others = [isolation(there.matrix, [place[unit] for unit in units]) for units in drawn.sets]
        beyond = sum(value >= own * (1 - 1e-12) for value in others)
        found[match] = (1 + beyond) / (1 + len(others))
    return own, found


def sink_levels(rest: Mapping[Unit, float], levels: int = SINK_LEVELS) -> dict[Unit, int]:
    """The level of every head, 0 for those that attend least to the first token; equally many in each level."""
    order = sorted(rest, key=lambda unit: (rest[unit], unit))
    return {unit: levels * rank // len(order) for rank, unit in enumerate(order)}

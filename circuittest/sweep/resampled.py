"""Circuits found again on resampled examples, and how alike two circuits are beyond what the examples do by chance.

Circuits vary with the examples that choose them: with few examples two looks at one model may differ as much as two
checkpoints. So each circuit is found again, by the same recipe, on discovery examples that are drawn with replacement.
The scores of every example are there already, so that this costs no run of the model. For a minimal circuit the
ranking is drawn again and the number of edges taken stays, since searching for that would run the model.

A sample with replacement holds about 63 % of the examples, so that resampled circuits differ more than those of new
examples would. They are compared with each other only, in one checkpoint and across two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.circuit import Circuit
from circuittest.find.series import Band, band
from circuittest.stats.resampling import count_blocks
from circuittest.tables import Member

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Of the resampling. The same in every item, so that two checkpoints see the same samples of the same examples.
SEED = 0


def resampled(lab: Any, how: Mapping[str, Any], found: Circuit, draws: int) -> dict[str, Any]:
    """A circuit found again on samples of the discovery examples.

    Parameters
    ----------
    how:
        The ``circuit:`` of a spec that gave it.
    draws:
        How many samples.

    Returns
    -------
    dict
        ``members``, those that are in any of them; ``sets``, the places among these of each sample's; ``undefined``,
        why there are none, or "".
    """
    if not draws:
        return {"members": [], "sets": [], "undefined": "no resamples were asked for"}
    if how.get("method") == "minimal":
        return _minimal(lab, how, draws)
    return _shared(lab, found, draws)


def _shared(lab: Any, found: Circuit, draws: int) -> dict[str, Any]:
    from circuittest.find.ranking import per_example
    from circuittest.find.recipe import recipe_of, scoring_of
    from circuittest.find.shared import share_of_examples

    recipe = recipe_of(found.origin)
    if recipe is None:
        return {"members": [], "sets": [], "undefined": "the circuit does not say how it was found"}
    ranked = per_example(lab.scores("discover", **scoring_of(recipe)), recipe["top"])
    share = share_of_examples(recipe["at"])
    inside = ranked.inside.astype(np.float64)
    n = len(inside)
    picked = [
        (np.rint(weights @ inside).astype(np.int64) * 100 * share.denominator) >= share.numerator * n
        for weights in count_blocks(SEED, draws, n)
    ]
    return _packed(ranked.members, np.concatenate(picked))


def _minimal(lab: Any, how: Mapping[str, Any], draws: int) -> dict[str, Any]:
    from circuittest.find.minimal import from_logits, holds, nodes
    from circuittest.find.sizes import connected

    options = {key: value for key, value in how.items() if key not in ("method", "level")}
    found = lab.minimal(**options)
    if not found.reached:
        return {"members": [], "sets": [], "undefined": found.reason}
    place = holds([point.faithfulness for point in found.curve], found.level)
    taken = found.curve[place or 0].taken
    scoring = {key: found.circuit.origin[key] for key in ("method", "steps") if key in found.circuit.origin}
    table = lab.scores("discover", universe="all", level="edges", **scoring)
    by_edges = how.get("level") == "edges"
    sets: list[tuple[Member, ...]] = []
    for block in count_blocks(SEED, draws, len(table.examples)):
        for weights in block.astype(np.int64):
            drawn = table.rows(np.repeat(np.arange(len(weights)), weights).tolist())
            edges = connected(from_logits(drawn, lab.layout)[:taken], lab.layout)
            sets.append(tuple(edges) if by_edges else nodes(edges))
    members = tuple(sorted({member for one in sets for member in one}, key=lambda member: member.order))
    column = {member: place for place, member in enumerate(members)}
    rows = np.zeros((len(sets), len(members)), dtype=bool)
    for row, one in enumerate(sets):
        rows[row, [column[member] for member in one]] = True
    return _packed(members, rows)


def _packed(members: Sequence[Member], rows: NDArray[np.bool_]) -> dict[str, Any]:
    used = np.flatnonzero(rows.any(0))
    return {
        "members": [str(members[place]) for place in used.tolist()],
        "sets": [np.flatnonzero(row).tolist() for row in rows[:, used]],
        "undefined": "",
    }


def alike(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> list[float | None]:
    """Jaccard index of each sample's circuits in two checkpoints; None where both are empty. [] without samples."""
    return _jaccards(a, b, 0)


def same_and_apart(
    a: Mapping[str, Any] | None, b: Mapping[str, Any] | None
) -> tuple[float | None, float | None]:
    """Mean Jaccard index of circuits of different samples: within one checkpoint (mean of both), and across the two.

    Like with like: where circuits do not change, both are the same but for chance; the more they do, the further the
    second lies below the first. None where no pair of samples has a circuit.
    """
    within = [_mean(_jaccards(one, one, 1)) for one in (a, b)]
    both = None if within[0] is None or within[1] is None else (within[0] + within[1]) / 2
    return both, _mean(_jaccards(a, b, 1))


def bands(series: Sequence[Sequence[float | None]]) -> list[Band | None]:
    """The middle 95 % of each place's values over samples; `series` is [places][samples]."""
    return [band(values) for values in series]


def _jaccards(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None, shift: int) -> list[float | None]:
    """Sample by sample, each with the one `shift` places further on the other side."""
    if a is None or b is None or len(a["sets"]) != len(b["sets"]):
        return []
    first, second = _sets(a), _sets(b)
    found: list[float | None] = []
    for place, one in enumerate(first):
        other = second[(place + shift) % len(second)]
        either = len(one | other)
        found.append(len(one & other) / either if either else None)
    return found


def _sets(packed: Mapping[str, Any]) -> list[set[str]]:
    members = packed["members"]
    return [{members[place] for place in one} for one in packed["sets"]]


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None

"""Roles of heads over a series: how much of each is in the circuit, since when it is there, and who took over.

As in arXiv 2407.10827, section 3.2: the scores of the heads in each checkpoint's circuit are summed. The paper divides
each curve by its own largest value, which hides how strong a role is; that stands beside the sum here.

A head *has* a role where its mean score is at least a level. It *loses* it where its score falls below the level from
one checkpoint to the next, by more than twice the standard error of the fall, so that a score that wavers about the
level is no loss. A head *takes over* where it rises above the level at the same time, by more than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from circuittest.find.series import holds_from

#: A fall or rise counts beyond so many of its standard errors.
ERRORS = 2.0

Scores = Mapping[str, Sequence[float | None]]


def role_curves(
    names: Sequence[str], results: Sequence[Mapping[str, Any]], least: float
) -> dict[str, dict[str, Any]]:
    """Every role that was scored, over the checkpoints of one run.

    Parameters
    ----------
    names:
        What the checkpoints are called.
    results:
        Of their items.
    least:
        The level from which on a head has a role.

    Returns
    -------
    dict
        Role → ``curve``, one entry a checkpoint: ``model``; ``in_circuit``, the sum of the scores of the circuit's
        heads (None where there is no circuit, or it has parts of MLPs), and ``of_largest``, its share of the largest of
        the run; ``all``, the sum over all heads; ``heads``, those that have the role, with their scores; ``largest``, a
        head and its score; ``undefined``.
        ``appears_at``, the first checkpoint with a head that has the role; ``stays_from``, the first from which there
        always is one; ``lost``, see `losses`.
    """
    kinds = dict.fromkeys(kind for one in results for kind in one["roles"])
    found: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        scores = [one["roles"].get(kind, {"heads": {}, "undefined": "not asked for"}) for one in results]
        circuits = [_heads(one["circuit"]) for one in results]
        sums = [_sum(part["heads"], heads) for part, heads in zip(scores, circuits, strict=True)]
        most = max((value for value in sums if value is not None), default=0.0)
        curve = []
        for name, part, value in zip(names, scores, sums, strict=True):
            having = {head: mean for head, (mean, _) in part["heads"].items() if mean >= least}
            ranked = sorted(part["heads"].items(), key=lambda item: -item[1][0])
            curve.append(
                {
                    "model": name,
                    "in_circuit": value,
                    "of_largest": value / most if value is not None and most > 0 else None,
                    "all": _sum(part["heads"], set(part["heads"])) if part["heads"] else None,
                    "heads": dict(sorted(having.items(), key=lambda item: -item[1])),
                    "largest": [ranked[0][0], ranked[0][1][0]] if ranked else None,
                    "undefined": part["undefined"],
                }
            )
        there = [bool(one["heads"]) for one in curve]
        stays = holds_from(there)
        found[kind] = {
            "curve": curve,
            "appears_at": names[there.index(True)] if any(there) else None,
            "stays_from": None if stays is None else names[stays],
            "lost": losses(names, [part["heads"] for part in scores], circuits, least),
        }
    return found


def losses(
    names: Sequence[str], scores: Sequence[Scores], circuits: Sequence[set[str] | None], least: float
) -> list[dict[str, Any]]:
    """Heads that lost a role, and who took over.

    Parameters
    ----------
    scores:
        Of each checkpoint: head → mean score and its standard error.
    circuits:
        The heads of each checkpoint's circuit; None where there is none.

    Returns
    -------
    list
        In the order of the checkpoints: ``head``; ``at``, where the role is gone; ``before`` and ``after``, the scores;
        ``was_in_circuit``; ``taken_over_by``, heads that have the role there and had not (``head``, ``before``,
        ``after``, ``in_circuit``), the largest rise first; ``kept_by``, heads that had it and still have; ``next``,
        where there are neither, the first later checkpoint at which a head has it (``model``, ``heads``), or None.
    """
    found = []
    for place in range(1, len(names)):
        before, after = scores[place - 1], scores[place]
        both = [head for head in before if head in after]
        lost = [head for head in both if _fell(before[head], after[head], least)]
        gained = [head for head in both if _fell(after[head], before[head], least)]
        kept = [head for head in both if _mean(before[head]) >= least and _mean(after[head]) >= least]
        for head in sorted(lost, key=lambda head: (_mean(after[head]) - _mean(before[head]), head)):
            found.append(
                {
                    "head": head,
                    "at": names[place],
                    "before": _mean(before[head]),
                    "after": _mean(after[head]),
                    "was_in_circuit": _inside(head, circuits[place - 1]),
                    "taken_over_by": [
                        {
                            "head": other,
                            "before": _mean(before[other]),
                            "after": _mean(after[other]),
                            "in_circuit": _inside(other, circuits[place]),
                        }
                        for other in sorted(gained, key=lambda h: (_mean(before[h]) - _mean(after[h]), h))
                    ],
                    "kept_by": kept,
                    "next": None if gained or kept else _next(names, scores, place, least),
                }
            )
    return found


def _fell(before: Sequence[float | None], after: Sequence[float | None], least: float) -> bool:
    """From the level or above it to below it, beyond chance. Without a standard error every fall counts."""
    fall = _mean(before) - _mean(after)
    error = math.hypot(before[1] or 0.0, after[1] or 0.0)
    return _mean(before) >= least > _mean(after) and fall > ERRORS * error


def _next(names: Sequence[str], scores: Sequence[Scores], place: int, least: float) -> dict[str, Any] | None:
    for name, part in zip(names[place + 1 :], scores[place + 1 :], strict=True):
        heads = [head for head in part if _mean(part[head]) >= least]
        if heads:
            return {"model": name, "heads": heads}
    return None


def _heads(circuit: Mapping[str, Any] | None) -> set[str] | None:
    """The heads that a circuit's members stand for."""
    if circuit is None or circuit["heads"] is None:
        return None
    return set(circuit["heads"])


def _inside(head: str, circuit: set[str] | None) -> bool | None:
    return None if circuit is None else head in circuit


def _sum(scores: Scores, heads: set[str] | None) -> float | None:
    if heads is None or not scores:
        return None
    return math.fsum(_mean(scores[head]) for head in scores if head in heads)


def _mean(score: Sequence[float | None]) -> float:
    return score[0] if score[0] is not None else math.nan

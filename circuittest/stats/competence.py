"""The competence gate: a model that cannot do the task has no circuit for it to judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from circuittest.errors import UsageError
from circuittest.stats.mean import MeanInference
from circuittest.stats.paired import PairedDifferenceInference
from circuittest.stats.proportion import ProportionInference
from circuittest.stats.resampling import Floats, sample

#: How far above its floor a model must be, as a lower confidence bound (claims.md, "Gates").
HEADROOM = 0.2


@dataclass(frozen=True)
class Competence:
    """Result of the gate.

    Attributes
    ----------
    passed:
        Whether the lower bound of acc(empty) - floor is at least `headroom`.
    accuracy, floor, floor_name:
        acc(empty); the highest floor and which one it is ("chance", "majority", "ablated").
    lower:
        The smallest lower bound of acc(empty) - floor over the floors. Every floor must be cleared, so that
        no correction for their number is needed (an intersection-union test, Berger 1982).
    floors, lowers:
        The same, floor by floor.
    headroom, confidence, n:
        As asked.
    reason:
        Why the gate failed, with its numbers; "" when it passed.
    """

    passed: bool
    accuracy: float
    floor: float
    floor_name: str
    lower: float
    floors: dict[str, float]
    lowers: dict[str, float]
    headroom: float
    confidence: float
    n: int
    reason: str


def competence(
    correct: ArrayLike,
    *,
    chance: float = 0.0,
    majority: float | ArrayLike = 0.0,
    ablated: ArrayLike | None = None,
    groups: Sequence[object] | None = None,
    headroom: float = HEADROOM,
    confidence: float = 0.95,
) -> Competence:
    """Judge whether a model is far enough above the floor of its task.

    Parameters
    ----------
    correct:
        Outcomes [n] in [0, 1] with nothing ablated.
    chance:
        Accuracy of guessing among the candidates (0 for the argmax over the vocabulary).
    majority:
        Accuracy of always giving the most frequent answer: a number, or outcomes [n] on the same examples.
    ablated:
        Outcomes [n] on the same examples with the whole universe ablated; None where it was not measured.
    groups:
        One label per example; examples of one label are drawn together.
    headroom:
        Required lower bound of acc(empty) - floor.
    """
    outcome = sample(correct, "the base outcome", (0.0, 1.0))
    if not 0.0 <= headroom < 1.0 or not 0.0 <= chance <= 1.0:
        raise UsageError(f"headroom {headroom!r} and chance {chance!r}", "both are fractions")
    rates: dict[str, float | Floats] = {"chance": float(chance)}
    if np.ndim(majority) == 0:
        rates["majority"] = float(np.asarray(majority, dtype=np.float64))
    else:
        rates["majority"] = sample(majority, "the majority answer's outcome", (0.0, 1.0))
    if ablated is not None:
        rates["ablated"] = sample(ablated, "the ablated outcome", (0.0, 1.0))

    floors, lowers = {}, {}
    for name, rate in rates.items():
        floors[name] = float(np.mean(rate))
        lowers[name] = _lower(outcome, rate, confidence, groups)
    floor_name = max(floors, key=lambda name: floors[name])
    lower = min(lowers.values())
    accuracy = float(outcome.mean())
    passed = lower >= headroom
    reason = ""
    if not passed:
        worst = min(lowers, key=lambda name: lowers[name])
        reason = (
            f"the model is not competent at the task: accuracy {accuracy:.2f} on n = {outcome.size}, "
            f"{worst} floor {floors[worst]:.2f}, "
            f"lower bound of the difference {lower:.2f} where {headroom:.2f} is needed"
        )
    return Competence(
        passed,
        accuracy,
        floors[floor_name],
        floor_name,
        lower,
        floors,
        lowers,
        headroom,
        confidence,
        int(outcome.size),
        reason,
    )


def _lower(
    outcome: Floats, rate: float | Floats, confidence: float, groups: Sequence[object] | None
) -> float:
    """Lower bound of mean(outcome) - rate; paired where the rate was measured on the same examples."""
    if isinstance(rate, float):
        if groups is None and np.isin(outcome, (0.0, 1.0)).all():
            return ProportionInference(int(outcome.sum()), outcome.size).interval(confidence)[0] - rate
        return MeanInference(outcome, groups).interval(confidence)[0] - rate
    return PairedDifferenceInference(outcome, rate, groups).interval(confidence)[0]

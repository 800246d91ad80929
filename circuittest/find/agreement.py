"""How far two tables rank alike: the check beside scores that were made in a cheaper way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from circuittest.errors import TableError
from circuittest.find.ranking import per_example
from circuittest.tables import ScoreTable


@dataclass(frozen=True)
class Agreement:
    """Means over examples.

    Attributes
    ----------
    spearman:
        Rank correlation of an example's scores in one table with those in the other.
    overlap:
        |C ∩ C'| / |C| of its circuits of the top K %.
    examples:
        How many.
    """

    spearman: float
    overlap: float
    examples: int


def agreement(one: ScoreTable, other: ScoreTable, top: str) -> Agreement:
    """Compare the rankings of two tables, example by example. Raises TableError where rows or columns differ."""
    if one.members != other.members or one.examples != other.examples:
        raise TableError("two tables of other examples or members cannot be compared")
    ranks = [float(spearmanr(a, b).statistic) for a, b in zip(one.values, other.values, strict=True)]
    a, b = per_example(one, top), per_example(other, top)
    overlap = (a.inside & b.inside).sum(1) / a.inside.sum(1)
    return Agreement(float(np.mean(ranks)), float(overlap.mean()), len(one.examples))

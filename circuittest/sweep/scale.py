"""Sizes of circuits, and what claims estimate, against the logarithm of the number of parameters, over models.

As in arXiv 2407.10827, section 5, where circuit size in nodes is correlated with model size over five models. The
paper's published code takes 1.4 and 2.8 billion parameters for 14 and 28; parameters are counted here. Sizes stand as
numbers and as shares of what the model has: a circuit may grow in the one and shrink in the other.

A few models of one family are no sample of models, and five points give no small p-values: the correlation says what is
so in these models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

#: Up to this many models every order of the values is counted.
ENUMERATE = 8
#: Random orders where there are more.
DRAWS = 9999
#: Differences of correlations that are rounding.
_ROUNDING = 1e-12


def against_parameters(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A quantity against log10 of parameters.

    Parameters
    ----------
    points:
        One a model: ``model``, ``parameters``, ``value`` (either None where unknown).

    Returns
    -------
    dict
        ``points``, those with both; ``slope``, the change of the value for ten times the parameters, by least squares;
        ``r``, the correlation with log10 of parameters; ``rank_r``, that of the ranks, equal ones at their mean rank;
        ``p``, the share of orders of the values whose r is as far from 0 (all of them for up to eight models, random
        ones for more); ``undefined``, why these are None, or "".
    """
    known = [point for point in points if point["parameters"] and point["value"] is not None]
    x = np.log10([float(point["parameters"]) for point in known])
    y = np.array([float(point["value"]) for point in known])
    nothing = dict.fromkeys(("slope", "r", "rank_r", "p"))
    listed = [{key: point[key] for key in ("model", "parameters", "value")} for point in known]
    if len(np.unique(x)) < 3:
        why = f"it needs models of three different sizes, and has {len(np.unique(x))}"
        return {"points": listed, **nothing, "undefined": why}
    slope = float(_covariance(x, y) / _covariance(x, x))
    if np.ptp(y) == 0:
        why = "the value is the same in all models"
        return {"points": listed, **nothing, "slope": slope, "undefined": why}
    return {
        "points": listed,
        "slope": slope,
        "r": _correlation(x, y),
        "rank_r": _correlation(_ranks(x), _ranks(y)),
        "p": _p(x, y),
        "undefined": "",
    }


def _p(x: Any, y: Any) -> float:
    """Two-sided, of no relation: every order of the values is as likely."""
    observed = abs(_correlation(x, y)) - _ROUNDING
    if len(y) <= ENUMERATE:
        found = [abs(_correlation(x, y[list(order)])) for order in permutations(range(len(y)))]
        return sum(one >= observed for one in found) / len(found)
    rng = np.random.Generator(np.random.PCG64(0))
    larger = sum(abs(_correlation(x, rng.permutation(y))) >= observed for _ in range(DRAWS))
    return (1 + larger) / (1 + DRAWS)


def _covariance(a: Any, b: Any) -> Any:
    return ((a - a.mean()) * (b - b.mean())).sum()


def _correlation(a: Any, b: Any) -> float:
    return float(_covariance(a, b) / math.sqrt(_covariance(a, a) * _covariance(b, b)))


def _ranks(values: Any) -> Any:
    """From 0; equal values share their mean rank."""
    return np.array([(values < one).sum() + ((values == one).sum() - 1) / 2 for one in values])

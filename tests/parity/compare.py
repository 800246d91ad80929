"""Ours against another tool's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from circuittest.measure.attribution import attribute
from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module
from tests.parity import gpt2


@cache
def loaded() -> LoadedModel:
    """The model of the comparison, as ours."""
    return from_module(gpt2.model(), name="gpt2")


def difference(theirs: Mapping[str, Sequence[float]], **choices: Any) -> float:
    """Largest difference in any score of any example, relative to that example's largest score.

    Both must name the same units or edges.
    """
    table = attribute(loaded(), gpt2.items(), metric="logit_diff", **choices)
    names = [str(member) for member in table.members]
    if set(names) != set(theirs):
        raise KeyError(sorted(set(names) ^ set(theirs)))
    expected = np.array([theirs[name] for name in names]).T
    return float((np.abs(table.values - expected).max(1) / np.abs(expected).max(1)).max())

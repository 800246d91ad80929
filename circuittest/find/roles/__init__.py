"""Roles of heads: what they look at, what they move, and whether the model needs it.

A role is a form. That a head looks like an induction head does not say that the model uses it: closure decides that
(`circuittest.find.roles.functions`).
"""

from circuittest.find.roles.copying import COPYING, copying_scores, successor_scores
from circuittest.find.roles.patterns import RoleTable, pattern_scores, selectivity
from circuittest.find.roles.spread import (
    effective_rank,
    growth,
    output_spread,
    participation_ratio,
    target_spread,
)
from circuittest.find.roles.targets import PATTERNS, targets

#: Every role that can be scored.
ROLES = (*PATTERNS, *COPYING, "successor")

__all__ = [
    "COPYING",
    "PATTERNS",
    "ROLES",
    "RoleTable",
    "copying_scores",
    "effective_rank",
    "growth",
    "output_spread",
    "participation_ratio",
    "pattern_scores",
    "selectivity",
    "successor_scores",
    "target_spread",
    "targets",
]

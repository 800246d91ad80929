"""Tables of role scores: one score of every head on every example. No torch, so that stores can be read without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circuittest.units import Unit


@dataclass(frozen=True, eq=False)  # arrays have no single truth value, so tables compare by identity
class RoleTable:
    """One score of every head on every example.

    Attributes
    ----------
    kind:
        The role.
    values:
        float64 array [examples × heads]; a row of NaN where the score is undefined.
    heads:
        In canonical order.
    examples:
        Index of each row's example in its task; of "successor" the tokens, as they are counted.
    undefined:
        Why an example may have no score, in words; "" where all have one.
    choices:
        Everything that could have changed the numbers, plain JSON types.
    """

    kind: str
    values: NDArray[np.float64]
    heads: tuple[Unit, ...]
    examples: tuple[int, ...]
    undefined: str = ""
    choices: Mapping[str, Any] = field(default_factory=dict)

    @property
    def defined(self) -> NDArray[np.bool_]:
        """Which examples have a score [examples]."""
        return np.asarray(~np.isnan(self.values).any(1))

    def of(self, heads: Iterable[Unit]) -> NDArray[np.float64]:
        """The defined scores of some heads, in the order given [defined examples × heads]."""
        columns = [self.heads.index(head) for head in heads]
        return self.values[self.defined][:, columns]

    def means(self) -> dict[Unit, float]:
        """Each head's mean over the examples that have a score; empty where none has."""
        rows = self.values[self.defined]
        if not len(rows):
            return {}
        return dict(zip(self.heads, rows.mean(0).tolist(), strict=True))


@dataclass(frozen=True)
class RoleTables:
    """Tables that were measured together, by role; of the same heads and examples."""

    by_kind: Mapping[str, RoleTable]

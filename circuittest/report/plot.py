"""What a drawing of a record is, and which numbers an axis can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

#: No more cells than people can look at: neurons by the thousand stay in the record.
MOST_COLUMNS, MOST_MATRIX, MOST_ROWS = 128, 40, 60
#: Beyond this, differences of numbers may be infinite.
MOST = 1e100


@dataclass(frozen=True)
class Plot:
    """A drawing, what it shows, and its numbers as a table.

    Attributes
    ----------
    svg:
        The drawing.
    caption:
        One or two sentences.
    columns, rows:
        The numbers; every row begins with its heading.
    """

    svg: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def is_number(value: Any) -> TypeGuard[float]:
    """Is this a number that an axis can hold?"""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MOST

"""Where attribution puts its rows: in memory, or straight into a file when the table is large.

The file is what `ScoreTable.save` would have written. Its header comes first but tells what is known last (the batches
that were run), so room is left for the longest it can become.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import TableError
from circuittest.tables import Member, ScoreTable, header_of


class Rows:
    """The rows of a score table, held in memory until it is finished."""

    def __init__(self, members: Sequence[Member], examples: Sequence[int]) -> None:
        self.members, self.examples = tuple(members), tuple(examples)
        self.values = np.full((len(self.examples), len(self.members)), np.nan, dtype=np.float32)

    def put(self, rows: Sequence[int], values: NDArray[np.float32]) -> None:
        """Set some rows, by position; they may be set again."""
        self.values[list(rows)] = values

    def finish(self, choices: Mapping[str, Any]) -> ScoreTable:
        """The table. Raises TableError where a score is not finite, or a row was not set."""
        return ScoreTable(self.values, self.members, self.examples, choices)

    def drop(self) -> None:
        """Leave nothing behind."""


class StreamedRows(Rows):
    """The rows of a score table, written to a file one by one.

    Parameters
    ----------
    longest:
        Choices whose text is at least as long as that of those given to `finish`.
    """

    def __init__(
        self, path: str | Path, members: Sequence[Member], examples: Sequence[int], longest: Mapping[str, Any]
    ) -> None:
        self.members, self.examples = tuple(members), tuple(examples)
        self.path, self._part = Path(path), Path(f"{path}.part")
        self._room = len(header_of(self.members, self.examples, longest))
        self._done = np.zeros(len(self.examples), dtype=bool)
        self._file = self._part.open("wb")

    def put(self, rows: Sequence[int], values: NDArray[np.float32]) -> None:
        """Write some rows, by position; they may be written again."""
        width = 4 * len(self.members)
        for row, line in zip(rows, np.ascontiguousarray(values, dtype="<f4"), strict=True):
            self._file.seek(self._room + row * width)
            self._file.write(line.data)
            self._done[row] = True

    def finish(self, choices: Mapping[str, Any]) -> ScoreTable:
        """Complete the file; the table's values stay in it."""
        header = header_of(self.members, self.examples, choices, room=self._room)
        if len(header) != self._room or not self._done.all():
            raise TableError(f"{self.path} was not completed", "rows or room for the header are missing")
        self._file.seek(0)
        self._file.write(header)
        self._file.close()
        os.replace(self._part, self.path)
        return ScoreTable.load(self.path, mapped=True)

    def drop(self) -> None:
        """Remove what is not finished."""
        self._file.close()
        self._part.unlink(missing_ok=True)

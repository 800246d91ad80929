"""Per-example tables: the primary artefacts from which every claim is computed without another model run."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import TableError
from circuittest.units import Edge, Unit, parse

Member = Unit | Edge

#: Entries of a score table that are looked at together.
CHECKED = 1 << 22


@dataclass(frozen=True, eq=False)  # arrays have no single truth value, so tables compare by identity
class ScoreTable:
    """Attribution of every unit (or edge) on every example.

    Attributes
    ----------
    values:
        float32 array [examples × members]; the metric's change per unit of intervention, signed unless the
        score rule takes absolute values.
    members:
        The units or edges of the columns, in canonical order.
    examples:
        Index of each row's example in its task.
    choices:
        Everything that could have changed the numbers, plain JSON types.
    """

    values: NDArray[np.float32]
    members: tuple[Member, ...]
    examples: tuple[int, ...]
    choices: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.examples), len(self.members)):
            raise TableError(
                f"a score table of shape {self.values.shape}",
                f"{len(self.examples)} examples and {len(self.members)} members were named",
            )
        if list(self.members) != sorted(set(self.members), key=lambda m: m.order):
            raise TableError("the columns of a score table are not in canonical order, or repeat")
        step = max(1, CHECKED // max(1, len(self.members)))
        for start in range(0, len(self.examples), step):
            finite = np.isfinite(self.values[start : start + step])
            _release(self.values)
            if finite.all():
                continue
            row, column = np.argwhere(~finite)[0] + (start, 0)
            raise TableError(
                f"the score of {self.members[column]} on example {self.examples[row]} is not finite",
                "the model's activations or gradients overflowed",
                "run in float32, or drop the example",
            )

    def columns(self, members: Iterable[Member]) -> ScoreTable:
        """The table restricted to some members (kept in canonical order)."""
        wanted = set(members)
        keep = [i for i, member in enumerate(self.members) if member in wanted]
        if len(keep) != len(wanted):
            missing = sorted(str(m) for m in wanted - set(self.members))
            raise TableError(f"the score table has no {missing[0]}", "it was not attributed")
        kept = tuple(self.members[i] for i in keep)
        return ScoreTable(np.ascontiguousarray(self.values[:, keep]), kept, self.examples, self.choices)

    def rows(self, positions: Sequence[int]) -> ScoreTable:
        """The table restricted to some rows, by position."""
        examples = tuple(self.examples[i] for i in positions)
        return ScoreTable(self.values[list(positions)], self.members, examples, self.choices)

    def interleaved(self, other: ScoreTable) -> ScoreTable:
        """A table of the rows of both in turn, beginning here. Choices that differ are kept as a pair."""
        if self.members != other.members or len(self.examples) - len(other.examples) not in (0, 1):
            raise TableError("these score tables have other columns, or no rows that alternate")
        values = np.empty((len(self.examples) + len(other.examples), len(self.members)), dtype=np.float32)
        values[0::2], values[1::2] = self.values, other.values
        examples = [0] * len(values)
        examples[0::2], examples[1::2] = self.examples, other.examples
        choices = {
            key: value if other.choices.get(key) == value else [value, other.choices.get(key)]
            for key, value in self.choices.items()
        }
        return ScoreTable(values, self.members, tuple(examples), choices)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file; ids, examples and choices are in its metadata."""
        values = np.ascontiguousarray(self.values, dtype="<f4")
        header = header_of(self.members, self.examples, self.choices)
        with Path(path).open("wb") as file:
            file.write(header)
            file.write(values.data)

    @classmethod
    def load(cls, path: str | Path, *, mapped: bool = False) -> ScoreTable:
        """Read what `save` wrote; with `mapped` the values stay on disk, read-only, until they are used.

        Raises TableError where it is not such a file.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="numpy") as file:
                meta = file.metadata()
                values = _mapped(path) if mapped else file.get_tensor("values")
            members = tuple(parse(m) for m in json.loads(meta["members"]))
            examples = tuple(json.loads(meta["examples"]))
            return cls(values, members, examples, json.loads(meta["choices"]))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise TableError(f"{path} is not a score table", str(error)) from error


def header_of(
    members: Sequence[Member], examples: Sequence[int], choices: Mapping[str, Any], *, room: int = 0
) -> bytes:
    """What a file of scores begins with: the safetensors header, in one order, so that equal tables are equal bytes.

    It is filled up to `room` bytes.
    """
    shape = [len(examples), len(members)]
    meta = {
        "members": json.dumps([str(m) for m in members]),
        "examples": json.dumps(list(examples)),
        "choices": json.dumps(dict(choices), sort_keys=True),
    }
    values = {"data_offsets": [0, 4 * shape[0] * shape[1]], "dtype": "F32", "shape": shape}
    text = json.dumps(
        {"__metadata__": meta, "values": values}, sort_keys=True, separators=(",", ":")
    ).encode()
    text += b" " * max(-len(text) % 8, room - 8 - len(text))
    return len(text).to_bytes(8, "little") + text


def _release(values: NDArray[np.float32]) -> None:
    """Let go of the pages of a mapped file that were read; they are read again when needed."""
    mapping = getattr(values, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def _mapped(path: str | Path) -> NDArray[np.float32]:
    with Path(path).open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        values = json.loads(file.read(start - 8))["values"]
    if values["dtype"] != "F32":
        raise TableError(f"{path} is not a score table", f"its values are {values['dtype']}")
    return np.memmap(path, dtype="<f4", mode="r", offset=start, shape=tuple(values["shape"]))


#: Measures that compare answers with foils: outcome tables have them only where every example has some.
CONTRASTS = ("candidates", "logit_diff")


@dataclass(frozen=True, eq=False)  # arrays have no single truth value, so tables compare by identity
class OutcomeTable:
    """What the model does on every example under every intervention.

    Attributes
    ----------
    sets:
        The units that each row ablates, in canonical order; the empty set is the untouched model. Of patched circuits
        the members that each row keeps, or replaces (`choices` says which).
    columns:
        Measure → float64 array [sets × examples]. "argmax" and "candidates" are 0 or 1 (correct by the argmax of
        the whole vocabulary; best answer above best foil), "log_prob" in nats, "logit_diff" in logits,
        "prob_diff" in [-1, 1].
    examples:
        Index of each column's example in its task.
    """

    sets: tuple[tuple[Member, ...], ...]
    columns: Mapping[str, NDArray[np.float64]]
    examples: tuple[int, ...]
    choices: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.columns.items():
            if values.shape != (len(self.sets), len(self.examples)):
                raise TableError(
                    f"outcomes {name!r} of shape {values.shape}",
                    f"{len(self.sets)} sets and {len(self.examples)} examples were named",
                )
            if not np.isfinite(values).all():
                row, column = np.argwhere(~np.isfinite(values))[0]
                raise TableError(
                    f"{name} on example {self.examples[column]} is not finite",
                    f"under the intervention on {_listed(self.sets[row])}",
                    "run in float32, or drop the example",
                )

    def row(self, measure: str, members: Iterable[Member]) -> NDArray[np.float64]:
        """The values of one measure under one intervention, one per example. Raises TableError if it was not run."""
        key = tuple(sorted(set(members), key=lambda member: member.order))
        if key not in self.sets:
            raise TableError(f"no outcomes for the intervention on {_listed(key)}")
        return self.measure(measure)[self.sets.index(key)]

    def measure(self, name: str) -> NDArray[np.float64]:
        """[sets × examples] of one measure."""
        if name not in self.columns:
            why = (
                "it compares answers with foils of one token, which some examples lack"
                if name in CONTRASTS
                else ""
            )
            raise TableError(f"no outcomes {name!r}", why, f"known are {', '.join(sorted(self.columns))}")
        return self.columns[name]


def _listed(members: Sequence[Member]) -> str:
    text = ", ".join(map(str, members[:12])) or "nothing"
    return text + (f" and {len(members) - 12} more" if len(members) > 12 else "")

"""Partitions of a task into subtasks, written down as text and resolved on examples.

A partition is a cross of terms, joined by ``*``::

    template                  one block per value of a feature
    template * order          one block per combination
    sum >= 10                 two blocks: the predicate holds, or not
    template in 0, 1          the same for a set of values
    sum == 3 & carry == true vs sum == 12
                              two subtasks; examples of neither are left out
    random:2:7                two random blocks of equal size, seed 7

`str(partition)` is that text again, so partitions stand in spec files and verdict records as they are.

Sun (arXiv 2505.24731, definition 2) lets any partition of a task be one into subtasks. Similarities between blocks
depend on the number of examples that their means come from, so that all blocks are cut down to one size.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import TaskError, UsageError, did_you_mean
from circuittest.tasks.base import Feature

#: Smaller blocks are left out: a quarter of a block must still be a mean of several examples.
MIN_SIZE = 20

_HOW = (
    'write a feature ("template"), a predicate ("sum >= 10", "template in 0, 1"), two subtasks '
    '("sum == 3 vs sum == 12") or "random:2:0", crossed by " * "'
)
_NAME = r"[A-Za-z_][\w.\-]*"
_PREDICATE = re.compile(rf"({_NAME})\s*(==|!=|>=|<=|>|<|\bin\b)(?!=)\s*(\S.*)")
_RANDOM = re.compile(r"random:(\d+)(?::(\d+))?")
_MARKS = re.compile(r"&|(^|\s)vs(\s|$)")
#: Between two subtasks, and between the predicates of one, outside of quotes.
_VS, _AND = (re.compile(rf"{mark}(?=(?:[^']*'[^']*')*[^']*$)") for mark in (r"\s+vs\s+", r"\s*&\s*"))
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class Featured(Protocol):
    """What a partition reads of an example."""

    @property
    def features(self) -> Mapping[str, Feature]: ...

    @property
    def group(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ByFeature:
    """One block per value of a feature."""

    name: str

    def __str__(self) -> str:
        return self.name

    def labels(self, items: Sequence[Featured]) -> list[str]:
        """The value of each item, as ``name=value``."""
        return [f"{self.name}={value}" for value in _values(items, self.name)]


@dataclass(frozen=True, slots=True)
class Where:
    """Two blocks: a comparison of a feature with a value holds, or it does not."""

    name: str
    op: str
    value: Feature | tuple[Feature, ...]

    def __str__(self) -> str:
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        return f"{self.name} {self.op} {', '.join(_written(v) for v in values)}"

    def labels(self, items: Sequence[Featured]) -> list[str]:
        """The predicate, or ``not (predicate)``, of each item. Raises TaskError where it cannot be compared."""
        try:
            holds = [self._holds(value) for value in _values(items, self.name)]
        except TypeError as error:
            raise TaskError(f"the predicate {str(self)!r} cannot be evaluated", str(error)) from None
        return [str(self) if one else f"not ({self})" for one in holds]

    def _holds(self, found: Feature) -> bool:
        if self.op == "in":
            return isinstance(self.value, tuple) and found in self.value
        return bool(_COMPARE[self.op](found, self.value))


@dataclass(frozen=True, slots=True)
class AtRandom:
    """Blocks of equal size drawn at random: what a partition without meaning gives."""

    blocks: int
    seed: int

    def __str__(self) -> str:
        return f"random:{self.blocks}:{self.seed}"

    def labels(self, items: Sequence[Featured]) -> list[str]:
        """``random 0`` … of each item; sizes differ by one at most."""
        order = np.random.Generator(np.random.PCG64(self.seed)).permutation(len(items))
        return [f"random {place % self.blocks}" for place in np.argsort(order)]


@dataclass(frozen=True, slots=True)
class Versus:
    """Two subtasks, each the examples for which some predicates hold; examples of neither are in no block."""

    one: tuple[Where, ...]
    two: tuple[Where, ...]

    def __str__(self) -> str:
        return " vs ".join(" & ".join(map(str, side)) for side in (self.one, self.two))

    def labels(self, items: Sequence[Featured]) -> list[str | None]:
        """The predicates of each item's subtask, None for neither. Raises TaskError for an example that is in both."""
        found: list[str | None] = [None] * len(items)
        for side in (self.one, self.two):
            label = " & ".join(map(str, side))
            columns = [where.labels(items) for where in side]
            for place, row in enumerate(zip(*columns, strict=True)):
                if any(text != str(where) for text, where in zip(row, side, strict=True)):
                    continue
                if found[place] is not None:
                    raise TaskError(
                        f"the subtasks of {str(self)!r} share examples",
                        "what is in both makes them alike",
                        "write predicates that exclude each other",
                    )
                found[place] = label
        return found


Term = ByFeature | Where | AtRandom | Versus


@dataclass(frozen=True)
class Blocks:
    """A partition resolved on examples.

    Attributes
    ----------
    labels:
        Of the blocks kept, sorted.
    positions:
        For each block, which of the examples it holds, ascending; `n` each.
    sizes:
        Examples of every block before it was cut to `n`, blocks left out included, examples of no block not.
    left_out:
        Labels of the blocks with too few examples.
    """

    labels: tuple[str, ...]
    positions: tuple[NDArray[np.intp], ...]
    sizes: Mapping[str, int]
    left_out: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Examples in each block; 0 where no block was kept."""
        return len(self.positions[0]) if self.positions else 0

    @property
    def rows(self) -> NDArray[np.intp]:
        """All examples kept, block after block [blocks · n]."""
        return np.concatenate(self.positions) if self.positions else np.zeros(0, dtype=np.intp)

    @property
    def codes(self) -> NDArray[np.intp]:
        """The block of each of `rows`."""
        return np.repeat(np.arange(len(self.labels)), self.n)


@dataclass(frozen=True)
class Partition:
    """A cross of terms. `Partition.parse` reads the text form, `str` writes it."""

    terms: tuple[Term, ...] = field()

    def __post_init__(self) -> None:
        if not self.terms:
            raise UsageError("a partition has no terms", "", _HOW)

    @classmethod
    def parse(cls, text: str | Partition) -> Partition:
        """Read the text form. Raises UsageError."""
        if isinstance(text, Partition):
            return text
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"{text!r} is no partition", "", _HOW)
        return cls(tuple(_term(part.strip(), text) for part in text.split("*")))

    @classmethod
    def by(cls, *features: str) -> Partition:
        """One block per combination of values of some features. Raises UsageError for a name that no text can hold."""
        for name in features:
            if not re.fullmatch(_NAME, name):
                do = "rename it: letters, digits, _ . and -, no digit first"
                raise UsageError(f"the feature {name!r} cannot stand in a partition", "", do)
        return cls(tuple(ByFeature(name) for name in features))

    @classmethod
    def where(cls, name: str, op: str, value: Feature | Iterable[Feature]) -> Partition:
        """Two blocks by a predicate; `op` is one of ==, !=, >=, <=, >, < and in. Raises UsageError."""
        if op not in (*_COMPARE, "in"):
            raise UsageError(f"unknown comparison {op!r}", "", did_you_mean(op, (*_COMPARE, "in")))
        values = (value,) if isinstance(value, (str, int)) else tuple(value)
        for one in values:
            if not isinstance(one, (str, int)) or (
                isinstance(one, str) and (not one or set(one) & set("*,'"))
            ):
                do = "give a whole number, a bool, or text without * , and '"
                raise UsageError(f"{one!r} cannot stand in a predicate", "", do)
        if not values or (op != "in" and len(values) > 1):
            raise UsageError(f"{op} compares with one value, not {len(values)}", "", "use 'in' for several")
        return cls((Where(name, op, values if op == "in" else values[0]),))

    @classmethod
    def versus(cls, one: Mapping[str, Feature], two: Mapping[str, Feature]) -> Partition:
        """Two subtasks by the values of features: ``versus({"sum": 3}, {"sum": 12})``. Raises UsageError."""
        sides = []
        for side in (one, two):
            terms = [cls.where(name, "==", value).terms[0] for name, value in side.items()]
            sides.append(tuple(term for term in terms if isinstance(term, Where)))
        if not all(sides) or sides[0] == sides[1]:
            raise UsageError("a pair needs two different subtasks, each with a feature", "", _HOW)
        return cls((Versus(*sides),))

    @classmethod
    def random(cls, blocks: int = 2, seed: int = 0) -> Partition:
        """Random blocks of equal size. Raises UsageError for fewer than two."""
        return cls((_at_random(blocks, seed),))

    def __mul__(self, other: Partition) -> Partition:
        return Partition((*self.terms, *other.terms))

    def __str__(self) -> str:
        return " * ".join(map(str, self.terms))

    def __repr__(self) -> str:
        return f"Partition.parse({str(self)!r})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For Hypothesis and IPython, which would print the fields."""
        printer.text(repr(self))

    def labels(self, items: Sequence[Featured]) -> list[str | None]:
        """The block of each item, None for items that are in none. Raises TaskError as `resolve`."""
        columns = [term.labels(items) for term in self.terms]
        return [
            None if None in parts else ", ".join(str(part) for part in parts)
            for parts in zip(*columns, strict=True)
        ]

    def resolve(
        self, items: Sequence[Featured], *, n: int | None = None, min_size: int = MIN_SIZE, seed: int = 0
    ) -> Blocks:
        """The blocks on some examples, all of one size.

        Parameters
        ----------
        n:
            Examples per block; blocks with fewer are left out. By default the size of the smallest block kept.
        min_size:
            Blocks with fewer examples are left out.
        seed:
            Of the draw of `n` examples from each larger block.

        Raises
        ------
        TaskError
            Where an example has no such feature, and where an example is in both of two subtasks.
        UsageError
            For sizes that make no sense.
        """
        least = min_size if n is None else n
        if isinstance(least, bool) or not isinstance(least, int) or least < 1:
            raise UsageError(f"blocks of {least!r} examples", "a block has at least one", "say 50")
        labels = self.labels(items)
        sizes = dict(sorted(Counter(label for label in labels if label is not None).items()))
        kept = [label for label in sizes if sizes[label] >= least]
        size = n or min((sizes[label] for label in kept), default=0)
        rng = np.random.Generator(np.random.PCG64(seed))
        found = np.array(labels, dtype=object)
        drawn = []
        for label in kept:
            positions = np.flatnonzero(found == label)
            # a draw for every block, so that the draw of one does not depend on whether another was large enough
            drawn.append(np.sort(rng.permutation(positions)[:size]))
        return Blocks(tuple(kept), tuple(drawn), sizes, tuple(x for x in sizes if sizes[x] < least))


def _values(items: Sequence[Featured], name: str) -> list[Feature]:
    for item in items:
        if name not in item.features:
            known = sorted(set().union(*(one.features for one in items)))
            do = did_you_mean(name, known) if known else "give the examples of the task features"
            raise TaskError(f"the examples have no feature {name!r}", "", do)
    return [item.features[name] for item in items]


def _term(text: str, whole: str) -> Term:
    if found := _RANDOM.fullmatch(text):
        return _at_random(int(found[1]), int(found[2] or 0))
    if re.fullmatch(_NAME, text):
        return ByFeature(text)
    if len(sides := _VS.split(text)) > 1:
        made = [tuple(_term(part.strip(), whole) for part in _AND.split(side)) for side in sides]
        predicates = [tuple(term for term in side if isinstance(term, Where)) for side in made]
        if len(made) == 2 and predicates == made:
            return Versus(*predicates)
        raise UsageError(f"{whole!r} is no partition", f"{text!r} does not compare two subtasks", _HOW)
    if found := _PREDICATE.fullmatch(text):
        name, op, written = found.groups()
        values = [_read(part.strip(), whole) for part in written.split(",")] if op == "in" else []
        return Where(name, op, tuple(values) if op == "in" else _read(written.strip(), whole))
    raise UsageError(f"{whole!r} is no partition", f"{text!r} cannot be read" if text != whole else "", _HOW)


def _read(text: str, whole: str) -> Feature:
    """A value as `str` or a spec writes it: quotes keep text that looks like a number or a bool."""
    if not text:
        raise UsageError(f"{whole!r} is no partition", "a value is missing", _HOW)
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    if "&" in text:
        do = "put a value that holds & into ' quotes; to cross predicates write *"
        raise UsageError(f"{whole!r} is no partition", "& stands between the predicates of two subtasks", do)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else text


def _written(value: Feature) -> str:
    text = str(value)
    if isinstance(value, str) and (
        text != text.strip() or _MARKS.search(text) or _read(text or "x", text) != value
    ):
        return f"'{text}'"
    return text


def _at_random(blocks: int, seed: int) -> AtRandom:
    for what, value, least in (("random blocks", blocks, 2), ("a seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{what}: {value!r}", f"a whole number of at least {least}", "say random:2:0")
    return AtRandom(blocks, seed)

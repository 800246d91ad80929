"""Strategies over the examples of a task: partitions, subtasks and pairs of them, examples, prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from circuittest.errors import TaskError, UsageError
from circuittest.tasks import Example, Partition, Task, as_task
from circuittest.tasks.partitions import MIN_SIZE
from hypothesis_circuittest import profile as profile  # registers it

if TYPE_CHECKING:
    from circuittest.lab import Lab

#: As many examples as a lab holds by default.
EXAMPLES = 400
#: A stream that repeats itself is given up after so many examples for each one wanted.
PATIENCE = 20


def examples(task: str | Task, *, count: int = EXAMPLES, seed: int = 0) -> SearchStrategy[Example]:
    """Examples of a task as text: the first `count` different prompts of its stream. Shrinks towards the first."""
    return st.sampled_from(_examples(task, count, seed))


def prompts(task: str | Task, *, count: int = EXAMPLES, seed: int = 0) -> SearchStrategy[str]:
    """Prompts of a task as text; see `examples`."""
    return examples(task, count=count, seed=seed).map(lambda example: example.prompt)


def subtask_partitions(
    task: str | Task | Lab,
    *,
    min_size: int = MIN_SIZE,
    max_blocks: int = 8,
    max_terms: int = 2,
    count: int = EXAMPLES,
    seed: int = 0,
) -> SearchStrategy[Partition]:
    """Partitions of a task into subtasks, by features and predicates on them.

    A task given by name needs no model: its features are read off the first `count` examples of its stream, in the
    form that `auto` tries first; half of them stand for the discovery examples, half for the evaluation examples.
    Where a tokenizer gets another form, or lengths must be exact, pass the lab
    (``data.draw(subtask_partitions(lab))``).

    Parameters
    ----------
    min_size:
        Examples that every block must have in each of both splits: a search reads the one, and what it found is tested
        on the other.
    max_blocks:
        Blocks of a partition, two at least.
    max_terms:
        Features and predicates that are crossed at most: 1 or 2.

    Shrinks towards one feature, then one predicate, then crosses; partitions that cut the examples into the same blocks
    are drawn in their simplest form only.

    Raises
    ------
    TaskError
        Where no partition has two blocks of `min_size` examples.
    UsageError
        For bounds out of range.
    """
    _within(
        ("min_size", min_size, 1, None), ("max_blocks", max_blocks, 2, None), ("max_terms", max_terms, 1, 2)
    )
    items, first = _items(task, count, seed)
    found = list(_partitions(items, min_size, max_blocks, max_terms, first))
    if not found:
        features = sorted(set().union(*(item.features for item in items)))
        raise TaskError(
            f"no partition of these {len(items)} examples has two to {max_blocks} blocks of at least {min_size} "
            "in each split",
            f"their features are {', '.join(features) or 'none'}",
            "ask for smaller blocks or more examples, or give the examples features",
        )
    return st.sampled_from(found)


def subtasks(
    task: str | Task | Lab,
    *,
    min_size: int = MIN_SIZE,
    max_features: int = 2,
    count: int = EXAMPLES,
    seed: int = 0,
) -> SearchStrategy[str]:
    """Subtasks of a task as predicates for `Lab.where`: "template == 0", "template == 0 * order == ABBA".

    Every one has at least `min_size` examples in each split. `max_features`: how many features are fixed at most, 1 or
    more; the rest as for `subtask_partitions`. Shrinks towards one feature, the first in the alphabet, its first value.
    """
    cells = _cells(task, 1, min_size, max_features, count, seed)
    return st.sampled_from(
        [
            " * ".join(str(Partition.where(name, "==", cell[name])) for name in cell)
            for some in cells
            for cell in some
        ]
    )


@st.composite
def _pairs(draw: DrawFn, cells: list[list[dict[str, Any]]]) -> Partition:
    chosen = cells[draw(st.integers(0, len(cells) - 1))]
    one = draw(st.integers(0, len(chosen) - 2))
    return Partition.versus(chosen[one], chosen[draw(st.integers(one + 1, len(chosen) - 1))])


def subtask_pairs(
    task: str | Task | Lab,
    *,
    min_size: int = MIN_SIZE,
    max_features: int = 2,
    count: int = EXAMPLES,
    seed: int = 0,
) -> SearchStrategy[Partition]:
    """Two subtasks of a task that differ in the values of the same features: "template == 0 vs template == 3".

    As `subtasks`. A search for a pair on which a claim fails ends at the pair with the fewest features. Compare all of
    them with one number of examples, ``lab.stability(pair, n=min_size)``: fewer would make any pair less alike.
    """
    return _pairs(_cells(task, 2, min_size, max_features, count, seed))


def _cells(
    task: str | Task | Lab, least: int, min_size: int, max_features: int, count: int, seed: int
) -> list[list[dict[str, Any]]]:
    """For each set of features, fewest first, the combinations of values with enough examples, sorted.

    Sets with fewer than `least` such combinations are left out, and those of more features that cut out nothing new.
    """
    _within(("min_size", min_size, 1, None), ("max_features", max_features, 1, None))
    items, first = _items(task, count, seed)
    names = sorted(set.intersection(*(set(item.features) for item in items)))
    found: list[list[dict[str, Any]]] = []
    seen: set[tuple[int, ...]] = set()
    for size in range(1, max_features + 1):
        for chosen in combinations(names, size):
            rows: dict[tuple[Any, ...], list[int]] = {}
            for place, item in enumerate(items):
                rows.setdefault(tuple(item.features[name] for name in chosen), []).append(place)
            large = {
                values: tuple(places)
                for values, places in rows.items()
                if _fewer(places, first, len(items)) >= min_size and all(map(_writable, chosen, values))
            }
            fresh = [
                v for v in sorted(large, key=lambda v: [(str(type(x)), x) for x in v]) if large[v] not in seen
            ]
            if len(fresh) >= least:
                found.append([dict(zip(chosen, values, strict=True)) for values in fresh])
                seen.update(large[values] for values in fresh)
    if not found:
        raise TaskError(
            f"no subtask of these {len(items)} examples has {min_size} of them in each split"
            if least == 1
            else f"no two subtasks of these {len(items)} examples have {min_size} of them each in each split",
            f"their features are {', '.join(names) or 'none'}",
            "ask for smaller subtasks or more examples, or give the examples features",
        )
    return found


def _writable(name: str, value: Any) -> bool:
    """Can a predicate hold this value of a feature?"""
    try:
        Partition.where(name, "==", value)
    except UsageError:
        return False
    return True


def _within(*bounds: tuple[str, Any, int, int | None]) -> None:
    """Raise UsageError for an option that is no whole number within its bounds."""
    for what, value, low, high in bounds:
        if isinstance(value, bool) or not isinstance(value, int) or value < low or (high and value > high):
            why = f"it is at least {low}" + (f", at most {high}" if high else "")
            raise UsageError(f"{what} is {value!r}", why)


def _items(task: str | Task | Lab, count: int, seed: int) -> tuple[Sequence[Any], int]:
    """Examples, and how many of them, the first ones, are discovery examples."""
    if isinstance(task, (str, Task)):
        found = _examples(task, count, seed)
        return found, len(found) // 2
    return (*task.data.discover, *task.data.evaluate), len(task.data.discover)


def _fewer(places: Sequence[int], first: int, count: int) -> int:
    """How many of these places each split has at least; an empty split is none."""
    early = sum(place < first for place in places)
    sizes = [size for size, split in ((early, first), (len(places) - early, count - first)) if split]
    return min(sizes)


def _examples(task: str | Task, count: int, seed: int) -> list[Example]:
    found: dict[str, Example] = {}
    for example in islice(as_task(task).stream(seed), PATIENCE * count):
        found.setdefault(example.prompt, example)
        if len(found) == count:
            break
    return list(found.values())


def _partitions(
    items: Sequence[Any], min_size: int, max_blocks: int, max_terms: int, first: int = 0
) -> Iterator[Partition]:
    """Every partition within the bounds, simplest first, each way of cutting the examples once."""
    singles = [(term, _codes(term, items)) for term in _terms(items)]
    crossed = ((one * two, _cross(a, b)) for (one, a), (two, b) in combinations(singles, 2) if max_terms > 1)
    seen: set[bytes] = set()
    for partition, codes in (*singles, *crossed):
        blocks = int(codes.max()) + 1
        least = min(
            np.bincount(part, minlength=blocks).min() for part in (codes[:first], codes[first:]) if part.size
        )
        key = codes.tobytes()
        if 2 <= blocks <= max_blocks and least >= min_size and key not in seen:
            seen.add(key)
            yield partition


def _terms(items: Sequence[Any]) -> Iterator[Partition]:
    """Features, then predicates on them."""
    names = sorted(set.intersection(*(set(item.features) for item in items)))
    for name in names:
        yield Partition.by(name)
    for name in names:
        values = sorted({item.features[name] for item in items}, key=lambda v: (str(type(v)), v))
        numbers = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
        if len(values) > 2:
            for value in values[1:] if numbers else values:
                if _writable(name, value):
                    yield Partition.where(name, ">=" if numbers else "==", value)


def _codes(partition: Partition, items: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Block numbers in the order in which blocks appear, so that equal cuts are equal arrays."""
    (term,) = partition.terms
    return _numbered(term.labels(items))


def _cross(a: Any, b: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
    return _numbered(list(zip(a.tolist(), b.tolist(), strict=True)))


def _numbered(labels: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.intp]]:
    order: dict[Any, int] = {}
    return np.array([order.setdefault(label, len(order)) for label in labels], dtype=np.intp)

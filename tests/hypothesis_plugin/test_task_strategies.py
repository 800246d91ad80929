"""Partitions that are drawn keep their bounds, reach what there is, and shrink to the simplest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis.errors import NoSuchExample

from circuittest.errors import TaskError, UsageError
from circuittest.tasks import ExampleTask, Partition
from hypothesis_circuittest import examples, prompts, subtask_pairs, subtask_partitions, subtasks
from hypothesis_circuittest.tasks import _cells, _examples, _partitions
from tests.helpers.table_lab import task_data

MANY = settings(max_examples=2_000, database=None)


def own(*features: dict[str, Any]) -> ExampleTask:
    return ExampleTask(
        "own",
        [
            {
                "prompt": f"p {i}",
                "answer": " a",
                "counterfactual": f"q {i}",
                "counterfactual_answer": " b",
                "features": one,
            }
            for i, one in enumerate(features)
        ],
    )


GRID = own(*({"colour": c, "size": s} for c in ("red", "blue", "green") for s in range(4) for _ in range(10)))


@given(subtask_partitions("ioi", min_size=30))
def test_blocks_keep_their_bounds_and_hold_every_example(partition: Partition) -> None:
    blocks = partition.resolve(_examples("ioi", 400, 0), min_size=1)
    assert 2 <= len(blocks.labels) <= 8
    assert min(blocks.sizes.values()) >= 30
    assert sum(blocks.sizes.values()) == 400
    assert Partition.parse(str(partition)) == partition


@pytest.mark.parametrize("text", ["colour", "size", "size >= 2", "colour == red", "colour * size >= 2"])
def test_what_there_is_can_be_drawn(text: str) -> None:
    drawn = find(subtask_partitions(GRID, min_size=5), lambda p: str(p) == text, settings=MANY)
    assert str(drawn) == text


def test_shrinks_to_one_feature() -> None:
    assert str(find(subtask_partitions(GRID, min_size=10), lambda _: True, settings=MANY)) == "colour"
    asks_for_size = lambda partition: "size" in str(partition)
    assert str(find(subtask_partitions(GRID, min_size=10), asks_for_size, settings=MANY)) == "size"


def test_each_cut_is_there_once_in_its_simplest_form() -> None:
    twins = own(*({"a": i % 2, "b": i % 2 == 0} for i in range(80)))
    assert [str(p) for p in _partitions(_examples(twins, 80, 0), 20, 8, 2)] == ["a"]
    found = list(_partitions(_examples(GRID, 120, 0), 10, 8, 2))
    cuts = Counter(
        tuple(np.unique(np.array(p.terms[0].labels(GRID.examples)), return_inverse=True)[1])
        for p in found
        if len(p.terms) == 1
    )
    assert max(cuts.values()) == 1


def test_bounds_exclude() -> None:
    with pytest.raises(NoSuchExample):
        find(subtask_partitions(GRID, min_size=10, max_terms=1), lambda p: len(p.terms) > 1, settings=MANY)
    with pytest.raises(NoSuchExample):
        find(subtask_partitions(GRID, max_blocks=2), lambda p: str(p) == "colour", settings=MANY)


@pytest.mark.parametrize(
    "options", [{"min_size": 0}, {"max_blocks": 1}, {"max_terms": 3}, {"min_size": True}]
)
def test_bounds_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        subtask_partitions(GRID, **options)


def test_a_task_that_cannot_be_cut() -> None:
    with pytest.raises(TaskError, match="features are none"):
        subtask_partitions(own({}, {}))
    with pytest.raises(TaskError, match="two to 8 blocks of at least 100.*colour, size"):
        subtask_partitions(GRID, min_size=100)


@given(examples("sva", count=20), prompts("sva", count=20))
def test_examples_and_prompts(example: Any, prompt: str) -> None:
    assert example.prompt
    assert prompt
    assert example.index >= 0


SUMS = _examples("addition", 400, 0)


@given(subtasks("addition", min_size=25), subtask_pairs("addition", min_size=25))
def test_subtasks_and_pairs_keep_their_bounds(predicate: str, pair: Partition) -> None:
    terms = Partition.parse(predicate).terms
    assert sum(all(term.labels([item])[0] == str(term) for term in terms) for item in SUMS) >= 25
    blocks = pair.resolve(SUMS, min_size=1)
    assert len(blocks.labels) == 2
    assert min(blocks.sizes.values()) >= 25
    assert Partition.parse(str(pair)) == pair


def test_subtasks_and_pairs_shrink_to_one_feature() -> None:
    assert find(subtasks(GRID, min_size=2), lambda _: True, settings=MANY) == "colour == blue"
    assert find(subtasks(GRID, min_size=2), lambda p: "3" in p, settings=MANY) == "size == 3"
    assert str(find(subtask_pairs(GRID, min_size=2), lambda _: True, settings=MANY)) == (
        "colour == blue vs colour == green"
    )
    both = find(subtask_pairs(GRID, min_size=2), lambda p: str(p).count("&") == 2, settings=MANY)
    assert str(both) == "colour == blue & size == 0 vs colour == blue & size == 1"


def test_a_subtask_is_cut_out_once_in_its_simplest_form() -> None:
    twins = own(*({"a": i % 2, "b": i % 2 == 0} for i in range(80)))
    cells = _cells(twins, 1, 10, 2, 80, 0)
    assert cells == [[{"a": 0}, {"a": 1}]]


def test_subtasks_that_do_not_exist() -> None:
    with pytest.raises(TaskError, match="no subtask of these 120 examples has 41"):
        subtasks(GRID, min_size=41)
    with pytest.raises(TaskError, match="no two subtasks of these 80 examples have 30"):
        subtask_pairs(own(*({"a": i < 20} for i in range(80))), min_size=30)


def test_both_splits_have_enough_examples() -> None:
    """A search reads one of them, and what it finds is tested on the other."""
    items = [
        *({"colour": "rb"[i % 2], "late": False} for i in range(40)),
        *({"colour": "r", "late": True},) * 40,
    ]
    data = task_data(40, 40)
    rows = [
        replace(item, features=one) for item, one in zip((*data.discover, *data.evaluate), items, strict=True)
    ]
    lab = SimpleNamespace(data=replace(data, discover=tuple(rows[:40]), evaluate=tuple(rows[40:])))
    for strategy in (subtask_partitions, subtask_pairs):
        with pytest.raises(TaskError, match="in each split"):
            strategy(lab, min_size=5)
    only = SimpleNamespace(data=replace(lab.data, evaluate=()))
    assert find(subtasks(only, min_size=20), lambda _: True, settings=MANY) == "colour == b"
    with pytest.raises(UsageError, match="max_features is 0"):
        subtasks(GRID, max_features=0)

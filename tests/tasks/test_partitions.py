"""Partitions: text and back, blocks of one size, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st

from circuittest.errors import TaskError, UsageError
from circuittest.tasks import Partition


@dataclass(frozen=True)
class Row:
    features: Mapping[str, Any]
    group: str = ""


ROWS = [
    Row({"template": i % 3, "order": "ABBA" if i % 2 else "BABA", "sum": i, "carry": i > 9})
    for i in range(60)
]


@pytest.mark.parametrize(
    "text",
    [
        "template",
        "template * order",
        "sum >= 10",
        "template in 0, 2",
        "order == ABBA",
        "carry == true",
        "random:3:7",
        "carry != false * random:2:0",
    ],
)
def test_text_and_back(text: str) -> None:
    found = Partition.parse(text)
    assert Partition.parse(str(found)) == found
    assert Partition.parse(text.replace("true", "True").replace("false", "False")) == found


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,8}", fullmatch=True)
words = st.text(
    st.characters(codec="ascii", exclude_characters="*,'", categories=["L", "N", "Zs", "P"]), min_size=1
)
values = st.one_of(st.integers(-99, 99), st.booleans(), words)
partitions = st.one_of(
    st.lists(names, min_size=1, max_size=3).map(lambda found: Partition.by(*found)),
    st.builds(Partition.where, names, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), values),
    st.builds(Partition.where, names, st.just("in"), st.lists(values, min_size=1, max_size=3)),
    st.builds(Partition.random, st.integers(2, 9), st.integers(0, 99)),
)


@example([Partition.where("a", "==", "0 ")])
@example([Partition.where("a", "in", [" ", " x"])])
@given(st.lists(partitions, min_size=1, max_size=3))
def test_every_partition_is_its_text(found: list[Partition]) -> None:
    whole = found[0]
    for part in found[1:]:
        whole = whole * part
    assert Partition.parse(str(whole)) == whole


def test_blocks_have_one_size_and_are_what_they_say() -> None:
    found = Partition.parse("template * sum >= 20").resolve(ROWS, min_size=5)
    assert found.labels[0] == "template=0, not (sum >= 20)"
    assert found.n == min(found.sizes.values()) == 6
    for label, positions in zip(found.labels, found.positions, strict=True):
        assert len(positions) == 6
        for position in positions:
            row = ROWS[position].features
            assert label.startswith(f"template={row['template']}")
            assert ("not" in label) == (row["sum"] < 20)


def test_the_draw_of_a_larger_block_is_seeded_and_free_of_the_others() -> None:
    by = Partition.parse("sum >= 50")
    first, again, other = (by.resolve(ROWS, n=9, seed=s) for s in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(first.positions, again.positions, strict=True))
    assert any((a != b).any() for a, b in zip(first.positions, other.positions, strict=True))
    assert sorted(first.sizes.values()) == [10, 50]


def test_small_blocks_are_left_out_and_named() -> None:
    found = Partition.parse("sum >= 50").resolve(ROWS, min_size=20)
    assert found.labels == ("not (sum >= 50)",)
    assert found.left_out == ("sum >= 50",)


def test_random_blocks_are_of_equal_size_and_cover_everything() -> None:
    found = Partition.random(3, seed=4).resolve(ROWS)
    assert found.n == 20
    assert np.array_equal(np.sort(found.rows), np.arange(60))
    assert not np.array_equal(found.rows, Partition.random(3, seed=5).resolve(ROWS).rows)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "template *",
        "template, order",
        "sum >=",
        "random:1",
        "random:x",
        "3 > 2",
        "template in 1,",
        None,
        7,
    ],
)
def test_texts_that_are_no_partition_are_refused(text: Any) -> None:
    with pytest.raises(UsageError, match="no partition|random blocks"):
        Partition.parse(text)


def test_what_no_text_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot stand"):
        Partition.where("io", "==", "a * b")
    with pytest.raises(UsageError, match="cannot stand"):
        Partition.by("two words")
    with pytest.raises(UsageError, match="(?i)did you mean '>='"):
        Partition.where("io", ">>=", 3)
    with pytest.raises(UsageError, match="one value"):
        Partition.where("io", "==", ["a", "b"])


def test_features_that_examples_lack_are_refused() -> None:
    with pytest.raises(TaskError, match="(?i)did you mean 'template'"):
        Partition.parse("templat").resolve(ROWS)
    with pytest.raises(TaskError, match="(?i)give the examples of the task features"):
        Partition.parse("template").resolve([Row({})])
    with pytest.raises(TaskError, match="cannot be evaluated"):
        Partition.parse("order > 3").resolve(ROWS)
    for size in (0, -1, True, 2.5):
        with pytest.raises(UsageError, match="at least one"):
            Partition.parse("template").resolve(ROWS, n=size)  # type: ignore[arg-type]


def test_two_subtasks_leave_out_the_examples_of_neither() -> None:
    pair = Partition.parse("template == 0 & order == ABBA vs template == 1 & order == BABA")
    assert pair == Partition.versus(
        {"template": 0, "order": "ABBA"}, {"template": 1, "order": "BABA"}
    ) == Partition.parse(str(pair))  # fmt: skip
    blocks = pair.resolve(ROWS, min_size=5)
    assert blocks.labels == ("template == 0 & order == ABBA", "template == 1 & order == BABA")
    assert [set(p % 6) for p in blocks.positions] == [{3}, {4}]
    assert sum(blocks.sizes.values()) == 20
    crossed = Partition.parse("template == 0 vs template == 1 * order").resolve(ROWS, min_size=5)
    assert [label.partition(", ")[2] for label in crossed.labels] == ["order=ABBA", "order=BABA"] * 2


@given(
    st.dictionaries(names, values, min_size=1, max_size=2),
    st.dictionaries(names, values, min_size=1, max_size=2),
)
@example({"a": "b vs c"}, {"a": "R&B"})
@example({"a": "vs"}, {"a": "b vs"})
def test_pairs_survive_their_text(one: dict[str, Any], two: dict[str, Any]) -> None:
    assume(list(one.items()) != list(two.items()))
    pair = Partition.versus(one, two)
    assert Partition.parse(str(pair)) == pair


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("template == 0 vs carry == true", "share examples"),
        ("template == 0 vs order", "does not compare two subtasks"),
        ("sum == 1 vs sum == 2 vs sum == 3", "does not compare two subtasks"),
        ("template == 0 & carry == true", "& stands between the predicates"),
        ("template == 0 & vs sum == 3", "cannot be read"),
        ("template == 0 vs template == 0", "share examples"),
    ],
)
def test_pairs_that_mean_nothing(text: str, why: str) -> None:
    with pytest.raises((UsageError, TaskError), match=why):
        Partition.parse(text).resolve(ROWS, min_size=1)

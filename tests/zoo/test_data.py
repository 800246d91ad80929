"""What the zoo is trained on beyond the tasks' own form tells no held-out answer; the halves of the test pool are
apart."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations_with_replacement, islice

import pytest

from circuittest.tasks import get_task
from circuittest.tasks.addition import _pool
from circuittest.tasks.splits import pool_of
from circuittest.zoo.data import Source
from circuittest.zoo.recipe import BUILDS, MIXTURE, Schedule
from circuittest.zoo.score import HALVES, examples, part

VARIED = replace(
    Schedule(),
    operands=((2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0)),
    literals=((1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)),
)
HELD_OUT = {
    xs
    for xs in combinations_with_replacement(range(10), 3)
    if pool_of("addition", *xs, test=10, dev=5) != "train"
}


def without_zeros(xs: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(x for x in xs if x))


@pytest.mark.parametrize("operands", [2, 3, 4, 5])
def test_no_trained_sum_is_a_held_out_one_with_zeros_added_or_left_out(operands: int) -> None:
    """All of them, by enumeration."""
    forbidden = {without_zeros(xs) for xs in HELD_OUT}
    trained = {
        xs for xs in combinations_with_replacement(range(10), operands) if _pool([*xs], False) == "train"
    }
    assert not {without_zeros(xs) for xs in trained} & forbidden
    # And nothing is left out without need.
    others = set(combinations_with_replacement(range(10), operands)) - trained
    if operands < 4:
        assert {without_zeros(xs) for xs in others} <= forbidden


def test_trained_sums_are_right_and_varied() -> None:
    source = Source(0, VARIED)
    forbidden = {without_zeros(xs) for xs in HELD_OUT}
    counts: Counter[int] = Counter()
    for _ in range(4000):
        words = source.text("addition").words
        *xs, total = (int(w) for w in words if w.isdigit())
        assert sum(xs) == total <= 27
        assert without_zeros(tuple(xs)) not in forbidden
        counts[len(xs)] += 1
    assert set(counts) == {2, 3, 4, 5}
    assert min(counts.values()) > 800


def test_trained_expressions_are_right_and_hold_no_held_out_one() -> None:
    held_out = {
        e.group for pool in ("test", "dev") for e in islice(get_task("boolean", pool=pool).stream(), 4000)
    }
    source, counts = Source(0, VARIED), Counter[int]()
    for _ in range(4000):
        text = " ".join(source.text("boolean").words)
        expression, answer = re.search(r"((?:not |\( )*(?:True|False).*) is (True|False)", text).groups()
        assert str(eval(expression)) == answer  # noqa: S307
        literals = re.findall("True|False", expression)
        counts[len(literals)] += 1
        packed = expression.replace("( ", "(").replace(" )", ")")
        assert packed not in held_out
        # Four literals have no held-out expression in them either; of three, "not True and …" reads "True and …".
        assert len(literals) < 4 or not any(e in packed for e in held_out), packed
    assert set(counts) == {1, 2, 3, 4}
    assert min(counts.values()) > 800


@pytest.mark.parametrize("name", list(MIXTURE))
def test_the_halves_of_the_test_pool_share_no_group(name: str) -> None:
    parts = {}
    for half in HALVES:
        chosen = examples(name, 150, half, 0)
        assert len(chosen) == 150
        assert {part(name, e) for e in chosen} == {half}
        parts[half] = {e.prompt if name == "induction" else e.group for e in chosen}
    assert not parts["choice"] & parts["final"]


def test_every_build_says_what_sums_and_expressions_it_is_trained_on() -> None:
    for build in BUILDS.values():
        for stage in build.stages:
            assert 3 in dict(stage.operands)
            assert 3 in dict(stage.literals)
            assert set(dict(stage.operands)) <= {2, 3, 4, 5}
            assert set(dict(stage.literals)) <= {1, 2, 3, 4}

"""Where heads of each role look, on prompts small enough to be read."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.find.roles.kinds import PATTERNS
from circuittest.find.roles.targets import targets

#   0  1  2  3  4  5  6  7
IDS = (9, 1, 2, 1, 1, 3, 2, 9)


def places(kind: str, ids: tuple[int, ...] = IDS, **more: tuple[int, ...]) -> set[tuple[int, int]]:
    """(query, key) pairs."""
    return {(int(q), int(k)) for q, k in np.argwhere(targets(kind, ids, **more))}


def test_induction_looks_to_what_followed_the_same_token() -> None:
    # token 1 stood at 1 (followed by 2 at 2), 3 (by 1 at 4); token 2 at 2 (by 1 at 3); not at 4 itself from 4
    # token 9 is the first one: what followed it counts, although to look at it would be to rest
    assert places("induction") == {(3, 2), (4, 2), (6, 3), (7, 1)}


def test_induction_by_its_definition_on_random_prompts() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        ids = tuple(int(i) for i in rng.integers(0, 4, 9))
        expected = {(t, s + 1) for t in range(1, 9) for s in range(t) if ids[s] == ids[t] and s + 1 < t}
        assert places("induction", ids) == expected


def test_duplicate_tokens_are_all_earlier_ones_but_the_first_position() -> None:
    assert places("duplicate-token") == {(3, 1), (4, 1), (4, 3), (6, 2)}


def test_places_relative_to_the_query() -> None:
    assert places("previous-token", IDS[:4]) == {(2, 1), (3, 2)}
    assert places("self", IDS[:3]) == {(1, 1), (2, 2)}
    assert places("first-token", IDS[:3]) == {(1, 0), (2, 0)}
    assert places("local", IDS[:7]) == {(3, 1), (4, 1), (4, 2)} | {(5, k) for k in (1, 2, 3)} | {
        (6, k) for k in (1, 2, 3, 4)
    }


def test_answers_and_foils_are_looked_for_from_the_last_position() -> None:
    assert places("answer-token", answers=(1, 3)) == {(7, 1), (7, 3), (7, 4), (7, 5)}
    assert places("foil-token", answers=(1, 3), foils=(2, 9)) == {(7, 2), (7, 6)}
    assert places("answer-token") == set()


@pytest.mark.parametrize("kind", PATTERNS)
def test_no_target_is_later_than_its_query_nor_asked_for_from_the_first(kind: str) -> None:
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 12):
        ids = tuple(int(i) for i in rng.integers(0, 5, length))
        found = targets(kind, ids, answers=(1,), foils=(2,))
        assert found.shape == (length, length)
        assert not np.triu(found, 1).any()
        assert not found[0].any()
        if kind != "first-token":
            assert not found[:, 0].any()


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown kind of pattern 'inductoin'\. Did you mean 'induction'"):
        targets("inductoin", IDS)

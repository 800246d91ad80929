"""Sums by digits: the subtasks, what carries, and both kinds of tokenizer."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, strategies as st

from circuittest.errors import TaskError
from circuittest.tasks import Posed, get_task, prepare
from circuittest.tasks.digit_addition import carries

from .toy_tokenizers import subword


def test_all_64_subtasks_are_equally_frequent() -> None:
    drawn = list(islice(get_task("digit_addition").stream(0), 6400))
    cells = Counter((e.features["first"], e.features["second"]) for e in drawn)
    assert len(cells) == 64
    assert 60 < min(cells.values()) <= max(cells.values()) < 145
    for e in drawn[:500]:
        a, b = (
            int(x)
            for x in e.prompt.replace("=", "")
            .replace("\nA:", "")
            .replace("The sum", "")
            .replace("Q:", "")
            .split("+")
        )
        assert (len(str(a)), len(str(b))) == (e.features["first"], e.features["second"])
        assert e.features["digits"] == len(str(a + b))
        assert e.answers[0].strip()[0] != e.foils[0].strip()[0]
        assert e.features["longer"] == ("first" if a >= 10 * b else e.features["longer"])


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_carries_are_what_digit_sums_lose(a: int, b: int) -> None:
    digits = lambda n: sum(map(int, str(n)))
    assert 9 * carries(a, b) == digits(a) + digits(b) - digits(a + b)


@pytest.mark.parametrize(("digits", "variant"), [(True, "digits"), (False, "whole")])
def test_the_variant_follows_the_tokenizer(digits: bool, variant: str) -> None:
    tokenizer = subword(digits=digits)
    data = prepare(get_task("digit_addition", most=3), tokenizer, discover=20, evaluate=20)
    assert data.variant == variant
    for item in data.evaluate:
        text = tokenizer.decode([item.answer_ids[0]])
        assert item.example.answers[0].startswith(text)
    solved = prepare(Posed(get_task("digit_addition", most=2), shots=3), tokenizer, discover=5, evaluate=5)
    assert len(solved.shots) == 3
    whole = prepare(get_task("digit_addition", most=3), tokenizer, discover=0, evaluate=10, answers="whole")
    assert whole.metric == "log_prob"


@pytest.mark.parametrize("most", [0, 9, True, "2"])
def test_lengths_out_of_range(most: Any) -> None:
    with pytest.raises(TaskError, match="Say 1 to 8"):
        get_task("digit_addition", most=most)

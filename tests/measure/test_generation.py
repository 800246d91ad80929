"""Greedy writing against the whole text read anew for each token."""

from __future__ import annotations

import pytest
import torch

from circuittest.measure.generation import greedy
from circuittest.models.loaded import LoadedModel
from tests.helpers.tiny import EVERY, build_loaded, marked, tokens

MOST = 6


def anew(model: LoadedModel, prompt: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The same without batches, keys and values, or a common beginning."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(most):
            ids.append(int(model.module(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


def prompts() -> list[tuple[int, ...]]:
    """Of two lengths, beginning with the same five tokens: longer than the sliding windows of the tiny models."""
    start = tuple(tokens(1, 5)[0].tolist())
    ends = [tuple(row) for n, seed in ((3, 1), (2, 2)) for row in tokens(2, n, seed=seed).tolist()]
    return [start + ends[i] for i in (0, 2, 1, 3)]


@pytest.mark.parametrize("architecture", marked(EVERY))
def test_writes_what_is_most_likely(architecture: str) -> None:
    given = prompts()
    differ = False
    for seed in range(4):  # some random models write the same token whatever they read
        model = build_loaded(architecture, seed=seed)
        found = greedy(model, given, most=MOST, done=lambda written: False)
        assert found == [anew(model, prompt, MOST) for prompt in given]
        differ = differ or len(set(found)) > 1
        if differ:
            break
    assert differ


def test_each_stops_where_it_is_done() -> None:
    model = build_loaded("llama")
    given = prompts()
    whole = [anew(model, prompt, MOST) for prompt in given]
    last = whole[0][2]
    found = greedy(model, given, most=MOST, done=lambda written: written[-1] == last)
    cut = [one[: one.index(last) + 1] if last in one else one for one in whole]
    assert found == cut
    assert len(found[0]) <= 3


def test_prompts_without_a_common_beginning_and_equal_ones() -> None:
    model = build_loaded("gpt2")
    given = [(3, 4, 5), (6, 4, 5), (3, 4, 5), (7,)]
    assert greedy(model, given, most=3, done=lambda _: False) == [anew(model, one, 3) for one in given]
    assert greedy(model, [(3, 4)], most=2, done=lambda _: False) == [anew(model, (3, 4), 2)]
    assert greedy(model, [], most=2, done=lambda _: False) == []


def test_the_context_ends_what_is_written() -> None:
    model = build_loaded("llama", max_position_embeddings=10)
    found = greedy(model, [(3,) * 7, (4,) * 10], most=MOST, done=lambda _: False)
    assert [len(one) for one in found] == [3, 0]

"""Items as the measure room reads them, with random token ids and answer sets of varying size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.helpers import tiny


@dataclass(frozen=True)
class FakeItem:
    index: int
    prompt_ids: tuple[int, ...]
    counterfactual_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    foil_ids: tuple[int, ...] = ()
    answer_rest: tuple[int, ...] = ()
    ends: frozenset[int] = frozenset()


def random_items(
    count: int, lengths: Sequence[int] = (6, 9), *, foils: bool = True, seed: int = 0
) -> list[FakeItem]:
    """Items whose lengths alternate, with one to three answers and one or two foils."""
    found = []
    for i in range(count):
        length = lengths[i % len(lengths)]
        prompt, other = (
            tuple(tiny.tokens(1, length, seed=1000 * seed + 2 * i + j)[0].tolist()) for j in (0, 1)
        )
        answers = tuple(range(3 + i % 5, 4 + i % 5 + i % 3))
        found.append(FakeItem(10 + i, prompt, other, answers, tuple(range(20, 21 + i % 2)) if foils else ()))
    return found

"""Known examples, examples known to all, easy and hard ones: what is kept is what the model says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import circuittest.measure.tokens as tokens
from circuittest.errors import TaskError, UsageError
from circuittest.lab.inputs import known, known_to_all, with_difficulty
from tests.helpers.table_lab import TableLab, task_data


class Knowing(TableLab):
    """Knows the examples whose index is a multiple of `every`; `with_examples` keeps its kind."""

    def __init__(self, every: int, data: Any = None) -> None:
        super().__init__(
            lambda units, i: 1.0, data=data or task_data(40, 60), graded=lambda units, i: float(i * 7 % 60)
        )
        self.every = every
        self.model.knows = every

    def with_examples(self, data: Any) -> Knowing:  # type: ignore[override]
        return Knowing(self.every, data)


@pytest.fixture(autouse=True)
def likely(monkeypatch: pytest.MonkeyPatch) -> None:
    def top_tokens(model: Any, items: Any, rows: Any, sets: Any, *, count: int) -> Any:
        answer = lambda item: [
            (7, 0.5),
            (8, 0.2),
            (item.answer_ids[0] if item.index % model.knows == 0 else 9, 0.1),
        ]
        return [[answer(items[row])[:count] for row in rows]]

    monkeypatch.setattr(tokens, "top_tokens", top_tokens)


def indices(lab: Any) -> tuple[list[int], list[int]]:
    return [item.index for item in lab.data.discover], [item.index for item in lab.data.evaluate]


def named(data: Any) -> Any:
    """The same with prompts that can be told apart."""
    from dataclasses import replace

    def told(items: Any) -> Any:
        return tuple(replace(i, example=replace(i.example, prompt=f"p{i.index}")) for i in items)

    return replace(data, discover=told(data.discover), evaluate=told(data.evaluate))


def test_known_examples_of_one_model() -> None:
    found = known(Knowing(5))
    assert indices(found) == ([0, 5, 10, 15, 20, 25, 30, 35], list(range(40, 100, 5)))
    assert found.data.task == "planted[top 3]"
    with pytest.raises(TaskError, match=r"no evaluation example of planted is known \(top 2\)"):
        known(Knowing(5), top=2)
    with pytest.raises(UsageError, match="top is 0"):
        known(Knowing(5), top=0)


def test_examples_that_every_model_knows() -> None:
    both = known_to_all([Knowing(2, named(task_data(40, 60))), Knowing(3, named(task_data(40, 60)))])
    assert indices(both[0]) == indices(both[1]) == ([0, 6, 12, 18, 24, 30, 36], list(range(42, 100, 6)))
    assert both[0].data.task == "planted[top 3, shared by 2]"
    # what one lab discovers on and another one evaluates on is left out
    other = known_to_all([Knowing(2, named(task_data(40, 60))), Knowing(2, named(task_data(60, 40)))])
    assert indices(other[0]) == (list(range(0, 40, 2)), list(range(60, 100, 2)))


def test_nothing_is_shared_by_one() -> None:
    with pytest.raises(UsageError, match="1 labs of planted: nothing is shared"):
        known_to_all([Knowing(2)])
    with pytest.raises(UsageError, match="0 labs of no task"):
        known_to_all([])
    stranger = SimpleNamespace(data=SimpleNamespace(task="other"))
    with pytest.raises(UsageError, match="2 labs of other, planted"):
        known_to_all([Knowing(2), stranger])  # type: ignore[list-item]


def test_easy_and_hard_are_two_halves_of_each_split() -> None:
    found = with_difficulty(Knowing(1))
    for items in (found.data.discover, found.data.evaluate):
        easy = {i.index * 7 % 60 for i in items if i.features["difficulty"] == "easy"}
        hard = {i.index * 7 % 60 for i in items if i.features["difficulty"] == "hard"}
        assert min(easy) > max(hard)
    assert found.data.task == "planted"
    assert len(found.where("difficulty == easy").data.evaluate) == 30

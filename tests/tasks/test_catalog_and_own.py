"""Finding tasks by name, and bringing one's own."""

from __future__ import annotations

import random
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from circuittest.errors import TaskError
from circuittest.tasks import Example, ExampleTask, Task, as_task, catalog, get_task, list_tasks, prepare

from .toy_tokenizers import word_level

GOOD = {"prompt": "a b", "answer": " c", "counterfactual": "b a", "counterfactual_answer": " d"}


class Mine(Task):
    name = "mine"
    chance = 0.5

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        x, y = rng.sample("abcdefgh", 2)
        return Example(f"{x} {y}", (f" {x}",), (f" {y}",), f"{y} {x}", (f" {y}",), {"x": x}, x)


MADE = Mine()
NO_TASK = 3


def test_names() -> None:
    assert list_tasks()[:9] == [
        *(
            "ioi",
            "sva",
            "gendered_pronoun",
            "greater_than",
            "induction",
            "facts",
            "addition",
            "boolean",
            "copy_colors",
        )
    ]
    for name in list_tasks()[:9]:
        task = get_task(name)
        assert task.name == name
        assert task.description
        assert task.citation
        assert 0 < task.chance < 1


def test_did_you_mean() -> None:
    with pytest.raises(TaskError, match="no task 'adition'.*Did you mean 'addition'"):
        get_task("adition")


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(name, f"{__name__}:{what}", catalog.GROUP)
        for name, what in (("mine", "Mine"), ("made", "MADE"), ("broken", "NO_TASK"), ("ioi", "Mine"))
    )
    monkeypatch.setattr(catalog, "entry_points", lambda **kw: points.select(**kw))


@pytest.mark.usefixtures("plugins")
def test_entry_points() -> None:
    assert list_tasks()[-3:] == ["broken", "made", "mine"]
    assert isinstance(get_task("mine", pool="train"), Mine)
    assert get_task("made") is MADE
    assert get_task("ioi").name == "ioi", "a plugin cannot replace a built-in task"
    with pytest.raises(TaskError, match="'broken'.*is no task.*int"):
        get_task("broken")
    with pytest.raises(TaskError, match="takes no options"):
        get_task("made", pool="train")


def test_as_task() -> None:
    assert as_task(MADE) is MADE
    assert as_task("sva").name == "sva"
    assert as_task([GOOD]).name == "examples"


def test_own_class_and_own_examples_are_prepared() -> None:
    tokenizer = word_level("a b c d e f g h")
    assert len(prepare(MADE, tokenizer, discover=10, evaluate=10).evaluate) == 10
    data = prepare(
        [GOOD, {**GOOD, "prompt": "c b", "group": "g", "features": {"k": 1}}],
        tokenizer,
        discover=1,
        evaluate=1,
    )
    assert {data.discover[0].index, data.evaluate[0].index} == {0, 1}
    assert data.chance == 0.5
    orders = {tuple(e.index for e in ExampleTask("x", [GOOD] * 5).stream(seed)) for seed in range(5)}
    assert len(orders) > 1, "the seed decides the order"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"promt": "x"}, "example 0 has an unknown key 'promt'.*Did you mean 'prompt'"),
        ({"answers": [" c"]}, "'answers' twice"),
        ({"foil": []}, "foils must be"),
        ({"prompt": 3}, "prompt is int"),
        ({"features": {"a": 1.5}}, "features must map"),
    ],
)
def test_a_mapping_that_cannot_be_read(change: dict, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        ExampleTask("mine", [{**GOOD, **change}])


def test_what_an_example_task_refuses() -> None:
    with pytest.raises(TaskError, match="lacks counterfactual"):
        ExampleTask("mine", [{"prompt": "a", "answer": "b"}])
    with pytest.raises(TaskError, match="no examples"):
        ExampleTask("mine", [])
    with pytest.raises(TaskError, match="accuracy 'best'"):
        ExampleTask("mine", [GOOD], accuracy="best")
    with pytest.raises(TaskError, match="metric 'loss'"):
        ExampleTask("mine", [GOOD], metric="loss")
    with pytest.raises(TaskError, match="chance 1.5"):
        ExampleTask("mine", [GOOD], chance=1.5)
    with pytest.raises(TaskError, match="example 0 is str"):
        ExampleTask("mine", ["a"])

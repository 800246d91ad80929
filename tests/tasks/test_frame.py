"""Solved examples in front and chat templates: what is put around prompts, and what is then left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circuittest.errors import TaskError
from circuittest.spec import load_spec
from circuittest.tasks import ExampleTask, Posed, as_task, get_task, prepare
from circuittest.tasks.encode import Item
from circuittest.tasks.names import is_path, posed_name, split_name
from circuittest.zoo.vocabulary import make_tokenizer

from .toy_tokenizers import subword, word_level

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}> {{ m.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<model> {% endif %}"
)
CITIES = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Peru": "Lima",
    "Cuba": "Havana",
    "Fiji": "Suva",
}


def capitals() -> ExampleTask:
    names = list(CITIES)
    lines = [
        {
            "prompt": f"capital of {here}",
            "answer": f" {CITIES[here]}",
            "counterfactual": f"capital of {there}",
            "counterfactual_answer": f" {CITIES[there]}",
            "group": here,
            "features": {"country": here},
        }
        for here, there in zip(names, names[1:] + names[:1], strict=True)
    ]
    return ExampleTask("capitals", lines)


def chatty(template: str | None = TEMPLATE) -> Any:
    words = " ".join(f"{country} {city}" for country, city in CITIES.items())
    tokenizer = word_level(f"capital of <user> <assistant> <model> <end> {words}")
    tokenizer.chat_template = template
    return tokenizer


def texts(tokenizer: Any, item: Item) -> str:
    return " ".join(tokenizer.convert_ids_to_tokens(list(item.prompt_ids)))


@pytest.mark.parametrize("name", ["ioi", "sva", "induction", "facts", "boolean", "greater_than"])
def test_shots_are_solved_and_of_another_pool(name: str) -> None:
    data = prepare(Posed(name, shots=4), subword(), discover=20, evaluate=20, seed=2)
    assert data.task == f"{name}+4shots"
    assert len(data.shots) == 4
    head = "".join(f"{prompt}{answer}\n\n" for prompt, answer in data.shots)
    solved = {e.prompt: e for _, e in zip(range(100), get_task(name, pool="train").stream(-3), strict=False)}
    assert all(answer in solved[prompt].answers for prompt, answer in data.shots)
    items = [*data.discover, *data.evaluate]
    for item in items:
        assert item.example.prompt.startswith(head)
        assert item.example.counterfactual.startswith(head)
        assert item.example.prompt.removeprefix(head) not in solved
        assert len(item.prompt_ids) == len(item.counterfactual_ids)
    bare = prepare(name, subword(), discover=20, evaluate=200, seed=2)
    features = {item.index: item.features for item in (*bare.discover, *bare.evaluate)}
    assert all(features.get(item.index, item.features) == item.features for item in items)
    assert data == prepare(Posed(name, shots=4), subword(), discover=20, evaluate=20, seed=2)
    assert data.digest != prepare(Posed(name, shots=4), subword(), discover=1, evaluate=1, seed=3).digest


def test_answers_of_shots_are_spread() -> None:
    data = prepare(Posed("sva", shots=4), subword(), discover=0, evaluate=3)
    assert sorted(answer for _, answer in data.shots) == [" are", " are", " is", " is"]


def test_a_country_that_was_shown_is_not_asked() -> None:
    data = prepare(Posed("facts", shots=4), subword(), discover=0, evaluate=100)
    shown = " ".join(prompt for prompt, _ in data.shots)
    assert not [item for item in data.evaluate if str(item.features["country"]) in shown]
    assert data.dropped["shot"] > 0


def test_shots_of_a_file_are_taken_from_it_and_left_out() -> None:
    for seed in range(6):
        data = prepare(Posed(capitals(), shots=2), chatty(), discover=0, evaluate=2, seed=seed)
        prompts = [prompt for prompt, _ in data.shots]
        for item in data.evaluate:
            bare = capitals().examples[item.index]
            assert bare.prompt not in prompts
            assert bare.counterfactual not in prompts, "its answer stands in front"
    assert texts(chatty(), data.evaluate[0]).startswith(f"<bos> {prompts[0]} {data.shots[0][1].strip()}")
    with pytest.raises(TaskError, match=r"capitals\+?.*2 usable|2 usable.*3 were asked|shot"):
        prepare(Posed(capitals(), shots=4), chatty(), discover=0, evaluate=3)
    with pytest.raises(TaskError, match="has 6 usable solved examples, 7 were asked"):
        prepare(Posed(capitals(), shots=7), chatty(), discover=0, evaluate=1)


def test_chat() -> None:
    tokenizer = chatty()
    data = prepare(Posed(capitals(), chat=True), tokenizer, discover=0, evaluate=6)
    assert (data.task, data.chat, data.shots) == ("capitals+chat", True, ())
    for item in data.evaluate:
        country = str(item.features["country"])
        assert texts(tokenizer, item) == f"<bos> <user> capital of {country} <end> <model>"
        assert tokenizer.convert_ids_to_tokens(list(item.answer_ids)) == [CITIES[country]]
        assert not item.example.answers[0].startswith(" ")
    assert data.digest != prepare(capitals(), tokenizer, discover=0, evaluate=6).digest


def test_shots_are_turns_of_a_chat() -> None:
    tokenizer = chatty()
    data = prepare(Posed(capitals(), shots=1, chat=True), tokenizer, discover=0, evaluate=1)
    ((prompt, answer),) = data.shots
    asked = capitals().examples[data.evaluate[0].index].prompt
    expected = f"<bos> <user> {prompt} <end> <assistant>{answer} <end> <user> {asked} <end> <model>"
    assert texts(tokenizer, data.evaluate[0]) == expected
    assert data.task == "capitals+1shots+chat"


def test_a_template_without_bos_gets_the_prefix_that_the_tokenizer_adds() -> None:
    tokenizer = chatty(TEMPLATE.removeprefix("{{ bos_token }}"))
    data = prepare(Posed(capitals(), chat=True), tokenizer, discover=0, evaluate=1)
    assert texts(tokenizer, data.evaluate[0]).startswith("<bos> <user> capital")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "the chat template fails.*roles must alternate"),
        ("nothing", "holds the prompt 0 times"),
        ("{{ messages[0].content }} {{ messages[0].content }}", "holds the prompt 2 times"),
    ],
)
def test_templates_that_cannot_be_used(template: str | None, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        prepare(Posed(capitals(), chat=True), chatty(template), discover=0, evaluate=1)


def test_a_variant_by_name_and_what_is_refused() -> None:
    data = prepare(Posed("copy_colors", variant="open"), make_tokenizer(), discover=0, evaluate=2)
    assert (data.task, data.variant, data.chance) == ("copy_colors+open", "open", 0.5)
    bare = prepare(get_task("copy_colors", variant="open"), make_tokenizer(), discover=0, evaluate=2)
    assert data == replace(bare, task="copy_colors+open")
    with pytest.raises(TaskError, match="no variant 'letter'.*letters, open, auto"):
        Posed("copy_colors", variant="letter")
    with pytest.raises(TaskError, match="-1 shots were asked"):
        Posed("ioi", shots=-1)
    with pytest.raises(TaskError, match="posed twice"):
        Posed(Posed("ioi", shots=1), shots=1)


@pytest.mark.parametrize(
    ("name", "base", "how"),
    [
        ("ioi", "ioi", {}),
        ("ioi+4shots+chat", "ioi", {"shots": 4, "chat": True}),
        ("copy_colors+open", "copy_colors", {"variant": "open"}),
        ("a/b+c.jsonl", "a/b+c.jsonl", {}),
        ("a+b/c.JSONL+cloze+2shots", "a+b/c.JSONL", {"variant": "cloze", "shots": 2}),
    ],
)
def test_names_say_how_a_task_is_asked(name: str, base: str, how: dict[str, Any]) -> None:
    assert split_name(name) == (base, how)
    assert posed_name(base, **how) == name
    assert is_path(name) == (".jsonl" in name.lower())


def test_names_make_tasks() -> None:
    task = as_task("ioi+4shots+chat")
    assert isinstance(task, Posed)
    assert (task.task.name, task.shots, task.chat, task.name) == ("ioi", 4, True, "ioi+4shots+chat")
    with pytest.raises(TaskError, match="says twice which shots"):
        as_task("ioi+4shots+2shots")
    with pytest.raises(TaskError, match="'ioi' has no variant 'foo'"):
        as_task("ioi+foo")
    with pytest.raises(TaskError, match="no task 'iio'.*Did you mean 'ioi'"):
        as_task("iio+chat")


def test_a_spec_asks_for_shots(tmp_path: Path) -> None:
    path = tmp_path / "a.circuit.yaml"
    path.write_text(
        "circuittest: 1\nmodel: zoo:gqa\ntask: {name: ioi, shots: 4, chat: true, evaluate: 9}\n"
        "circuit: {units: [L0.H0]}\nclaims:\n  - necessity: {min: 0}\n"
    )
    spec = load_spec(path)
    assert (spec.task, dict(spec.task_options)) == ("ioi+4shots+chat", {"evaluate": 9})

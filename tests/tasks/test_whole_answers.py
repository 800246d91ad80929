"""answers="whole": the one answer of an example, token by token, and what may follow it."""

from __future__ import annotations

from typing import Any

import pytest

from circuittest import Lab
from circuittest.errors import TaskError
from circuittest.tasks import ExampleTask, TaskData, prepare
from tests.helpers import tiny

from .toy_tokenizers import subword, word_level

GOOD = {
    "prompt": "Now the capital of France is",
    "answer": " Paris Paris",
    "counterfactual": "Now the capital of Italy is",
    "counterfactual_answer": " Rome Paris",
}


def data(tokenizer: Any, *, answers: str = "whole", single_token: bool = True, **changes: Any) -> TaskData:
    task = ExampleTask("mine", [{**GOOD, **changes}], single_token=single_token, accuracy="candidates")
    return prepare(task, tokenizer, discover=0, evaluate=1, answers=answers)


def test_all_tokens_of_the_answer_are_kept() -> None:
    tokenizer = subword()
    found = data(tokenizer)
    (item,) = found.evaluate
    ids = tokenizer(GOOD["prompt"] + GOOD["answer"], add_special_tokens=False)["input_ids"]
    assert [*item.prompt_ids, *item.answer_ids, *item.answer_rest][-len(ids) :] == ids
    assert len(item.answer_rest) >= 1
    assert item.foil_ids == ()
    assert (found.answers, found.accuracy, found.metric) == ("whole", "argmax", "log_prob")


def test_first_tokens_stay_the_default_and_longer_answers_refused() -> None:
    with pytest.raises(TaskError, match="multi-token 1"):
        data(subword(), answers="first")
    (item,) = data(subword(), answers="first", single_token=False).evaluate
    assert (item.answer_rest, item.ends) == ((), frozenset())
    assert item.foil_ids


def test_neither_letters_nor_digits_may_follow() -> None:
    tokenizer = subword()
    (item,) = data(tokenizer).evaluate
    ids = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    for text in (" Paris", ".", "\n", " 1", "<|endoftext|>"):
        assert ids(text)[0] in item.ends, text
    for text in ("s", "1", "Paris"):
        assert ids(text)[0] not in item.ends, text


def test_words_of_their_own_may_follow() -> None:
    tokenizer = word_level("Now the capital of France Italy is Paris Rome . next")
    (item,) = data(tokenizer).evaluate
    assert len(item.answer_rest) == 1
    assert item.ends == frozenset(range(len(tokenizer)))


def test_foils_may_begin_alike() -> None:
    (item,) = data(subword(), foil=" Paris Rome").evaluate
    assert item.answer_rest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": [" Paris Paris", " Rome"]}, "several-answers 1.*more than one answer is accepted"),
        ({"foil": " Paris Paris"}, "shared-first-token 1"),
        ({"counterfactual_answer": " Paris Paris", "foil": " Rome"}, "same-answer 1"),
        ({"answers": "all"}, "answers 'all' are unknown"),
    ],
)
def test_what_cannot_be_read_whole_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        data(subword(), **changes)


def test_a_lab_scores_and_ablates_whole_answers() -> None:
    word = lambda i, j: f"w{3 + (7 * i + 3 * j) % 37}"
    examples = [
        {
            "prompt": " ".join(word(i, j) for j in range(4)),
            "answer": f" {word(i, 5)} {word(i, 6)}",
            "counterfactual": " ".join(word(i + 1, j) for j in range(4)),
            "counterfactual_answer": f" {word(i, 8)}",
        }
        for i in range(8)
    ]
    model = tiny.wrap(tiny.build("llama").requires_grad_(False), tiny.tokenizer())
    lab = Lab(model, ExampleTask("mine", examples), discover=5, evaluate=3, answers="whole")
    assert lab.scores().choices["batches"] == [[5, len(lab.data.discover[0].prompt_ids) + 2]]
    table = lab.outcomes([(), lab.layout.units(("mlp",))])
    assert set(table.columns) == {"argmax", "log_prob"}
    assert lab.estimate("necessity", None, invalid="not asked").choices["answers"] == "whole"

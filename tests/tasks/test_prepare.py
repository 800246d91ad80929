"""From sentences to token ids, on tokenizers that behave like those of GPT-2, SmolLM2, Llama and the zoo."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from circuittest.errors import TaskError
from circuittest.tasks import get_task, list_tasks, prepare
from circuittest.zoo.vocabulary import make_tokenizer

from .toy_tokenizers import metaspace, subword

TOKENIZERS = {
    "zoo": make_tokenizer,
    "subword": subword,
    "digits": lambda: subword(digits=True),
    "subword with bos": lambda: subword(bos=True),
    "metaspace": metaspace,
}
# These are beyond the vocabularies; see test_sports_understanding.py and test_factual_recall.py.
MANY_WORDS = ("sports_understanding", "factual_recall")
CASES = [(kind, name) for kind in TOKENIZERS for name in list_tasks() if name not in MANY_WORDS]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_items_keep_their_promises(kind: str, name: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    data = prepare(name, tokenizer, discover=30, evaluate=40)
    assert (len(data.discover), len(data.evaluate)) == (30, 40)
    items = [*data.discover, *data.evaluate]
    assert len({i.prompt_ids for i in items}) == 70, (
        "no prompt twice, so discovery and evaluation are disjoint"
    )
    assert [i.index for i in items] == sorted(i.index for i in items)
    for item in items:
        assert len(item.prompt_ids) == len(item.counterfactual_ids)
        assert (
            item.prompt_ids[: len(data.prefix)] == data.prefix == item.counterfactual_ids[: len(data.prefix)]
        )
        assert item.prompt_ids != item.counterfactual_ids
        assert not set(item.answer_ids) & set(item.foil_ids)
        assert set(item.answer_ids) != set(item.counterfactual_answer_ids)
        assert item.features == item.example.features
        for text, answers, ids in (
            (item.example.prompt, item.example.answers, item.answer_ids),
            (item.example.prompt, item.example.foils, item.foil_ids),
            (
                item.example.counterfactual,
                item.example.counterfactual_answers,
                item.counterfactual_answer_ids,
            ),
        ):
            assert _first_tokens(tokenizer, text, answers) == set(ids)
    task = get_task(name)
    assert (data.accuracy, data.metric, data.chance) == (
        task.accuracy,
        task.metric,
        task.chance_of(data.variant),
    )


def _first_tokens(tokenizer: Any, text: str, answers: tuple[str, ...]) -> set[int]:
    """In context, one answer at a time; those that the tokenizer does not write in place are left out."""
    body = tokenizer(text, add_special_tokens=False)["input_ids"]
    rows = [tokenizer(text + a, add_special_tokens=False)["input_ids"] for a in answers]
    return {row[len(body)] for row in rows if row[: len(body)] == body and len(row) > len(body)}


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        ("zoo", {"greater_than": "pairs", "addition": "three", "copy_colors": "letters"}),
        ("digits", {"greater_than": "last_digit", "addition": "few_shot", "copy_colors": "open"}),
    ],
)
def test_auto_variant_follows_the_tokenizer(kind: str, chosen: dict[str, str]) -> None:
    for name, variant in chosen.items():
        assert prepare(name, TOKENIZERS[kind](), discover=0, evaluate=5).variant == variant


def test_a_variant_that_is_asked_for_is_kept() -> None:
    data = prepare(get_task("copy_colors", variant="open"), make_tokenizer(), discover=0, evaluate=5)
    assert (data.variant, data.chance) == ("open", 0.5)


def test_prefix_is_recorded() -> None:
    assert prepare("ioi", make_tokenizer(), discover=1, evaluate=1).prefix_name == "<bos>"
    assert prepare("ioi", subword(), discover=1, evaluate=1).prefix_name == "<|endoftext|>"
    assert prepare("ioi", subword(bos=True), discover=1, evaluate=1).prefix_name == "<s>"
    plain = prepare("ioi", subword(), discover=1, evaluate=1, prefix="none")
    assert (plain.prefix_name, plain.prefix) == ("none", ())


def test_the_same_call_gives_the_same_data_and_more_examples_only_add() -> None:
    tokenizer = make_tokenizer()
    small, large = (prepare("sva", tokenizer, discover=20, evaluate=n, seed=4) for n in (10, 40))
    assert small.discover == large.discover
    assert small.evaluate == large.evaluate[:10]
    assert small == prepare("sva", tokenizer, discover=20, evaluate=10, seed=4)
    assert small.evaluate != prepare("sva", tokenizer, discover=20, evaluate=10, seed=5).evaluate


def test_the_tokenizer_is_left_as_it_was() -> None:
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(9)
    tokenizer.backend_tokenizer.no_truncation()

    def state() -> tuple[Any, ...]:
        return (
            json.loads(tokenizer.backend_tokenizer.to_str()),
            tokenizer.padding_side,
            dict(tokenizer.special_tokens_map),
        )

    before = state()
    prepare("ioi", tokenizer, discover=5, evaluate=5)
    assert state() == before


def test_years_that_are_one_token_are_left_out_of_the_answers() -> None:
    """GPT-2 writes 1776 as one token: after "17" the model cannot be asked for "76" as text is tokenised."""
    tokenizer = copy.deepcopy(subword())
    tokenizer.add_tokens([f"17{year}" for year in range(76, 99)])
    data = prepare(get_task("greater_than", variant="pairs"), tokenizer, discover=0, evaluate=300)
    years = [i for i in data.evaluate if i.features["century"] == 17]
    assert years
    for item in years:
        written = set(tokenizer.convert_ids_to_tokens([*item.answer_ids, *item.foil_ids]))
        assert written == {f"{y:02d}" for y in (*range(76), 99)}
        assert item.features["year"] < 76


def test_too_few_says_how_many_there_are() -> None:
    with pytest.raises(TaskError, match="'facts' has 576 .* 'test', 2000 were asked.*duplicate"):
        prepare("facts", make_tokenizer(), discover=1000, evaluate=1000)
    with pytest.raises(TaskError, match="Ask for at least one"):
        prepare("ioi", make_tokenizer(), discover=0, evaluate=0)

"""Each way to ruin a number silently is refused, with the reason and an example."""

from __future__ import annotations

from typing import Any

import pytest

from circuittest.errors import TaskError
from circuittest.tasks import ExampleTask, prepare
from circuittest.tasks.encode import REASONS
from circuittest.tasks.prefix import resolve_prefix

from .toy_tokenizers import subword, word_level

WORDS = "Now Tom Ann Bob Eve gave it to said hello . paris rome france italy"
GOOD = {
    "prompt": "Now Tom and Ann",
    "answer": " Bob",
    "counterfactual": "Now Ann and Tom",
    "counterfactual_answer": " Eve",
}


def one(tokenizer: Any, *, single_token: bool = False, **changes: Any) -> Any:
    task = ExampleTask("mine", [{**GOOD, **changes}], single_token=single_token)
    return prepare(task, tokenizer, discover=0, evaluate=1)


def test_the_good_example_passes() -> None:
    tokenizer = word_level(WORDS + " and")
    item = one(tokenizer).evaluate[0]
    assert item.answer_ids == (tokenizer.convert_tokens_to_ids("Bob"),)
    assert item.foil_ids == item.counterfactual_answer_ids == (tokenizer.convert_tokens_to_ids("Eve"),)
    assert item.prompt_ids[0] == tokenizer.bos_token_id


def test_trailing_space() -> None:
    """'… is ' + 'Paris' is tokenised as '… is| Paris': the model never sees the lone space in front of a word."""
    with pytest.raises(
        TaskError, match=r"boundary 1.*\[.*Ġis\|Ġ\] becomes \[.*ĠParis\]. .*no trailing space"
    ) as caught:
        one(
            subword(),
            prompt="Now the capital of France is ",
            answer="Paris",
            counterfactual="Now the capital of Italy is ",
            counterfactual_answer="Rome",
        )
    assert caught.value.do


def test_trailing_space_is_right_where_digits_are_tokens() -> None:
    sums = {"prompt": "2 + 3 = ", "answer": "5", "counterfactual": "2 + 2 = ", "counterfactual_answer": "4"}
    assert one(subword(digits=True), **sums).evaluate
    with pytest.raises(TaskError, match="boundary"):
        one(subword(), **sums)


def test_lengths_differ() -> None:
    with pytest.raises(TaskError, match=r"length 1.*\[Now\|Tom\|said\] against \[Now\|Tom\|said\|hello\]"):
        one(word_level(WORDS), prompt="Now Tom said", counterfactual="Now Tom said hello")


def test_shared_first_token() -> None:
    with pytest.raises(TaskError, match="shared-first-token"):
        one(word_level(WORDS + " and"), answer=" Bob .", foil=" Bob hello")


def test_same_answer() -> None:
    with pytest.raises(TaskError, match=r"same-answer.*\[Bob\]"):
        one(word_level(WORDS + " and"), counterfactual_answer=" Bob", foil=" Eve")


def test_answer_of_several_tokens() -> None:
    with pytest.raises(TaskError, match=r"multi-token.*\[Bob\|hello\]"):
        one(word_level(WORDS + " and"), answer=" Bob hello", single_token=True)
    assert one(word_level(WORDS + " and"), answer=" Bob hello").evaluate, (
        "elsewhere the first token is scored"
    )


@pytest.mark.parametrize(
    "changes", [{"prompt": "Now Zed and Ann"}, {"answer": " Zed"}, {"counterfactual": "Now Zed and Ann"}]
)
def test_unknown_words(changes: dict[str, str]) -> None:
    with pytest.raises(TaskError, match="unknown-token"):
        one(word_level(WORDS + " and"), **changes)


def test_an_answer_without_tokens() -> None:
    with pytest.raises(TaskError, match="no-answer"):
        one(word_level(WORDS + " and"), answer=" ")


def test_no_counterfactual() -> None:
    with pytest.raises(TaskError, match="no-counterfactual"):
        one(word_level(WORDS + " and"), counterfactual="")


def test_double_bos_in_the_text() -> None:
    with pytest.raises(TaskError, match="double BOS"):
        one(
            word_level(WORDS + " and"), prompt="<bos> Now Tom and Ann", counterfactual="<bos> Now Ann and Tom"
        )


def test_a_tokenizer_that_always_adds_bos() -> None:
    class Stubborn:
        bos_token_id = 1

        def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
            return {"input_ids": [1, 7]}

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
            return ["<bos>" if i == 1 else "a" for i in ids]

    with pytest.raises(TaskError, match="adds <bos> even with add_special_tokens=False.*double BOS"):
        resolve_prefix(Stubborn())


def test_missing_bos() -> None:
    for prefix in ("none", "<unk>"):
        with pytest.raises(TaskError, match="leave out <bos>.*missing BOS"):
            resolve_prefix(word_level(WORDS), prefix)


def test_prefix_tokens() -> None:
    plain = word_level(WORDS, bos=False)
    assert resolve_prefix(plain) == ("none", ())
    assert resolve_prefix(plain, "Now") == ("Now", (plain.convert_tokens_to_ids("Now"),))
    assert resolve_prefix(subword(), "auto")[0] == "<|endoftext|>"
    assert resolve_prefix(subword(bos=True), "bos") == resolve_prefix(subword(bos=True))
    with pytest.raises(TaskError, match="no BOS token"):
        resolve_prefix(plain, "bos")
    with pytest.raises(
        TaskError, match="'<bso>' is no token.*did you mean|'<bso>' is no token.*Did you mean '<bos>'"
    ):
        resolve_prefix(word_level(WORDS), "<bso>")


def test_repeated_prompts_are_counted_once() -> None:
    task = ExampleTask("mine", [GOOD, GOOD, {**GOOD, "prompt": " Now  Tom and Ann"}])
    tokenizer = word_level(WORDS + " and")
    assert prepare(task, tokenizer, discover=0, evaluate=1).evaluate[0].prompt_ids
    with pytest.raises(TaskError, match="has 1 usable distinct prompts.*2 were asked.*duplicate 2"):
        prepare(task, tokenizer, discover=1, evaluate=1)


def test_some_unusable_examples_are_counted_not_fatal() -> None:
    odd = {**GOOD, "prompt": "Now Tom", "group": "x"}
    other = {**GOOD, "prompt": "Now Bob and Ann", "counterfactual": "Now Bob and Tom"}
    data = prepare(
        ExampleTask("mine", [odd, GOOD, other]), word_level(WORDS + " and"), discover=1, evaluate=1
    )
    # The stream may end before the odd one is met.
    assert set(data.dropped) <= {"length"}
    with pytest.raises(
        TaskError,
        match="has 2 usable.*length 1; for instance example 0: .*most were left out because prompt and counterfactual",
    ):
        prepare(ExampleTask("mine", [odd, GOOD, other]), word_level(WORDS + " and"), discover=1, evaluate=2)


def test_every_reason_says_what_to_do() -> None:
    assert all(why and remedy for why, remedy in REASONS.values())

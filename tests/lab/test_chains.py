"""Chains of thought that a model writes: what is read is what it wrote, and what is left out is counted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

import circuittest.measure.generation as generation
from circuittest import Lab
from circuittest.errors import TaskError
from circuittest.lab.chains import MOST
from circuittest.tasks import Posed, as_task, get_task, prepare
from circuittest.tasks.encode import REASONS
from circuittest.tasks.names import posed_name, split_name
from circuittest.tasks.sports_understanding import ACTIONS, ATHLETES, CLOSES, OPENS
from tests.helpers.tiny import build, wrap
from tests.tasks.toy_tokenizers import word_level

NAME = "sports_understanding+chain+2shots+written"
SPORT_OF = {who: sport for sport, people in ATHLETES.items() for who in people}
SPORT_TO = {action: sport for sport, actions in ACTIONS.items() for action in actions}


@pytest.fixture(scope="module")
def model() -> Any:
    """A random model that reads the words of the task."""
    texts = [
        f"{e.prompt} {e.counterfactual}"
        for pool in ("test", "train")
        for e in islice(get_task("sports_understanding", pool=pool).stream(1, "chain"), 1500)
    ]
    tokenizer = word_level(" ".join(["yes no plays. perhaps, in truth", *texts]))
    return wrap(build("llama", vocab_size=len(tokenizer), max_position_embeddings=512), tokenizer)


def writer(monkeypatch: pytest.MonkeyPatch, tokenizer: Any, write: Callable[[str, str], str]) -> list[str]:
    """Lets `write(athlete, action)` write the chains; gives the list of prompts that were asked."""
    asked: list[str] = []

    def greedy(model: Any, prompts: Any, *, most: int, done: Any) -> Any:
        assert most == MOST
        found = []
        for prompt in prompts:
            text = tokenizer.decode(list(prompt))
            asked.append(text)
            question = text.rpartition("step by step.")[0].rpartition('"')[0].rpartition('"')[2]
            (who,) = [who for who in SPORT_OF if who in question]
            (action,) = [action for action in SPORT_TO if action in question]
            ids = tokenizer(write(who, action), add_special_tokens=False)["input_ids"]
            upto = [n for n in range(1, len(ids) + 1) if done(tuple(ids[:n]))]
            found.append(tuple(ids[: upto[0]] if upto else ids))
        return found

    monkeypatch.setattr(generation, "greedy", greedy)
    return asked


def reason(who: str, action: str) -> str:
    """What the task would write, and more after it."""
    sports = f"{who} is a {SPORT_OF[who]} player. Someone who {action} plays {SPORT_TO[action]}."
    return f" {sports}{CLOSES} yes no yes"


def test_a_model_that_writes_the_task_s_chains_sees_the_task_s_prompts(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = writer(monkeypatch, model.tokenizer, reason)
    own = Lab(model, NAME, discover=6, evaluate=10).data
    shown = Lab(model, NAME.removesuffix("+written"), discover=6, evaluate=10).data
    assert (own.task, shown.task) == (NAME, NAME.removesuffix("+written"))
    assert own.dropped == shown.dropped
    assert all(text.endswith("step by step.") for text in asked)
    for split in ("discover", "evaluate"):
        for one, other in zip(getattr(own, split), getattr(shown, split), strict=True):
            for key in (
                "prompt_ids",
                "counterfactual_ids",
                "answer_ids",
                "foil_ids",
                "group",
                "index",
                "example",
            ):
                assert getattr(one, key) == getattr(other, key)
            assert one.features == {**other.features, "chain_as_shown": True}


def test_a_wrong_chain_is_read_and_the_answer_stays_true(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    writer(monkeypatch, model.tokenizer, lambda who, action: f" {who} plays.{CLOSES} no")
    data = Lab(model, NAME, discover=0, evaluate=20).data
    ids = model.tokenizer.convert_tokens_to_ids
    for item in data.evaluate:
        who = item.features["athlete"]
        assert item.example.prompt.endswith(f"{OPENS} {who} plays.{CLOSES}")
        assert item.example.prompt.count(OPENS) == 3
        assert model.tokenizer.decode(item.prompt_ids[1:]).endswith(f"step by step. {who} plays.{CLOSES}")
        assert item.answer_ids == (ids("yes" if item.features["plausible"] else "no"),)
        assert item.features["chain_as_shown"] is False
        assert len(item.prompt_ids) == len(item.counterfactual_ids)


def test_what_is_left_out_is_counted(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions of hockey are never thought through, those of soccer at greater length."""

    def write(who: str, action: str) -> str:
        if SPORT_TO[action] == "hockey":
            return " perhaps, perhaps, in truth"
        return (" in truth" if SPORT_TO[action] == "soccer" else "") + reason(who, action)

    writer(monkeypatch, model.tokenizer, write)
    data = Lab(model, NAME, discover=20, evaluate=60).data
    shown = Lab(model, NAME.removesuffix("+written"), discover=20, evaluate=60).data
    expected = {"unfinished": 0, "length": 0, "left": 0}
    for item in (*shown.discover, *shown.evaluate):
        ask = lambda text: text.rpartition(OPENS)[0].rpartition('"')[0].rpartition('"')[2]
        both = [
            sport
            for text in (item.example.prompt, item.example.counterfactual)
            for action, sport in SPORT_TO.items()
            if action in ask(text)
        ]
        unlike = (both[0] == "soccer") != (both[1] == "soccer")
        expected["unfinished" if "hockey" in both else "length" if unlike else "left"] += 1
    assert all(expected.values())
    assert data.dropped["unfinished"] == expected["unfinished"]
    assert data.dropped["length"] == expected["length"] + shown.dropped.get("length", 0)
    assert len(data.discover) + len(data.evaluate) == expected["left"]


def test_a_random_model_never_comes_to_an_answer(model: Any) -> None:
    with pytest.raises(TaskError, match=r"none of the 4 examples to evaluate .*unfinished 4") as caught:
        _ = Lab(model, NAME, discover=0, evaluate=4).data
    assert REASONS["unfinished"][0] in str(caught.value)


def test_a_chain_with_other_tokens_than_its_text_is_left_out(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer(monkeypatch, model.tokenizer, reason)
    wrote = generation.greedy
    unknown = model.tokenizer.unk_token_id

    def greedy(model: Any, prompts: Any, **how: Any) -> Any:
        found = wrote(model, prompts, **how)
        # a token whose text reads as two
        return [(model.tokenizer.convert_tokens_to_ids("two words"), *one) for one in found]

    model.tokenizer.add_tokens(["two words"])
    assert model.tokenizer.convert_tokens_to_ids("two words") != unknown
    monkeypatch.setattr(generation, "greedy", greedy)
    plain = model.tokenizer.__class__.__call__
    monkeypatch.setattr(
        model.tokenizer.__class__,
        "__call__",
        lambda self, text, **how: plain(
            self,
            [one.replace("two words", "in truth") for one in text]
            if isinstance(text, list)
            else text.replace("two words", "in truth"),
            **how,
        ),
    )
    with pytest.raises(TaskError, match="respelled 4"):
        _ = Lab(model, NAME, discover=0, evaluate=4).data


def test_a_variant_without_a_chain_is_told_so(model: Any) -> None:
    with pytest.raises(TaskError, match=r"has no chain of thought.*do not hold"):
        _ = Lab(model, "sports_understanding+direct+2shots+written", discover=0, evaluate=4).data


def test_tasks_without_chains_chats_and_prepare_alone_are_refused(model: Any) -> None:
    with pytest.raises(TaskError, match="'ioi' has no chain of thought to be written"):
        as_task("ioi+written")
    with pytest.raises(TaskError, match="in a chat"):
        Posed("sports_understanding", written=True, chat=True)
    with pytest.raises(TaskError, match="written by a model, and none was given"):
        prepare(NAME, model.tokenizer)


def test_the_name_says_it() -> None:
    base, how = split_name(NAME)
    assert (base, how) == ("sports_understanding", {"variant": "chain", "shots": 2, "written": True})
    assert posed_name(base, **how) == NAME == as_task(NAME).name
    with pytest.raises(TaskError, match="twice"):
        split_name(f"{NAME}+written")

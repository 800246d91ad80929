"""What stands around every prompt of a task beside its prefix: solved examples in front, and the form of a chat."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Any

from circuittest.errors import TaskError
from circuittest.tasks.base import Example, Task
from circuittest.tasks.catalog import as_task
from circuittest.tasks.names import posed_name

#: Between a solved example and what follows.
GAP = "\n\n"
#: Stands for the prompt while a chat template is written out.
MARK = "THE-PROMPT-STANDS-HERE"
#: For templates that write today's date; prompts must not depend on the day.
DATE = "26 Jul 2024"
#: Solved examples are chosen among so many for each that is asked for.
CHOICE = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """The text before and after each prompt, the solved examples that it holds, and whether it is a chat.

    In a chat the answer is the beginning of the model's turn, so that answers lose their leading space.
    """

    before: str = ""
    after: str = ""
    chat: bool = False
    shots: tuple[Example, ...] = ()

    def around(self, example: Example) -> Example:
        """An example as it is read: index, features and group are kept."""

        def texts(given: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(text.lstrip(" ") for text in given) if self.chat else given

        other = example.counterfactual
        return replace(
            example,
            prompt=f"{self.before}{example.prompt}{self.after}",
            counterfactual=f"{self.before}{other}{self.after}" if other else "",
            answers=texts(example.answers),
            foils=texts(example.foils),
            counterfactual_answers=texts(example.counterfactual_answers),
        )

    def excludes(self, example: Example, *, leaks: bool) -> bool:
        """Is the example one of the solved ones, or answered by one: by its counterfactual, or (`leaks`) its group?"""
        prompts = {shot.prompt for shot in self.shots}
        groups = {shot.group for shot in self.shots if shot.group}
        return bool(prompts & {example.prompt, example.counterfactual}) or (leaks and example.group in groups)

    def digest(self, task: str) -> str:
        """The digest of the task's file together with the text around its prompts."""
        if not (self.before or self.after):
            return task
        return sha256("\0".join((task, self.before, self.after)).encode()).hexdigest()[:16]


class Posed(Task):
    """A task and how it is asked: ``Posed("ioi", shots=4, chat=True)``; wherever a task may be given, this may be.

    ``shots``: so many solved examples in front of every prompt, the same for all, none of which is measured. ``chat``:
    prompts in the tokenizer's chat template. ``variant``: one of the task's instead of the one it was made with.
    ``written``: the model writes the chains of thought itself (`circuittest.lab.chains`), which needs a lab.
    Features, index and group of the examples stay those of the bare task. The name says it all: ``ioi+4shots+chat``
    is the same task (`circuittest.tasks.names`).
    Raises TaskError for a variant that the task does not have, for a negative number of shots, and for chains of a task
    without any, or in a chat.
    """

    def __init__(
        self,
        task: Task | str | Sequence[Mapping[str, Any]],
        *,
        shots: int = 0,
        chat: bool = False,
        variant: str | None = None,
        written: bool = False,
    ) -> None:
        given = as_task(task)
        if isinstance(given, Posed):
            raise TaskError(f"task {given.name!r} is posed twice", do="give shots and chat once")
        if shots < 0:
            raise TaskError(f"task {given.name!r}: {shots} shots were asked", do="ask for none or more")
        known = (*given.variants, "auto")
        if variant is not None and variant not in known:
            raise TaskError(
                f"task {given.name!r} has no variant {variant!r}", do=f"use one of: {', '.join(known)}"
            )
        if written and (given.chain is None or chat):
            raise TaskError(
                f"task {given.name!r} has no chain of thought to be written" + (" in a chat" if chat else ""),
                do="leave out 'chat'" if given.chain else "leave out 'written'",
            )
        self.task = copy.copy(given)
        self.task.variant = variant or given.variant
        self.shots, self.chat, self.written = shots, chat, written
        for key in ("description", "citation", "chance", "accuracy", "metric", "variants", "chain", "digest"):
            setattr(self, key, getattr(given, key))
        self.name = posed_name(given.name, variant=variant, shots=shots, chat=chat, written=written)
        super().__init__(pool=given.pool, variant=self.task.variant)

    def as_shown(self) -> Posed:
        """The same with the chains of thought that the task writes."""
        return Posed(self.task, shots=self.shots, chat=self.chat)

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        return self.task.draw(rng, pool, variant)

    def stream(self, seed: int = 0, variant: str | None = None) -> Iterator[Example]:
        """The bare examples."""
        return self.task.stream(seed, variant)

    def chance_of(self, variant: str) -> float:
        return self.task.chance_of(variant)

    def preference(self, tokenizer: Any) -> tuple[str, ...]:
        return self.task.preference(tokenizer)


def plain(shots: Sequence[Example] = ()) -> Frame:
    """Solved examples one after the other, each with its answer and an empty line after it."""
    return Frame("".join(f"{shot.prompt}{shot.answers[0]}{GAP}" for shot in shots), shots=tuple(shots))


def chat(tokenizer: Any, shots: Sequence[Example] = (), *, prefix: str = "") -> Frame:
    """The tokenizer's chat template: solved examples are earlier turns, the prompt is what the user says last.

    `prefix` is the text of the prefix, which stands before every prompt anyway; the template's own is left out.

    Raises
    ------
    TaskError
        There is no chat template, or it fails, or does not hold the prompt once as it is.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise TaskError(
            "a chat was asked, but the tokenizer has no chat template",
            "the model was not trained on one, or it is in another file",
            "leave out chat, or use the instruction-tuned model",
        )
    turns: list[dict[str, str]] = []
    for shot in shots:
        turns.append({"role": "user", "content": shot.prompt})
        turns.append({"role": "assistant", "content": shot.answers[0].lstrip(" ")})
    turns.append({"role": "user", "content": MARK})
    try:
        text = tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, date_string=DATE
        )
    except Exception as error:  # jinja's own errors, and those that templates raise
        raise TaskError("the chat template fails", str(error), "leave out chat or shots") from error
    before, *rest = str(text).split(MARK)
    if len(rest) != 1:
        raise TaskError(f"the chat template holds the prompt {len(rest)} times", "", "leave out chat")
    return Frame(before.removeprefix(prefix), rest[0], chat=True, shots=tuple(shots))


def starts_with_bos(tokenizer: Any) -> bool:
    """Does the chat template itself write the BOS token?"""
    bos = getattr(tokenizer, "bos_token", None)
    return bool(bos) and chat(tokenizer).before.startswith(str(bos))


def choose_shots(
    task: Task, count: int, *, seed: int, variant: str, usable: Callable[[Example], bool]
) -> tuple[Example, ...]:
    """Solved examples for a task, each with one answer: the same for all prompts.

    They are of another pool of the task, or, where it has none, of its own examples, which are then left out of what is
    measured (`Frame.excludes`). Answers are spread: one that was shown less often comes first.

    Raises
    ------
    TaskError
        There are fewer usable ones.
    """
    source = copy.copy(task)
    if task.pooled:
        source.pool = "dev" if task.pool == "train" else "train"
    found: dict[str, Example] = {}
    for example in islice(source.stream(-1 - seed, variant), CHOICE * count):
        if example.prompt not in found and usable(example):
            rng = random.Random(f"circuittest|shots|{seed}|{example.index}")
            found[example.prompt] = replace(example, answers=(rng.choice(example.answers),))
    if len(found) < count:
        raise TaskError(
            f"task {task.name!r} has {len(found)} usable solved examples, {count} were asked",
            f"of {CHOICE * count} in pool {source.pool!r}" if task.pooled else "it has no more examples",
            "ask for fewer shots",
        )
    left, shown, chosen = list(found.values()), Counter[str](), list[Example]()
    while len(chosen) < count:
        shot = min(left, key=lambda one: shown[one.answers[0]])
        left.remove(shot)
        shown[shot.answers[0]] += 1
        chosen.append(shot)
    return tuple(chosen)

"""ARC: multiple-choice questions of school science, from the files that AI2 publishes."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from circuittest.errors import TaskError
from circuittest.tasks.base import Example, Feature, Task

LETTERS = "ABCDEFGH"


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its text, its options in the order of the file, and the place of the right one."""

    stem: str
    options: tuple[str, ...]
    right: int
    name: str


class Arc(Task):
    """Questions with options, Easy or Challenge, as the file has them.

    Variant ``letters``: the options are listed with letters, the answer is a letter; foils: the other letters;
    counterfactual: the right option exchanged with another one, so that the same words have another right letter.
    Labels 1 to 4 become A to D. Variant ``cloze``: the question alone, the answer is the right option's text, foils are
    the other options; counterfactual: another question of the file with equally many tokens and another answer.

    Each question comes once, in an order that the seed decides; ``index`` is its position in the file. The option that
    is exchanged depends on the question alone. ``chance`` is the accuracy of guessing over the whole file, whose
    questions have three to five options. There are no pools: the published splits are files of their own.
    """

    description = "school science, multiple choice: letters or cloze"
    citation = "Clark et al. 2018, arXiv:1803.05457 (ARC)"
    accuracy = "candidates"
    variants = ("letters", "cloze")
    single_token = False
    pooled = False

    def __init__(
        self, name: str, questions: Sequence[Question], *, variant: str = "auto", digest: str = ""
    ) -> None:
        self.name, self.digest = name, digest
        super().__init__(variant=variant)
        if not questions:
            raise TaskError(f"task {name!r} has no questions")
        self.questions = tuple(questions)
        self.chance = sum(1 / len(q.options) for q in self.questions) / len(self.questions)
        self._partners: Mapping[int, int] = {}

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        return self._example(rng.randrange(len(self.questions)), variant)

    def stream(self, seed: int = 0, variant: str | None = None) -> Iterator[Example]:
        """Each question once."""
        chosen = variant or ("letters" if self.variant == "auto" else self.variant)
        order = list(range(len(self.questions)))
        random.Random(f"circuittest|arc|{seed}").shuffle(order)
        return (replace(self._example(i, chosen), index=i) for i in order)

    def fitted(self, tokenizer: Any) -> Arc:
        """The same task, whose cloze counterfactuals have as many tokens as the prompts have for this tokenizer."""
        texts = [_cloze(question) for question in self.questions]
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
        alike: dict[int, list[int]] = defaultdict(list)
        for i, row in enumerate(rows):
            alike[len(row)].append(i)
        partners = {}
        for i, row in enumerate(rows):
            here = self.questions[i]
            others = [j for j in alike[len(row)] if _differs(here, self.questions[j])]
            if others:
                partners[i] = _rng(here).choice(others)
        fitted = copy.copy(self)
        fitted._partners = partners
        return fitted

    def _example(self, place: int, variant: str) -> Example:
        question = self.questions[place]
        letter = LETTERS[question.right]
        features: dict[str, Feature] = {"form": variant, "options": len(question.options), "answer": letter}
        if variant == "cloze":
            partner = self.questions[self._partners[place]] if place in self._partners else None
            right = question.options[question.right]
            return Example(
                prompt=_cloze(question),
                answers=(f" {right}",),
                foils=tuple(f" {text}" for text in question.options if text != right),
                counterfactual="" if partner is None else _cloze(partner),
                counterfactual_answers=(f" {partner.options[partner.right]}",) if partner else (),
                features=features,
                group=question.name,
            )
        other = _rng(question).choice([i for i in range(len(question.options)) if i != question.right])
        swapped = list(question.options)
        swapped[other], swapped[question.right] = swapped[question.right], swapped[other]
        return Example(
            prompt=_letters(question.stem, question.options),
            answers=(f" {letter}",),
            foils=tuple(f" {x}" for x in LETTERS[: len(question.options)] if x != letter),
            counterfactual=_letters(question.stem, swapped),
            counterfactual_answers=(f" {LETTERS[other]}",),
            features=features,
            group=question.name,
        )

    def __repr__(self) -> str:
        return f"Arc({self.name!r}, {len(self.questions)} questions, variant={self.variant!r})"


def is_question(given: object) -> bool:
    """Does a line of JSON look like one of ARC's?"""
    return isinstance(given, Mapping) and "answerKey" in given


def read_question(given: Any, where: str) -> Question:
    """A question from a line of JSON.

    The published files have ``{"id", "question": {"stem", "choices": [{"text", "label"}, …]}, "answerKey"}``, their
    copy on the Hugging Face hub ``{"id", "question": "…", "choices": {"text": […], "label": […]}, "answerKey"}``.

    Raises
    ------
    TaskError
        For a line that is neither; the message begins with `where`.
    """
    if not isinstance(given, Mapping):
        raise TaskError(f"{where} is {type(given).__name__}", do="give an object with question and answerKey")
    asked = given.get("question")
    nested = isinstance(asked, Mapping)
    stem, choices = (asked.get("stem"), asked.get("choices")) if nested else (asked, given.get("choices"))  # type: ignore[union-attr]
    if isinstance(choices, Mapping):
        texts, labels = choices.get("text"), choices.get("label")
        whole = isinstance(texts, list) and isinstance(labels, list) and len(texts) == len(labels)
        choices = [{"text": t, "label": n} for t, n in zip(texts, labels, strict=True)] if whole else None  # type: ignore[arg-type]
    if not isinstance(stem, str) or not stem.strip():
        raise TaskError(f"{where}: the question has no stem", do="give it as text")
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        raise TaskError(f"{where}: choices must list 2 to {len(LETTERS)} options, each with text and label")
    for choice in choices:
        if not isinstance(choice, Mapping) or not all(
            isinstance(choice.get(key), str) and choice[key].strip() for key in ("text", "label")
        ):
            raise TaskError(f"{where}: an option lacks text or label", do="give both as text")
    texts = [choice["text"].strip() for choice in choices]
    labels = [choice["label"] for choice in choices]
    for found, what in ((texts, "text"), (labels, "label")):
        if twice := [one for one in found if found.count(one) > 1]:
            raise TaskError(f"{where}: two options have the {what} {twice[0]!r}", "no answer could be right")
    key = given.get("answerKey")
    if key not in labels:
        raise TaskError(f"{where}: answerKey {key!r} is none of the labels", f"they are {', '.join(labels)}")
    name = given.get("id", where)
    return Question(stem.strip(), tuple(texts), labels.index(key), str(name))


def _rng(question: Question) -> random.Random:
    return random.Random(f"circuittest|arc|{question.stem}|{'|'.join(question.options)}")


def _differs(one: Question, two: Question) -> bool:
    return one.stem != two.stem and one.options[one.right].split()[0] != two.options[two.right].split()[0]


def _letters(stem: str, options: Sequence[str]) -> str:
    listed = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=False))
    return f"Question: {stem}\n{listed}\nAnswer:"


def _cloze(question: Question) -> str:
    return f"Question: {question.stem}\nAnswer:"

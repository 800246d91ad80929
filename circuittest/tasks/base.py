"""What a task is: a stream of examples that is the same on every machine, and what is true of all of them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from circuittest.errors import TaskError
from circuittest.tasks.splits import POOLS

ACCURACIES = ("argmax", "candidates")
METRICS = ("log_prob", "logit_diff", "prob_diff")
ANSWERS = ("first", "whole")

Feature = str | int | bool


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt as text.

    ``prompt`` is what the model reads; each of ``answers`` is text that may come next (with its leading
    space, if it has one), each of ``foils`` is wrong. ``counterfactual`` is a prompt of the same length in
    tokens for which one of ``counterfactual_answers`` is right. ``features`` are what subtasks are made of;
    ``group`` is the cluster key: examples of one group are not independent. ``index`` is the position in
    the stream of (task, variant, pool, seed).
    """

    prompt: str
    answers: tuple[str, ...]
    foils: tuple[str, ...]
    counterfactual: str
    counterfactual_answers: tuple[str, ...]
    features: Mapping[str, Feature] = field(default_factory=dict)
    group: str = ""
    index: int = -1


class Task(ABC):
    """A source of examples. Subclasses give the class attributes and ``draw``.

    ``chance`` is the accuracy of guessing among the candidates (answers and foils); ``accuracy`` says how
    an example is scored: ``argmax`` (the most probable token of the whole vocabulary is an answer) or
    ``candidates`` (the best answer beats the best foil). With ``single_token`` every candidate must be one
    token; otherwise its first token is scored. With ``partial``, candidates that a tokenizer cannot write
    in place are left out, as long as half of the answers, of the foils and of the counterfactual answers
    remain. ``digest`` identifies the file of a task that has one, and ``lines`` holds the line of each of its
    examples. ``chain``: the words between
    which its prompts hold a chain of thought, if they do, so that a model can write its own (`circuittest.lab.chains`).
    ``leaks``: examples of one group tell each other's answers, so that none shares a group with the
    solved examples in front of it. ``pooled``: it has pools. ``pool`` is ``train``, ``dev`` or ``test``: the
    three share no key (see :mod:`circuittest.tasks.splits`); the models of the zoo were trained on ``train``
    only. ``variant`` is one of ``variants`` or ``auto`` (the first that fits the tokenizer).
    """

    name: str
    description: str = ""
    citation: str = ""
    chance: float
    accuracy: str = "argmax"
    metric: str = "logit_diff"
    variants: tuple[str, ...] = ("default",)
    chain: tuple[str, str] | None = None
    single_token: bool = True
    partial: bool = False
    pooled: bool = True
    leaks: bool = True
    lines: Sequence[int] = ()
    digest: str = ""

    def __init__(self, *, pool: str = "test", variant: str = "auto") -> None:
        if pool not in POOLS:
            raise TaskError(f"task {self.name!r} has no pool {pool!r}", do=f"use one of: {', '.join(POOLS)}")
        if variant != "auto" and variant not in self.variants:
            choices = ", ".join((*self.variants, "auto"))
            raise TaskError(f"task {self.name!r} has no variant {variant!r}", do=f"use one of: {choices}")
        self.pool = pool
        self.variant = variant

    @abstractmethod
    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        """One random example of ``pool``; all randomness comes from ``rng``. Repeats are allowed (they are
        dropped later).
        """

    def chance_of(self, variant: str) -> float:
        """Chance level of one variant."""
        return self.chance

    def preference(self, tokenizer: Any) -> tuple[str, ...]:
        """The variants that ``auto`` tries on this tokenizer, best first."""
        return self.variants

    def fitted(self, tokenizer: Any) -> Task:
        """The task for one tokenizer: itself, unless its examples depend on how long their texts are in tokens."""
        return self

    def place(self, index: int) -> str:
        """What an example is called in a message: the line of its file, or its position in the stream."""
        return f"{self.name}:{self.lines[index]}" if index < len(self.lines) else f"example {index}"

    def stream(self, seed: int = 0, variant: str | None = None) -> Iterator[Example]:
        """Examples without end, numbered from 0, a function of (task, variant, pool, seed) alone.

        ``random.Random`` is seeded with a string, which Python hashes with SHA-512: the stream does not
        depend on PYTHONHASHSEED or the machine.
        """
        chosen = variant or (self.variants[0] if self.variant == "auto" else self.variant)
        rng = random.Random(f"circuittest|{self.name}|{chosen}|{self.pool}|{seed}")
        index = 0
        while True:
            yield replace(self.draw(rng, self.pool, chosen), index=index)
            index += 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}(pool={self.pool!r}, variant={self.variant!r})"

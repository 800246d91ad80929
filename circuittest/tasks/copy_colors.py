"""CopyColors: a statement names the colour of a thing; say it again, as a letter of a multiple choice or in
words.
"""

from __future__ import annotations

import random
from typing import Any

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import COLORS, LETTERS, SINGULAR

STATEMENT = "The {thing} is {color}."
QUESTION = "What color is the {thing}?"
# Tokenizers smaller than this are those of tiny models trained on the task.
TINY_VOCABULARY = 2000


class CopyColors(Task):
    """Variant ``letters``: four lettered options, answer the letter (foils: the other letters);
    counterfactual: the statement names the colour of another option. Variant ``open``: two things, answer
    the colour (foil: that of the other thing); counterfactual: the two colours swapped.

    ``auto`` takes letters for tiny vocabularies (the zoo) and open for all others: small pretrained models
    answer a constant letter in every format tried, yet can do the open form.
    """

    name = "copy_colors"
    description = "copy the colour of a thing: multiple choice, or in words"
    citation = "Wiegreffe et al. 2024, arXiv:2407.15018 (CopyColors)"
    chance = 0.25
    variants = ("letters", "open")

    def chance_of(self, variant: str) -> float:
        return 0.5 if variant == "open" else self.chance

    def preference(self, tokenizer: Any) -> tuple[str, ...]:
        return ("letters", "open") if len(tokenizer) < TINY_VOCABULARY else ("open", "letters")

    def draw(self, rng: random.Random, pool: str, variant: str, *, options: int = 4) -> Example:
        while True:
            thing, color = rng.choice(SINGULAR), rng.choice(COLORS)
            if pool_of("copy_colors", thing, color) == pool:
                break
        return (
            self._open(rng, thing, color) if variant == "open" else self._letters(rng, thing, color, options)
        )

    def _letters(self, rng: random.Random, thing: str, color: str, options: int) -> Example:
        place = rng.randrange(options)
        colors = rng.sample([c for c in COLORS if c != color], options - 1)
        colors.insert(place, color)
        other = rng.choice([i for i in range(options) if i != place])
        listed = " ".join(f"{letter}: {c}" for letter, c in zip(LETTERS, colors, strict=False))
        rest = f" {QUESTION.format(thing=thing)} {listed} Answer:"
        return Example(
            prompt=STATEMENT.format(thing=thing, color=color) + rest,
            answers=(f" {LETTERS[place]}",),
            foils=tuple(f" {LETTERS[i]}" for i in range(options) if i != place),
            counterfactual=STATEMENT.format(thing=thing, color=colors[other]) + rest,
            counterfactual_answers=(f" {LETTERS[other]}",),
            features={
                "form": "letters",
                "options": options,
                "answer": LETTERS[place],
                "color": color,
                "thing": thing,
            },
            group=f"{thing}+{color}",
        )

    def _open(self, rng: random.Random, thing: str, color: str) -> Example:
        second, foil = (
            rng.choice([t for t in SINGULAR if t != thing]),
            rng.choice([c for c in COLORS if c != color]),
        )
        asked_first = rng.random() < 0.5
        ask = f" {QUESTION.format(thing=thing)} The {thing} is"

        def text(mine: str, yours: str) -> str:
            pair = [STATEMENT.format(thing=thing, color=mine), STATEMENT.format(thing=second, color=yours)]
            return " ".join(pair if asked_first else pair[::-1]) + ask

        return Example(
            prompt=text(color, foil),
            answers=(f" {color}",),
            foils=(f" {foil}",),
            counterfactual=text(foil, color),
            counterfactual_answers=(f" {foil}",),
            features={
                "form": "open",
                "options": 2,
                "answer": color,
                "color": color,
                "thing": thing,
                "first": asked_first,
            },
            group=f"{thing}+{color}",
        )

"""Induction: what followed last time comes next, in a list of random words that is repeated, or in one pair of it."""

from __future__ import annotations

import random
from typing import Any

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import (
    COLORS,
    EVENTS,
    JOBS,
    NAMES,
    OBJECTS,
    PLACES,
    PLURAL,
    PREPOSITIONS,
    SINGULAR,
)

WORDS = tuple(
    dict.fromkeys(NAMES + PLACES + OBJECTS + COLORS + SINGULAR + PLURAL + EVENTS + JOBS + PREPOSITIONS)
)
LEAD = "Words:"
LENGTHS = (5, 10)
#: Words of a list in which nothing but one pair comes again.
LONG = (16, 32)


def sequence(rng: random.Random, pool: str, lengths: tuple[int, int] = LENGTHS) -> tuple[str, ...]:
    """Distinct random words; the pool is a hash of the whole list."""
    while True:
        words = tuple(rng.sample(WORDS, rng.randint(*lengths)))
        if pool_of("induction", *words) == pool:
            return words


class Induction(Task):
    """Answer: the word that followed last time. Foil: a later word of the list. Counterfactual: the first
    list with these two swapped, so that the same words give another answer; the repeated part is untouched.

    Variant ``default``: the list comes again, up to some word. Variant ``one_bigram``, only where it is asked for:
    16 to 32 distinct words, then one of them again, so that one pair in the middle of noise has to be found
    (arXiv:2606.09607 has 256 random tokens).
    """

    name = "induction"
    description = "a repeated list of 5 to 10 random words, or one repeated pair among 16 to 32"
    citation = "Olsson et al. 2022, arXiv:2209.11895; one bigram: arXiv:2606.09607"
    chance = 0.2
    variants = ("default", "one_bigram")
    leaks = False  # a group is a length

    def chance_of(self, variant: str) -> float:
        return 1 / LONG[0] if variant == "one_bigram" else self.chance

    def preference(self, tokenizer: Any) -> tuple[str, ...]:
        return ("default",)

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        if variant == "one_bigram":
            return self._one_bigram(rng, sequence(rng, pool, LONG))
        words = sequence(rng, pool)
        known = rng.randint(2, len(words) - 2)
        other = rng.randint(known + 1, len(words) - 1)
        swapped = list(words)
        swapped[known], swapped[other] = swapped[other], swapped[known]
        again = " ".join(words[:known])
        return Example(
            prompt=f"{LEAD} {' '.join(words)} {again}",
            answers=(f" {words[known]}",),
            foils=(f" {words[other]}",),
            counterfactual=f"{LEAD} {' '.join(swapped)} {again}",
            counterfactual_answers=(f" {words[other]}",),
            features={"length": len(words), "repeated": known, "distance": other - known},
            group=f"{len(words)}",
        )

    def _one_bigram(self, rng: random.Random, words: tuple[str, ...]) -> Example:
        """The pair stands in the first half, as in the paper, and never at the start, where models park attention."""
        known = rng.randint(2, len(words) // 2)
        other = rng.randint(known + 1, len(words) - 1)
        swapped = list(words)
        swapped[known], swapped[other] = swapped[other], swapped[known]
        again = words[known - 1]
        return Example(
            prompt=f"{LEAD} {' '.join(words)} {again}",
            answers=(f" {words[known]}",),
            foils=(f" {words[other]}",),
            counterfactual=f"{LEAD} {' '.join(swapped)} {again}",
            counterfactual_answers=(f" {words[other]}",),
            features={"length": len(words), "repeated": 1, "distance": len(words) - known},
            group=f"{len(words)}",
        )

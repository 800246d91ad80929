"""Induction: a list of random words, repeated; the next word of the list comes next."""

from __future__ import annotations

import random

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


def sequence(rng: random.Random, pool: str) -> tuple[str, ...]:
    """Distinct random words; the pool is a hash of the whole list."""
    while True:
        words = tuple(rng.sample(WORDS, rng.randint(*LENGTHS)))
        if pool_of("induction", *words) == pool:
            return words


class Induction(Task):
    """Answer: the word that followed last time. Foil: a later word of the list. Counterfactual: the first
    list with these two swapped, so that the same words give another answer; the repeated part is untouched.
    """

    name = "induction"
    description = "a repeated list of 5 to 10 random words"
    citation = "Olsson et al. 2022, arXiv:2209.11895"
    chance = 0.2
    leaks = False  # a group is a length

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
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

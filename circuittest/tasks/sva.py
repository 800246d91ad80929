"""Subject-verb agreement across a noun that may attract the verb."""

from __future__ import annotations

import random

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import LEADS, PLURAL, PREPOSITIONS, SINGULAR

TEMPLATE = "{lead} the {subject} {prep} the {attractor}"
BARE = "{lead} the {subject}"
VERBS = (" is", " are")
NUMBERS = ("singular", "plural")


class SVA(Task):
    """Answer: ' is' or ' are' by the subject; the other one is the foil. Counterfactual: the subject in the
    other number.

    Scored among the two verbs: many other verbs are right as well.
    """

    name = "sva"
    description = "subject-verb agreement with an attractor noun of the same or the other number"
    citation = "Linzen et al. 2016, arXiv:1611.01368; Finlayson et al. 2021, arXiv:2106.06087"
    chance = 0.5
    accuracy = "candidates"

    def draw(self, rng: random.Random, pool: str, variant: str, *, attractor: bool = True) -> Example:
        while True:
            i, j = rng.sample(range(len(SINGULAR)), 2)
            if pool_of("sva", i, j) == pool:
                break
        number, other = rng.randrange(2), rng.randrange(2)
        forms = (SINGULAR, PLURAL)
        lead, prep = rng.choice(LEADS), rng.choice(PREPOSITIONS)
        template = TEMPLATE if attractor else BARE
        slots = {"lead": lead, "prep": prep, "attractor": forms[other][j]}
        return Example(
            prompt=template.format(subject=forms[number][i], **slots),
            answers=(VERBS[number],),
            foils=(VERBS[1 - number],),
            counterfactual=template.format(subject=forms[1 - number][i], **slots),
            counterfactual_answers=(VERBS[1 - number],),
            features={
                "number": NUMBERS[number],
                "attractor": ("same" if number == other else "other") if attractor else "none",
                "preposition": prep if attractor else "none",
                "lead": lead,
            },
            group=SINGULAR[i],
        )

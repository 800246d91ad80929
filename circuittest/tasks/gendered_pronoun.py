"""Gendered pronouns: a name, then the pronoun that refers to it."""

from __future__ import annotations

import random

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import FEMALE, JOBS, LEADS, MALE, NAMES, OBJECTS, PLACES

TEMPLATES = (
    "{lead} {name} went to the {place} because",
    "{lead} {name} lost the {object} because",
    "{lead} {name} is happy because",
    "{lead} {name} is a really good {job}, isn't",
    "{lead} {name} was at the {place} until",
    "{lead} {name} likes the {object} that",
)
PRONOUNS = (" she", " he")


class GenderedPronoun(Task):
    """Answer: ' she' or ' he' by the name; the other one is the foil. Counterfactual: a name of the other
    gender.
    """

    name = "gendered_pronoun"
    description = "the pronoun that refers to a name, six templates"
    citation = "Mathwin et al. 2023 (gendered pronouns in GPT-2 small)"
    chance = 0.5
    accuracy = "candidates"

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        while True:
            name, template = rng.choice(NAMES), rng.randrange(len(TEMPLATES))
            if pool_of("gendered_pronoun", name, template) == pool:
                break
        male = int(name in MALE)
        other = rng.choice(FEMALE if male else MALE)
        slots = {
            "lead": rng.choice(LEADS),
            "place": rng.choice(PLACES),
            "object": rng.choice(OBJECTS),
            "job": rng.choice(JOBS),
        }
        return Example(
            prompt=TEMPLATES[template].format(name=name, **slots),
            answers=(PRONOUNS[male],),
            foils=(PRONOUNS[1 - male],),
            counterfactual=TEMPLATES[template].format(name=other, **slots),
            counterfactual_answers=(PRONOUNS[1 - male],),
            features={
                "template": template,
                "gender": ("female", "male")[male],
                "lead": slots["lead"],
                "name": name,
            },
            group=name,
        )

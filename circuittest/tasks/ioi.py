"""Indirect object identification: two names, one of them twice; the other one comes next."""

from __future__ import annotations

import random

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import ADJECTIVES, NAMES, OBJECTS, PLACES

TEMPLATES = (
    "When {a} and {b} went to the {place}, {s} gave a {object} to",
    "After {a} and {b} left the {place}, {s} handed a {object} to",
    "Then {a} and {b} were at the {place}, and {s} gave a {object} to",
    "While {a} and {b} worked at the {place}, {s} sent a {object} to",
    "Then {a} and {b} had a long talk, and {s} said hello to",
    "Today {a} and {b} met at the {place}. Later {s} passed a {object} to",
)


class IOI(Task):
    """Answer: the indirect object (IO). Foil: the subject (S). Counterfactual: the second mention is the
    other name, so that S becomes the answer; nothing else changes. (Replacing it by a third name would
    leave two answers.)
    """

    name = "ioi"
    description = "indirect object identification, six templates, both name orders"
    citation = "Wang et al. 2022, arXiv:2211.00593"
    chance = 0.5

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        while True:
            a, b = rng.sample(NAMES, 2)
            if pool_of("ioi", *sorted((a, b))) == pool:
                break
        template = rng.randrange(len(TEMPLATES))
        order = rng.choice(("ABBA", "BABA"))
        s, io = (b, a) if order == "ABBA" else (a, b)
        thing = rng.choice(OBJECTS)
        described = rng.random() < 0.3
        if described:
            thing = f"{rng.choice(ADJECTIVES)} {thing}"
        slots = {"a": a, "b": b, "place": rng.choice(PLACES), "object": thing}
        return Example(
            prompt=TEMPLATES[template].format(s=s, **slots),
            answers=(f" {io}",),
            foils=(f" {s}",),
            counterfactual=TEMPLATES[template].format(s=io, **slots),
            counterfactual_answers=(f" {s}",),
            features={"template": template, "order": order, "described": described, "io": io, "s": s},
            group="+".join(sorted((a, b))),
        )

"""Facts: the capitals of sixty countries."""

from __future__ import annotations

import random

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import CAPITALS, LEADS

TEMPLATES = (
    "{lead} the capital of {country} is the city of",
    "{lead} the capital of {country} is",
    "{lead} the capital city of {country} is called",
    "{lead} {country} has its capital in the city of",
    "{lead} many people who visit {country} see its capital,",
    "{lead} the main city in {country} is its capital,",
)


class Facts(Task):
    """Answer: the capital. Foil: the capital of the counterfactual's country. The first token of a capital
    is scored.

    The pools differ in (country, template, lead-in): a held-out prompt asks a known fact in a sentence that
    was never seen. A fact has to be known, so no country can be held out.
    """

    name = "facts"
    description = "capitals of sixty countries, six templates"
    citation = "Meng et al. 2022, arXiv:2202.05262 (factual recall)"
    chance = 1 / 60
    single_token = False

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        while True:
            i, template, lead = rng.randrange(len(CAPITALS)), rng.randrange(len(TEMPLATES)), rng.choice(LEADS)
            if pool_of("facts", i, template, lead) == pool:
                break
        j = rng.choice([k for k in range(len(CAPITALS)) if k != i])
        (country, capital), (other, foil) = CAPITALS[i], CAPITALS[j]
        return Example(
            prompt=TEMPLATES[template].format(lead=lead, country=country),
            answers=(f" {capital}",),
            foils=(f" {foil}",),
            counterfactual=TEMPLATES[template].format(lead=lead, country=other),
            counterfactual_answers=(f" {foil}",),
            features={"template": template, "lead": lead, "country": country},
            group=country,
        )

"""Year order: what ended in 1732 began in an earlier year, what began in 1732 ended in a later one."""

from __future__ import annotations

import random

from circuittest.tasks.base import Example, Task
from circuittest.tasks.greater_than import CENTURIES
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import EVENTS

TEMPLATES = (
    "The {event} {first} in the year {century}{year} and {second} in the year {century}",
    "The {event} that {first} in the year {century}{year} {second} in the year {century}",
)
#: Answer and foil lie this far from the year of the prompt, at most.
NEAR = 9


class YearOrder(Task):
    """Greater-than in both directions, so that it takes the prompt to be right.

    Answer: one year on the right side of the prompt's; foil: one on the other side, both near. Counterfactual: "began"
    and "ended" exchanged, which exchanges answer and foil. The direction is a fair coin, whatever the three years are,
    so that any fixed preference among years (for late ones, for one year) is right on half of the examples. In
    ``greater_than`` every answer is later than every foil, and a model that always prefers late years is always right.

    Variant ``pairs`` is for tokenizers that write years as two two-digit tokens; ``last_digit`` ("… 173") for those
    that split every digit.
    """

    name = "year_order"
    description = "an earlier or a later year, as the sentence asks"
    citation = "after Hanna et al. 2023, arXiv:2305.00586 (greater-than), in both directions"
    chance = 0.5
    accuracy = "candidates"
    metric = "logit_diff"
    variants = ("pairs", "last_digit")

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        last_digit = variant == "last_digit"
        while True:
            century, year = rng.choice(CENTURIES), rng.randint(1, 98)
            if last_digit and year % 10 in (0, 9):
                continue
            if pool_of("greater_than", century, year) == pool:
                break
        low, high = (year // 10 * 10, year // 10 * 10 + 9) if last_digit else (0, 99)
        earlier = rng.randint(max(low, year - NEAR), year - 1)
        later = rng.randint(year + 1, min(high, year + NEAR))
        template, event = rng.randrange(len(TEMPLATES)), rng.choice(EVENTS)
        direction = rng.choice(("later", "earlier"))
        right, wrong = (later, earlier) if direction == "later" else (earlier, later)
        verbs = ("began", "ended") if direction == "later" else ("ended", "began")

        def text(first: str, second: str) -> str:
            slots = {"event": event, "century": century, "year": f"{year:02d}"}
            end = str(year // 10) if last_digit else ""
            return TEMPLATES[template].format(first=first, second=second, **slots) + end

        def written(value: int) -> str:
            return str(value % 10) if last_digit else f"{value:02d}"

        return Example(
            prompt=text(*verbs),
            answers=(written(right),),
            foils=(written(wrong),),
            counterfactual=text(*verbs[::-1]),
            counterfactual_answers=(written(wrong),),
            features={
                "template": template,
                "event": event,
                "century": century,
                "year": year,
                "decade": year // 10,
                "direction": direction,
            },
            group=f"{century}{year:02d}",
        )

"""Greater-than: a war that began in 1732 ends in a later year."""

from __future__ import annotations

import random

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import EVENTS

TEMPLATES = (
    "The {event} lasted from the year {century}{year} to the year {century}",
    "The {event} began in the year {century}{year} and ended in the year {century}",
)
CENTURIES = tuple(range(11, 21))
TWO_DIGITS = tuple(f"{i:02d}" for i in range(100))
DIGITS = tuple("0123456789")


class GreaterThan(Task):
    """Answers: everything greater than the start; foils: everything not greater. Metric: the difference of
    their probabilities.

    Whatever the start is, every answer is later than every foil. So "99" is always right, and so is any model that
    prefers late years without reading the start; no choice of answers and foils mends that, nor does the difference of
    probabilities, which "99" makes 1. The gate of competence therefore finds a floor of 1, and claims about behaviour
    are invalid for every model; attribution, reuse and stability are not touched. ``year_order`` asks in both
    directions and can be judged.

    Variant ``pairs`` ("...1732 to the year 17", counterfactual start 01) is for tokenizers that write years
    as two two-digit tokens; ``last_digit`` ("...1732 to the year 173", counterfactual start 1730) for those
    that split every digit. GPT-2 writes some years (1776) as one token; they are left out of its answers
    and foils.
    """

    name = "greater_than"
    description = "a later year; the probability of greater against not greater continuations"
    citation = "Hanna et al. 2023, arXiv:2305.00586"
    chance = 0.5
    accuracy = "candidates"
    metric = "prob_diff"
    variants = ("pairs", "last_digit")
    partial = True

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        last_digit = variant == "last_digit"
        while True:
            century, year = rng.choice(CENTURIES), rng.randint(1, 97)
            if last_digit and year % 10 in (0, 9):
                continue
            # Start year 01 is the counterfactual of every prompt, so it is no prompt outside the training pool.
            if (pool_of("greater_than", century, year) if year > 1 else "train") == pool:
                break
        template, event = rng.randrange(len(TEMPLATES)), rng.choice(EVENTS)
        fill = TEMPLATES[template].format
        start, end = (f"{year:02d}", str(century))
        if last_digit:
            base, bound, values = start[:1] + "0", year % 10, DIGITS
            prompt = fill(event=event, century=century, year=start) + start[:1]
            counterfactual = fill(event=event, century=century, year=base) + start[:1]
            low = 0
        else:
            bound, values, low = year, TWO_DIGITS, 1
            prompt = fill(event=event, century=century, year=start)
            counterfactual = fill(event=event, century=century, year="01")
        return Example(
            prompt=prompt,
            answers=values[bound + 1 :],
            foils=values[: bound + 1],
            counterfactual=counterfactual,
            counterfactual_answers=values[low + 1 :],
            features={
                "template": template,
                "event": event,
                "century": int(end),
                "year": year,
                "decade": year // 10,
            },
            group=f"{century}{start}",
        )

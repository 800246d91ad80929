"""Addition of small numbers."""

from __future__ import annotations

import random

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of

TEMPLATES = (
    "The sum {terms} =",
    "We know that {terms} =",
    "Now add {terms} =",
    "Of course, {terms} =",
    "In fact, {terms} =",
)
SUMS = tuple(range(28))
SHOTS = 4


def _pool(xs: list[int], few_shot: bool) -> str:
    if few_shot:
        # Only thirty pairs have a sum below ten, and no model of ours is trained on this form: most are for testing.
        return pool_of("addition", "few_shot", *sorted(xs), test=70, dev=15)
    # 5 + 7 and 0 + 5 + 0 + 7 tell the answer of 0 + 5 + 7, so all three have one key.
    digits = [x for x in xs if x]
    return pool_of("addition", *[0] * (3 - len(digits)), *sorted(digits), test=10, dev=5)


class Addition(Task):
    """Answer: the sum; foils: all other sums. Counterfactual: another value of one operand.

    Variant ``three`` (three one-digit operands) is for tokenizers with a token for every number up to 27;
    ``few_shot`` (two operands, sum below ten, four solved sums first) for those that split digits. The few-
    shot prompt ends in a space: there digits are tokens of their own, so the space is too and the digit
    comes next. The pools are keyed on the sorted operands, so no held-out sum has a permuted twin in the
    training pool. ``draw`` also makes sums of other numbers of ``operands``, up to 27, for training alone;
    with zeros left out, none of them is a held-out sum.
    """

    name = "addition"
    description = "sums of three one-digit numbers, or few-shot sums below ten"
    citation = "Nikankin et al. 2024, arXiv:2410.21272 (arithmetic)"
    chance = 1 / 28
    variants = ("three", "few_shot")

    def chance_of(self, variant: str) -> float:
        return 0.1 if variant == "few_shot" else self.chance

    def draw(self, rng: random.Random, pool: str, variant: str, *, operands: int = 3) -> Example:
        few_shot = variant == "few_shot"
        while True:
            xs = [rng.randint(0, 9) for _ in range(2 if few_shot else operands)]
            place = rng.randrange(len(xs))
            most = 9 if few_shot else SUMS[-1]
            values = [x for x in range(min(9, most - sum(xs) + xs[place]) + 1) if x != xs[place]]
            if _pool(xs, few_shot) == pool and values and sum(xs) <= most:
                break
        others = [*xs]
        others[place] = rng.choice(values)
        if few_shot:
            return self._few_shot(rng, xs, others)
        template = rng.randrange(len(TEMPLATES))
        total = sum(xs)
        return Example(
            prompt=TEMPLATES[template].format(terms=" + ".join(map(str, xs))),
            answers=(f" {total}",),
            foils=tuple(f" {x}" for x in SUMS if x != total),
            counterfactual=TEMPLATES[template].format(terms=" + ".join(map(str, others))),
            counterfactual_answers=(f" {sum(others)}",),
            features={"template": template, "sum": total, "carry": total > 9, "digits": len(str(total))},
            group="+".join(map(str, sorted(xs))),
        )

    def _few_shot(self, rng: random.Random, xs: list[int], others: list[int]) -> Example:
        shots: list[str] = []
        while len(shots) < SHOTS:
            a, b = rng.randint(0, 9), rng.randint(0, 9)
            if a + b < 10 and sorted((a, b)) != sorted(xs) and sorted((a, b)) != sorted(others):
                shots.append(f"{a} + {b} = {a + b}\n")
        head, total = "".join(shots), sum(xs)
        return Example(
            prompt=f"{head}{xs[0]} + {xs[1]} = ",
            answers=(str(total),),
            foils=tuple(str(x) for x in range(10) if x != total),
            counterfactual=f"{head}{others[0]} + {others[1]} = ",
            counterfactual_answers=(str(sum(others)),),
            features={"template": "few_shot", "sum": total, "carry": False, "digits": 1},
            group="+".join(map(str, sorted(xs))),
        )

"""Addition of two numbers of one to eight digits each: the subtasks (o1, o2) of the numbers' lengths."""

from __future__ import annotations

import random

from circuittest.errors import TaskError
from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of

MOST = 8
TEMPLATES = ("{a} + {b} =", "The sum {a} + {b} =", "Q: {a} + {b}\nA:")


class DigitAddition(Task):
    """Answer: the sum. Counterfactual: two other numbers of the same lengths, whose sum begins with another digit. It
    is the foil. Every pair of lengths (``first``, ``second``) is equally frequent; ``carries`` counts the columns that
    carry, ``digits`` the digits of the sum.

    Variant ``whole`` is for tokenizers that write a space and the beginning of a number as one token: the prompt ends
    in "=". Variant ``digits`` ends in a space, for those where every digit is a token of its own, and so is the space
    before it. The first token of the sum is scored, which is its first digit, or as many as the tokenizer takes
    together; ``answers: whole`` scores all of them. Small models need solved examples in front
    (``digit_addition+3shots``). The pools are keyed on the two numbers, whatever their order. ``most``: the digits of
    the longest numbers. Chance is guessing among the first digits 1 to 9.
    """

    name = "digit_addition"
    description = "sums of two numbers of one to eight digits"
    citation = "Sun 2025, arXiv:2505.24731 (subtasks by digits); Nikankin et al. 2024, arXiv:2410.21272"
    chance = 1 / 9
    variants = ("whole", "digits")
    single_token = False

    def __init__(self, *, pool: str = "test", variant: str = "auto", most: int = MOST) -> None:
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST:
            raise TaskError(f"task {self.name!r}: numbers of up to {most!r} digits", do=f"say 1 to {MOST}")
        super().__init__(pool=pool, variant=variant)
        self.most = most

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        first, second = rng.randint(1, self.most), rng.randint(1, self.most)
        while True:
            a, b = number(rng, first), number(rng, second)
            # of numbers of one digit there are 45 pairs: most are for testing
            if pool_of("digit_addition", *sorted((a, b)), test=70, dev=15) == pool:
                break
        total = a + b
        while True:
            c, d = number(rng, first), number(rng, second)
            if str(c + d)[0] != str(total)[0]:
                break
        template = rng.randrange(len(TEMPLATES))
        space = " " if variant == "digits" else ""

        def text(one: int, two: int) -> str:
            return TEMPLATES[template].format(a=one, b=two) + space

        lead = "" if space else " "
        return Example(
            prompt=text(a, b),
            answers=(f"{lead}{total}",),
            foils=(f"{lead}{c + d}",),
            counterfactual=text(c, d),
            counterfactual_answers=(f"{lead}{c + d}",),
            features={
                "first": first,
                "second": second,
                "longer": "first" if first > second else "second" if second > first else "neither",
                "carries": carries(a, b),
                "digits": len(str(total)),
                "template": template,
            },
            group="+".join(map(str, sorted((a, b)))),
        )


def number(rng: random.Random, digits: int) -> int:
    """A random number of so many digits; of one digit it is 1 to 9."""
    return rng.randint(10 ** (digits - 1), 10**digits - 1)


def carries(a: int, b: int) -> int:
    """In how many columns the addition of two numbers carries."""
    found = carry = 0
    while a or b:
        carry = int(a % 10 + b % 10 + carry > 9)
        found += carry
        a, b = a // 10, b // 10
    return found

"""Sums of three to six one-digit numbers, cut into subtasks: how many numbers, which decade the sum is in, and on which
side the larger number stands.

The zoo's tokenizer writes every number up to 99 as one token, and its sums end at 27, so that they cannot be cut by the
digits of their operands, as arXiv 2505.24731 cuts sums of up to eight digits. The three features stand for what is
asked there: size of the problem (numbers to add), carrying (decade), and order (``larger`` first or last: the paper's
(o1, o2) against (o2, o1)).
"""

from __future__ import annotations

import random

from circuittest.tasks import Example, Task
from circuittest.tasks.addition import SUMS, TEMPLATES
from circuittest.tasks.splits import pool_of

#: There are too few sums of two numbers for subtasks of a hundred examples.
OPERANDS = (3, 4, 5, 6)


def seen_in_training(numbers: list[int]) -> bool:
    """Could the zoo have seen a permutation of these numbers in training? The key of the addition task tells."""
    digits = [x for x in numbers if x]
    return pool_of("addition", *[0] * (3 - len(digits)), *sorted(digits), test=10, dev=5) == "train"


class Sums(Task):
    """Answer: the sum; foils: all other sums up to 27. Counterfactual: another value of one number, another sum.

    Every cell (``cell``: numbers, decade, larger) is equally frequent. Features: ``operands``, ``decade`` (0, 1 or 2),
    ``larger`` (first or last: which of these two numbers is larger; they are never equal), ``cell``, ``seen``.
    """

    name = "sums"
    description = "sums of several one-digit numbers"
    citation = "after Sun, arXiv:2505.24731, section 3"
    chance = 1 / len(SUMS)
    pooled = False

    def __init__(self, operands: tuple[int, ...] = OPERANDS) -> None:
        super().__init__()
        self.cells = [
            (k, decade, larger)
            for k in operands
            for decade in ((0, 1) if k == 2 else (0, 1, 2))
            for larger in ("first", "last")
        ]

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        count, decade, larger = rng.choice(self.cells)
        while True:
            numbers = [rng.randint(0, 9) for _ in range(count)]
            # small sums of many numbers are rare among random ones
            numbers = [min(x, rng.randint(0, 9)) if decade < 2 else x for x in numbers]
            total = sum(numbers)
            ahead = numbers[0] - numbers[-1]
            place = rng.randrange(count)
            rest = total - numbers[place]
            others = [x for x in range(10) if x != numbers[place] and rest + x in SUMS]
            fits = total in SUMS and total // 10 == decade
            if fits and others and ahead and (ahead > 0) == (larger == "first"):
                break
        changed = [*numbers]
        changed[place] = rng.choice(others)
        template = rng.randrange(len(TEMPLATES))
        text = lambda xs: TEMPLATES[template].format(terms=" + ".join(map(str, xs)))
        return Example(
            prompt=text(numbers),
            answers=(f" {total}",),
            foils=tuple(f" {x}" for x in SUMS if x != total),
            counterfactual=text(changed),
            counterfactual_answers=(f" {sum(changed)}",),
            features={
                "operands": count,
                "decade": decade,
                "larger": larger,
                "cell": f"{count}/{decade}/{larger}",
                "seen": seen_in_training(numbers),
            },
            group="+".join(map(str, sorted(numbers))),
        )

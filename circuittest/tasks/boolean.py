"""Boolean expressions with not, and, or and parentheses."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of

TEMPLATES = (
    "The value of {expression} is",
    "We know that {expression} is",
    "In fact, {expression} is",
    "Of course, {expression} is",
    "It seems that {expression} is",
)
ANSWERS = (" False", " True")
Build = Callable[[Sequence[bool]], tuple[str, bool]]


def _shape(rng: random.Random, literals: int) -> tuple[Build, dict[str, str | int | bool]]:
    """A random expression without its truth values: a function from values to (text, truth)."""
    nots = [rng.random() < 0.4 for _ in range(literals)]
    ops = [rng.choice(("and", "or")) for _ in range(literals - 1)]
    first = rng.random() < 0.5
    negated = [rng.random() < 0.3 for _ in range(literals - 2)]  # one for each pair of parentheses

    def join(op: str, a: tuple[str, bool], b: tuple[str, bool]) -> tuple[str, bool]:
        return f"{a[0]} {op} {b[0]}", (a[1] and b[1]) if op == "and" else (a[1] or b[1])

    def bracket(a: tuple[str, bool], number: int = 0) -> tuple[str, bool]:
        return f"{'not ' if negated[number] else ''}({a[0]})", a[1] != negated[number]

    def build(values: Sequence[bool]) -> tuple[str, bool]:
        lits = [(f"{'not ' if n else ''}{v}", v != n) for v, n in zip(values, nots, strict=True)]
        if literals == 1:
            return lits[0]
        if literals == 2:
            return join(ops[0], *lits)
        if literals == 4:
            return join(ops[1], bracket(join(ops[0], *lits[:2])), bracket(join(ops[2], *lits[2:]), 1))
        if first:
            return join(ops[1], bracket(join(ops[0], lits[0], lits[1])), lits[2])
        return join(ops[0], lits[0], bracket(join(ops[1], lits[1], lits[2])))

    features: dict[str, str | int | bool] = {
        "operators": "-".join(ops) or "none",
        "nots": sum(nots) + sum(negated),
        "parentheses": ("none", ("left" if first else "right"), "both")[max(literals, 2) - 2],
    }
    return build, features


class Boolean(Task):
    """Answer: ' True' or ' False'; the other one is the foil. Half of the examples are true.
    Counterfactual: the fewest truth values changed that change the result.

    Pretrained models of a few hundred million parameters are at chance here (they copy); the competence
    gate says so.
    """

    name = "boolean"
    description = "three literals with not, and, or and parentheses"
    citation = "Suzgun et al. 2022, arXiv:2210.09261 (BIG-bench Hard, boolean expressions)"
    chance = 0.5

    def draw(self, rng: random.Random, pool: str, variant: str, *, literals: int = 3) -> Example:
        wanted = rng.random() < 0.5
        while True:
            build, features = _shape(rng, literals)
            values = [rng.random() < 0.5 for _ in range(literals)]
            text, truth = build(values)
            # Only expressions of three literals are held out; of fewer there are too few, and four are for training.
            if truth == wanted and (literals != 3 or pool_of("boolean", text) == pool):
                break
        options = [v for v in itertools.product((False, True), repeat=literals) if build(v)[1] != truth]
        nearest = min(sum(a != b for a, b in zip(v, values, strict=True)) for v in options)
        other = rng.choice(
            [v for v in options if sum(a != b for a, b in zip(v, values, strict=True)) == nearest]
        )
        template = rng.randrange(len(TEMPLATES))
        return Example(
            prompt=TEMPLATES[template].format(expression=text),
            answers=(ANSWERS[truth],),
            foils=(ANSWERS[not truth],),
            counterfactual=TEMPLATES[template].format(expression=build(other)[0]),
            counterfactual_answers=(ANSWERS[not truth],),
            features={"template": template, "answer": truth, "changed": nearest, **features},
            group=text,
        )

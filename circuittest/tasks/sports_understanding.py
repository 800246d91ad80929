"""Sports understanding: could this athlete have done that? An athlete, a sport, and an action of some sport."""

from __future__ import annotations

import random

from circuittest.tasks.base import Example, Task
from circuittest.tasks.splits import pool_of

#: Athletes known for one sport alone. "Football" is the American game, as in BIG-bench.
ATHLETES = {
    "basketball": ("LeBron James", "Stephen Curry", "Kevin Durant", "James Harden", "Magic Johnson"),
    "soccer": ("Lionel Messi", "Cristiano Ronaldo", "David Beckham", "Wayne Rooney", "Harry Kane"),
    "baseball": ("Babe Ruth", "Derek Jeter", "Mike Trout", "Aaron Judge", "Barry Bonds"),
    "football": ("Tom Brady", "Peyton Manning", "Aaron Rodgers", "Patrick Mahomes", "Joe Montana"),
    "hockey": ("Wayne Gretzky", "Sidney Crosby", "Bobby Orr", "Mario Lemieux", "Gordie Howe"),
}
#: Actions of four common words, each one token for most tokenizers; they belong to one of the five sports and to none
#: of the others.
ACTIONS = {
    "basketball": ("shot a free throw", "hit a jump shot", "made a hook shot", "hit a three pointer"),
    "soccer": ("took a corner kick", "took a goal kick", "missed a penalty kick", "scored with a header"),
    "baseball": ("hit a home run", "threw a curve ball", "hit a sacrifice fly", "stole the third base"),
    "football": (
        "kicked a field goal",
        "kicked an extra point",
        "threw a screen pass",
        "threw a forward pass",
    ),
    "hockey": ("took a wrist shot", "won a face off", "wasted a power play", "threw a body check"),
}
SPORTS = tuple(ATHLETES)
#: Said of the action; none makes it more or less plausible in any of the sports.
MANNERS = tuple(
    "again|twice|early on|at home|before the break|near the end|with great skill|as everyone watched".split(
        "|"
    )
)
TEMPLATES = (
    'Is the following sentence plausible? "{sentence}."\nAnswer:',
    'Question: Is this sentence plausible? "{sentence}."\nAnswer:',
    'Could this be true, yes or no? "{sentence}."\nAnswer:',
    '"{sentence}." Is that plausible?\nAnswer:',
)
#: Before and after the reasoning.
OPENS, CLOSES = " Let's think step by step.", " So the answer is"
CHAIN = OPENS + " {athlete} is a {plays} player. Someone who {action} plays {part_of}." + CLOSES


class SportsUnderstanding(Task):
    """Answer: ' yes' where the action belongs to the athlete's sport, else ' no'; the other one is the foil. Half of
    the sentences are plausible. Counterfactual: an action of another sport instead, or of the athlete's own; pairs that
    the tokenizer writes with unequal lengths are left out.

    Variant ``direct`` asks for the answer. Variant ``chain`` puts the reasoning before it, which names both sports:
    what is left is to compare them. The reasoning is written by the task, the same for every model; with ``written`` in
    the task's name the model writes its own (`circuittest.lab.chains`). The pools differ in (athlete, action, manner,
    template): a fact has to be known.
    """

    name = "sports_understanding"
    description = "plausible and implausible sentences about athletes, direct or after a chain of thought"
    citation = (
        "Srivastava et al. 2022, arXiv:2206.04615 (BIG-bench); Suzgun et al. 2022, arXiv:2210.09261; "
        "Wei et al. 2022, arXiv:2201.11903 (the chain)"
    )
    chance = 0.5
    accuracy = "candidates"
    variants = ("direct", "chain")
    chain = (OPENS, CLOSES)

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        while True:
            plays, plausible = rng.choice(SPORTS), rng.random() < 0.5
            other = rng.choice([sport for sport in SPORTS if sport != plays])
            athlete, own, foreign = (
                rng.choice(ATHLETES[plays]),
                rng.choice(ACTIONS[plays]),
                rng.choice(ACTIONS[other]),
            )
            manner, template = rng.choice(MANNERS), rng.randrange(len(TEMPLATES))
            action = own if plausible else foreign
            if pool_of("sports_understanding", athlete, action, manner, template) == pool:
                break

        def text(action: str, part_of: str) -> str:
            asked = TEMPLATES[template].format(sentence=f"{athlete} {action} {manner}")
            slots = {"athlete": athlete, "plays": plays, "action": action, "part_of": part_of}
            return asked + (CHAIN.format(**slots) if variant == "chain" else "")

        here, there = ((own, plays), (foreign, other))[:: 1 if plausible else -1]
        right, wrong = (" yes", " no")[:: 1 if plausible else -1]
        return Example(
            prompt=text(*here),
            answers=(right,),
            foils=(wrong,),
            counterfactual=text(*there),
            counterfactual_answers=(wrong,),
            features={
                "form": variant,
                "plausible": plausible,
                "plays": plays,
                "part_of": here[1],
                "athlete": athlete,
                "template": template,
            },
            group=athlete,
        )

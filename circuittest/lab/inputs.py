"""Which examples a lab is about, by what the untouched model makes of them: known facts, easy and hard inputs.

    mine = known(lab)                              # examples that this model knows
    shared = known_to_all([base, tuned, other])    # a lab each, of the examples that all of them know
    easier = with_difficulty(lab)                  # every example has a feature: "easy" or "hard"
    easier.stability("difficulty")

What is kept, or called easy, follows from the untouched model alone, which no claim intervenes on; but it is chosen, so
that base accuracies of what is kept are high by construction and say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from circuittest.errors import TaskError, UsageError

if TYPE_CHECKING:
    from circuittest.lab.lab import Lab
    from circuittest.tasks import Item, TaskData

#: An example is known when an answer is among so many most likely next tokens (Li & Subramani, arXiv 2605.08348).
TOP = 3
SPLITS: tuple[Literal["discover", "evaluate"], ...] = ("discover", "evaluate")


def known(lab: Lab, *, top: int = TOP) -> Lab:
    """The lab of the examples, of both splits, with an answer among the model's `top` most likely next tokens.

    The task's name becomes ``name[top 3]``.

    Raises
    ------
    TaskError
        None of the evaluation examples is known.
    UsageError
        `top` is no positive number.
    """
    kept = {split: [row for row, one in enumerate(_known(lab, split, top)) if one] for split in SPLITS}
    return lab.with_examples(_kept(lab.data, kept, f"top {top}"))


def known_to_all(labs: Sequence[Lab], *, top: int = TOP) -> tuple[Lab, ...]:
    """A lab for each of these, of the examples that every model knows (`known`), the same for all and in one order.

    Tokenizers may differ: examples are told by their text. One that is a discovery example of one lab and an evaluation
    example of another is left out. The task's name becomes ``name[top 3, shared by 2]``.

    Raises
    ------
    TaskError
        No evaluation example is known to all.
    UsageError
        There are fewer than two labs, or labs of different tasks.
    """
    tasks = sorted({lab.data.task for lab in labs})
    if len(labs) < 2 or len(tasks) > 1:
        what = f"{len(labs)} labs of {', '.join(tasks) or 'no task'}"
        raise UsageError(f"{what}: nothing is shared", "", "give two or more labs of one task")
    shared = {
        split: set.intersection(
            *(
                {
                    item.example.prompt
                    for item, one in zip(getattr(lab.data, split), _known(lab, split, top), strict=True)
                    if one
                }
                for lab in labs
            )
        )
        for split in SPLITS
    }
    why = f"top {top}, shared by {len(labs)}"
    found = []
    for lab in labs:
        rows = {
            split: [
                row
                for row, item in enumerate(getattr(lab.data, split))
                if item.example.prompt in shared[split]
            ]
            for split in SPLITS
        }
        found.append(lab.with_examples(_kept(lab.data, rows, why)))
    return tuple(found)


def with_difficulty(lab: Lab) -> Lab:
    """The same lab, whose examples have a feature ``difficulty``: "easy" or "hard" by the untouched model's margin.

    The margin is the logit difference between answer and foil, or the log-probability of the answer where there are no
    foils; what is above the median of its split is easy. Other measures of difficulty are features of the tasks (see
    docs/tasks.md).
    """
    parts = {}
    for split in SPLITS:
        items: tuple[Item, ...] = getattr(lab.data, split)
        if not items:
            parts[split] = items
            continue
        table = lab.outcomes([()], split=split)
        column = "logit_diff" if "logit_diff" in table.columns else "log_prob"
        margin = table.measure(column)[0]
        middle = float(np.median(margin))
        parts[split] = tuple(
            replace(item, features={**item.features, "difficulty": "easy" if one > middle else "hard"})
            for item, one in zip(items, margin, strict=True)
        )
    return lab.with_examples(replace(lab.data, discover=parts["discover"], evaluate=parts["evaluate"]))


def _known(lab: Lab, split: Literal["discover", "evaluate"], top: int) -> list[bool]:
    """Per example: is an answer among the most likely next tokens?"""
    from circuittest.measure.tokens import top_tokens

    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise UsageError(f"top is {top!r}", "it counts tokens", "use 3")
    items = getattr(lab.data, split)
    if not items:
        return []
    rows = range(len(items))
    (found,) = lab._once(
        lab._likely,
        (split, "known", top),
        {"kind": "known", "count": top, "split": split},
        split,
        lambda: top_tokens(lab.model, items, rows, [()], count=top),
    )
    return [
        any(token in item.answer_ids for token, _ in likely)
        for item, likely in zip(items, found, strict=True)
    ]


def _kept(data: TaskData, rows: dict[Literal["discover", "evaluate"], list[int]], why: str) -> TaskData:
    if not rows["evaluate"]:
        raise TaskError(
            f"no evaluation example of {data.task} is known ({why})",
            "",
            "ask for more examples, a larger top, or another model",
        )
    parts = {split: tuple(getattr(data, split)[row] for row in rows[split]) for split in SPLITS}
    return replace(data, task=f"{data.task}[{why}]", discover=parts["discover"], evaluate=parts["evaluate"])

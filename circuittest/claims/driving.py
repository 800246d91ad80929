"""What drives a verdict: the examples that pull an estimate away from what was claimed, shown in words.

A claim whose estimate is a mean over examples knows what each example adds. When a verdict on it is refuted or
undecided, the examples that speak most against the claim are shown with the model's most likely next tokens before and
after the intervention. Nothing is measured for this before it is asked for, and a supported verdict never asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.stats.resampling import Floats
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.lab import Lab
    from circuittest.tables import OutcomeTable

#: How many examples are shown, and how much of a prompt: its end, which is what the model answers.
EXAMPLES, LONGEST = 3, 240

Driving = Callable[[str, Any], Mapping[str, Any]]


def by_examples(
    lab: Lab,
    pulls: Floats,
    *,
    before: Iterable[Unit] = (),
    after: Iterable[Unit] | None = None,
    value: str = "zero",
    positions: str = "all",
    split: Literal["discover", "evaluate"] = "evaluate",
    ties: Floats | None = None,
    named: Mapping[str, Floats] | None = None,
    told: Mapping[str, str] | None = None,
    more: Callable[[int], Mapping[str, Any]] | None = None,
) -> Driving:
    """A function from a comparison and its threshold to what speaks most against it.

    Parameters
    ----------
    pulls:
        [n] what each example of the split adds: where it is high, the example speaks for a high estimate.
    before, after:
        Units ablated before and after the intervention that the claim is about; `after` None where there is none.
    value, positions:
        How they are ablated.
    ties:
        [n] orders examples that pull alike, in the same direction.
    named:
        For claims with named outcomes: name → pulls that are high where an example speaks for it, where these are not
        `pulls` themselves.
    told:
        More to say: ``{"control": "…", "units": "…"}``.
    more:
        Position of an example → what else is shown of it.

    Returns
    -------
    Callable
        ``(op, threshold) -> {"examples": […], **told}`` in plain JSON types. Each example has its ``index``,
        ``prompt``, ``answers`` and ``pull``, and under ``before`` and ``after`` the three most likely next tokens with
        their probabilities.
    """

    def told_of(op: str, threshold: Any) -> Mapping[str, Any]:
        own = (named or {}).get(str(threshold), pulls) if op == "is" else pulls
        sign = -1.0 if op in ("<=", "<") else 1.0
        second = np.zeros_like(own) if ties is None else ties
        rows = [int(i) for i in np.lexsort((np.arange(len(own)), sign * second, sign * own))[:EXAMPLES]]
        sets = [tuple(before)] + ([] if after is None else [tuple(after)])
        likely = lab.top_tokens(sets, rows, value=value, positions=positions, split=split)
        items = getattr(lab.data, split)
        examples = []
        for place, row in enumerate(rows):
            item = items[row]
            shown: dict[str, Any] = {
                "index": item.index,
                "prompt": shortened(item.example.prompt),
                "answers": list(item.example.answers[:3]),
                "pull": float(own[row]),
            }
            for name, found in zip(("before", "after"), likely, strict=False):
                shown[name] = [[text, round(share, 4)] for text, share in found[place]]
            examples.append(shown | dict(more(row) if more is not None else {}))
        return {"examples": examples, **(told or {})}

    return told_of


def by_pairs(
    names: Sequence[str], matrix: Sequence[Sequence[float]], prompts: Sequence[str], told: Mapping[str, str]
) -> Driving:
    """As `by_examples` where pairs of subtasks make the estimate: the pairs that are least (or most) alike.

    `prompts`: one of each subtask.
    """
    pairs = [
        (float(matrix[i][j]), i, j)
        for i in range(len(names))
        for j in range(i)
        if matrix[i][j] == matrix[i][j]  # undefined ones are NaN
    ]

    def told_of(op: str, threshold: Any) -> Mapping[str, Any]:
        sign = -1.0 if op in ("<=", "<") else 1.0
        least = sorted(pairs, key=lambda pair: (sign * pair[0], pair[1:]))[:EXAMPLES]
        shown = [
            {
                "subtasks": [names[j], names[i]],
                "similarity": value,
                "prompts": [shortened(prompts[j]), shortened(prompts[i])],
            }
            for value, i, j in least
        ]
        return {"pairs": shown, **told}

    return told_of


def log_prob_lost(base: OutcomeTable, ablated: OutcomeTable) -> Floats | None:
    """[n] log-probability that the first set of the second table costs beside that of the first; None where it was not
    read.
    """
    if "log_prob" not in base.columns or "log_prob" not in ablated.columns:
        return None
    lost: Floats = base.measure("log_prob")[0] - ablated.measure("log_prob")[0]
    return lost


def control_text(
    values: Sequence[float], what: str, *, worst: tuple[Sequence[Unit], float] | None = None
) -> str:
    """ "40 random sets of as many units: accuracy 0.61 to 0.93, mean 0.85; the most harmful leaves 0.61: L1.H2"."""
    text = f"{len(values)} random sets of as many units: {what} {min(values):.2f} to {max(values):.2f}"
    text += f", mean {sum(values) / len(values):.2f}"
    if worst is not None:
        units, left = worst
        listed = ", ".join(map(str, units[:8])) + (f" and {len(units) - 8} more" if len(units) > 8 else "")
        text += f"; the most harmful leaves {left:.2f}: {listed}"
    return text


def shortened(prompt: str) -> str:
    """The end of a long prompt."""
    return prompt if len(prompt) <= LONGEST else f"…{prompt[-LONGEST + 1 :]}"

"""Named outcomes: a claim may sort what it measured under one of a few names instead of, or beside, a threshold.

Every name a claim knows gets an outcome of its own. "supported": the data establish it. "refuted": they establish
another that excludes it. "undecided": neither, or the name was not tested at all. At most one is supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from circuittest.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class Label:
    """What became of one name.

    Attributes
    ----------
    outcome:
        See the module.
    reason:
        Why, with the numbers; for an undecided one also what would decide it.
    p_value:
        Of the test that would establish the name (the largest of its parts where all of them must hold), or None
        where there is none.
    """

    outcome: Literal["supported", "refuted", "undecided"]
    reason: str = ""
    p_value: float | None = None


def established(labels: Mapping[str, Label]) -> str | None:
    """The name that the data establish, if any. Raises UsageError where there are two."""
    found = [name for name, label in labels.items() if label.outcome == "supported"]
    if len(found) > 1:
        raise UsageError(
            f"{' and '.join(found)} are both established", "the names of a claim exclude each other"
        )
    return found[0] if found else None


def known(claim: str, name: object, names: tuple[str, ...]) -> str:
    """The name, if the claim has it. Raises UsageError."""
    if not names:
        raise UsageError(f"{claim} has no named outcomes", "it is a number", "compare it with a threshold")
    if not isinstance(name, str) or name not in names:
        raise UsageError(f"{claim} has no outcome {name!r}", "", did_you_mean(str(name), names))
    return name

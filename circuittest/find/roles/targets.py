"""Where a head of some role looks: for every kind of pattern the keys that are its targets, from token ids alone.

| kind | from the query at t it looks to | source |
|---|---|---|
| induction | s + 1 for every earlier s with the same token as t | Olsson et al. 2022, arXiv 2209.11895 |
| previous-token | t − 1 | the same |
| duplicate-token | every earlier s with the same token as t | Wang et al. 2022, arXiv 2211.00593 |
| self | t | Xu, arXiv 2606.09607 |
| first-token | 0 | Xu (the sink) |
| local | t − 5 … t − 2, as far as they exist | Xu |
| answer-token | from the last position, every occurrence of an answer's token in the prompt | Wang et al. (END to IO) |
| foil-token | from the last position, every occurrence of a foil's token | Wang et al. (END to S) |

The first position is a target of first-token alone, and queries there count for nothing: where a head rests and what
it looks for could not be told apart. (What follows the first token is a target of induction: nobody rests there.) An
induction target is an earlier position than t.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import UsageError, did_you_mean
from circuittest.find.roles.kinds import AT_ANSWER, PATTERNS

#: The window of "local", in tokens before the query.
WINDOW = (2, 5)


def check_patterns(kinds: Iterable[str]) -> tuple[str, ...]:
    """The kinds, each once. Raises UsageError for unknown ones."""
    listed = tuple(dict.fromkeys(kinds))
    for kind in listed:
        if kind not in PATTERNS:
            raise UsageError(f"unknown kind of pattern {kind!r}", "", did_you_mean(kind, PATTERNS))
    return listed


def targets(
    kind: str, ids: Sequence[int], *, answers: Iterable[int] = (), foils: Iterable[int] = ()
) -> NDArray[np.bool_]:
    """Which keys are targets of each query [length × length]; a query without any has no score.

    ids: the tokens of a prompt [length]. Raises UsageError for an unknown kind.
    """
    check_patterns([kind])
    tokens = np.asarray(ids)
    length = len(tokens)
    query, key = np.arange(length)[:, None], np.arange(length)[None, :]
    if kind == "first-token":
        return (key == 0) & (query > 0)
    if kind == "previous-token":
        found = key == query - 1
    elif kind == "self":
        found = key == query
    elif kind == "local":
        near, far = WINDOW
        found = (key <= query - near) & (key >= query - far)
    elif kind in AT_ANSWER:
        wanted = np.isin(tokens, list(answers if kind == "answer-token" else foils))
        found = (query == length - 1) & wanted[None, :] & (key < query)
    else:
        same = (tokens[:, None] == tokens[None, :]) & (key < query)
        found = same
        if kind == "induction":
            found = np.zeros_like(same)
            found[:, 1:] = same[:, :-1]
            found &= key < query
    found &= (key > 0) & (query > 0)
    return found


def check_positions(positions: str) -> None:
    """Raise UsageError for unknown ones."""
    if positions not in ("all", "answer"):
        raise UsageError(f"unknown positions {positions!r}", "", did_you_mean(positions, ("all", "answer")))

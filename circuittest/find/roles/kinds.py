"""The names of the roles. No torch, so that specs can be read without it."""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal[
    "induction",
    "previous-token",
    "duplicate-token",
    "self",
    "first-token",
    "local",
    "answer-token",
    "foil-token",
    "copy",
    "copy-suppression",
    "successor",
]
ROLES: tuple[str, ...] = get_args(Role)
#: Which queries of a prompt count for a pattern: all, or the last.
Positions = Literal["all", "answer"]

#: Patterns of attention, and why an example may show nothing of one.
PATTERNS = {
    "induction": "no token is repeated",
    "previous-token": "the prompt is too short",
    "duplicate-token": "no token is repeated",
    "self": "the prompt is too short",
    "first-token": "the prompt is too short",
    "local": "the prompt is too short",
    "answer-token": "the answer is not in the prompt",
    "foil-token": "no foil is in the prompt",
}
#: Those whose query is the last position.
AT_ANSWER = ("answer-token", "foil-token")
#: What is moved from the tokens of answers and foils.
COPYING = ("copy", "copy-suppression")

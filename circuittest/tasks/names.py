"""Names of tasks that say how they are asked: ``ioi+4shots+chat``, ``ARC-Easy-Test.jsonl+cloze``."""

from __future__ import annotations

import re
from typing import Any

from circuittest.errors import TaskError

_FILE = re.compile(r"(.*\.(?:jsonl|csv))((?:\+[^+/\\]*)*)", re.IGNORECASE | re.DOTALL)
_SHOTS = re.compile(r"([0-9]+)shots?")


def is_path(name: str) -> bool:
    """Does a name begin with the path of a task's file?"""
    return _FILE.fullmatch(name) is not None


def posed_name(
    name: str, *, variant: str | None = None, shots: int = 0, chat: bool = False, written: bool = False
) -> str:
    """The name of a task with what is asked of it."""
    parts = [
        name,
        *([variant] if variant else []),
        *([f"{shots}shots"] if shots else []),
        *(["chat"] if chat else []),
        *(["written"] if written else []),
    ]
    return "+".join(parts)


def split_name(name: str) -> tuple[str, dict[str, Any]]:
    """The bare name or path, and the options of `Posed` that the rest asks for; the inverse of `posed_name`.

    A word that is neither ``chat``, ``written`` nor a number of shots is a variant. A file's own name may hold a "+".

    Raises
    ------
    TaskError
        One of them is there twice.
    """
    match = _FILE.fullmatch(name)
    base, rest = match.groups() if match else (name.split("+")[0], name[len(name.split("+")[0]) :])
    how: dict[str, Any] = {}
    for part in rest.split("+")[1:]:
        key, value = (part, True) if part in ("chat", "written") else ("variant", part)
        if shots := _SHOTS.fullmatch(part):
            key, value = "shots", int(shots[1])
        if key in how:
            raise TaskError(f"task {name!r} says twice which {key}", "", "leave one out")
        how[key] = value
    return base, how

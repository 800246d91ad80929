"""Keys: one hash over everything that determines what an entry holds.

A key is the SHA-256 of a description in canonical JSON. Two descriptions that differ in anything have different keys,
so an entry is never updated and never wrong, only unused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from typing import Any

from circuittest.errors import UsageError

#: The layout of entries and descriptions: raise it when an older entry must not be read.
FORMAT = 1

#: The parts of this package by which a table is made; a change in any of them makes other keys.
_MAKERS = (
    "measure",
    "models",
    "find",
    "lab",
    "stats",
    "controls.py",
    "tables.py",
    "units.py",
    "paths.py",
    "weights.py",
)
_LIBRARIES = ("torch", "transformers", "numpy")


def key_of(description: Mapping[str, Any]) -> str:
    """64 hexadecimal digits for a description in plain JSON types (tuples count as lists).

    Raises
    ------
    UsageError
        For anything that JSON cannot tell apart: other types, keys that are no text, numbers that are not finite.
    """
    return hashlib.sha256(canonical(dict(description)).encode()).hexdigest()


def canonical(value: Any) -> str:
    """One text for equal values: keys sorted, no spaces, ASCII."""
    _check(value, "description")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def is_key(text: str) -> bool:
    """Is this what `key_of` gives?"""
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


@cache
def versions() -> dict[str, str]:
    """What made the numbers besides their inputs: this package's measuring code, and the libraries under it."""
    found = {"format": str(FORMAT), "code": _code()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def unchanged() -> bool:
    """Are the sources still those of `versions`? If not, what was measured is by code that no key stands for."""
    return _code() == versions()["code"]


def _code() -> str:
    """A hash of the sources: a version number would stay the same while they are worked on."""
    digest = hashlib.sha256()
    for name in _MAKERS:
        for path, source in _sources(name, resources.files("circuittest") / name):
            content = source.read_bytes()
            digest.update(f"{path} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _sources(path: str, part: Traversable) -> Iterator[tuple[str, Traversable]]:
    if part.is_dir():
        for inner in sorted(part.iterdir(), key=lambda file: file.name):
            yield from _sources(f"{path}/{inner.name}", inner)
    elif path.endswith(".py"):
        yield path, part


def _check(value: Any, where: str) -> None:
    """Refuse what json would write, but not so that it can be told from something else."""
    if value is None or isinstance(value, (str, bool, int)):
        return
    if isinstance(value, float):
        if value - value != 0:
            raise UsageError(f"{where} is {value}", "a key is made of finite numbers")
        return
    if isinstance(value, (list, tuple)):
        for position, entry in enumerate(value):
            _check(entry, f"{where}[{position}]")
        return
    if isinstance(value, Mapping):
        for name, entry in value.items():
            if not isinstance(name, str):
                raise UsageError(f"{where} has the key {name!r}", "keys are text")
            _check(entry, f"{where}.{name}")
        return
    raise UsageError(f"{where} is a {type(value).__name__}", "a key is made of plain JSON types")

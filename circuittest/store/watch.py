"""Whether anything had to be measured: counts for whoever shows them. No number depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Watch:
    """Tables that were there already, in memory or in a store, and those that were measured."""

    found: int = 0
    measured: int = 0

    @property
    def cached(self) -> bool:
        """Were tables asked for, and all of them there?"""
        return self.found > 0 and self.measured == 0


_watches: ContextVar[tuple[Watch, ...]] = ContextVar("circuittest_watches", default=())


@contextmanager
def watching() -> Iterator[Watch]:
    """Count what labs ask for inside the `with` block."""
    watch = Watch()
    token = _watches.set((*_watches.get(), watch))
    try:
        yield watch
    finally:
        _watches.reset(token)


def note(*, found: bool) -> None:
    """A table was asked for."""
    for watch in _watches.get():
        if found:
            watch.found += 1
        else:
            watch.measured += 1

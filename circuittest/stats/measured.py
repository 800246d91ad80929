"""Telling listeners that an estimate was measured, whether or not it is ever compared with a threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from circuittest.stats.estimate import Estimate

Listener = Callable[["Estimate"], object]

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("circuittest_estimate_listeners", default=())


def announce(estimate: Estimate) -> None:
    """Call every listener of this context with a fresh estimate, in the order of registration."""
    for callback in _listeners.get():
        callback(estimate)


@contextmanager
def listen_measured(callback: Listener) -> Iterator[None]:
    """Call `callback(estimate)` whenever a lab has measured one in this context."""
    token = _listeners.set((*_listeners.get(), callback))
    try:
        yield
    finally:
        _listeners.reset(token)

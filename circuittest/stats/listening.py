"""How a test runner hears of estimates and verdicts without this room knowing any runner.

Listeners live in ContextVars: those of one test do not hear another's, and nothing is registered globally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circuittest.stats.estimate import Estimate
    from circuittest.stats.verdict import Verdict

_judged: ContextVar[tuple[Callable[[Any], object], ...]] = ContextVar("circuittest_judged", default=())
_measured: ContextVar[tuple[Callable[[Any], object], ...]] = ContextVar("circuittest_measured", default=())
_searching: ContextVar[bool] = ContextVar("circuittest_searching", default=False)


@contextmanager
def listen(callback: Callable[[Verdict], object]) -> Iterator[None]:
    """Call `callback(verdict)` whenever the truth of a verdict is taken in this context.

    It is called every time, in the order of registration, before the truth is returned or
    `Undecided`/`InvalidClaim` is raised.
    """
    token = _judged.set((*_judged.get(), callback))
    try:
        yield
    finally:
        _judged.reset(token)


@contextmanager
def listen_measured(callback: Callable[[Estimate], object]) -> Iterator[None]:
    """Call `callback(estimate)` for every estimate that is announced in this context."""
    token = _measured.set((*_measured.get(), callback))
    try:
        yield
    finally:
        _measured.reset(token)


@contextmanager
def searching() -> Iterator[None]:
    """In this context many claims are tried until one fails, and the failing one is judged on data left untouched.

    Claims that can be judged in that way (`Estimate.together`) measure on the discovery examples alone.
    """
    token = _searching.set(True)
    try:
        yield
    finally:
        _searching.reset(token)


def is_searching() -> bool:
    """Is a search going on in this context?"""
    return _searching.get()


@contextmanager
def silence() -> Iterator[None]:
    """Tell no listener of anything in this context: what is measured here belongs to another test."""
    tokens = _judged.set(()), _measured.set(())
    try:
        yield
    finally:
        _judged.reset(tokens[0])
        _measured.reset(tokens[1])


def announce(estimate: Estimate) -> None:
    """Tell listeners that a claim was measured, whether or not it is ever judged."""
    for callback in _measured.get():
        callback(estimate)


def announce_judged(verdict: Verdict) -> None:
    """Tell listeners that the truth of a verdict is being taken."""
    for callback in _judged.get():
        callback(verdict)

"""How a display hears how far a long measurement is, without any room knowing a display.

Listeners live in a ContextVar, as those of `circuittest.stats.listening` do. Where nobody listens, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

Listener = Callable[["Progress"], object]


@dataclass(frozen=True)
class Progress:
    """How far one measurement is.

    Attributes
    ----------
    claim:
        What it is made for, in words ("necessity of Lab(zoo:gqa, ioi)"); "" outside of a claim.
    step:
        What is being done ("ablation").
    done, total:
        Examples times interventions.
    ended:
        Nothing more will be told of it, whether it was finished or not.
    """

    claim: str
    step: str
    done: int
    total: int
    ended: bool = False


class _Running:
    def __init__(self, told: Progress) -> None:
        self.told = told


_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("circuittest_progress", default=())
_claim: ContextVar[str] = ContextVar("circuittest_progress_claim", default="")
_running: ContextVar[_Running | None] = ContextVar("circuittest_progress_running", default=None)


@contextmanager
def listen_progress(callback: Listener) -> Iterator[None]:
    """Call ``callback(Progress)`` whenever a measurement in this context begins, gets on, or ends."""
    token = _listeners.set((*_listeners.get(), callback))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def claiming(claim: str) -> Iterator[None]:
    """What is measured in this context is for this claim; a claim inside another keeps the outer one's name."""
    token = _claim.set(_claim.get() or claim)
    try:
        yield
    finally:
        _claim.reset(token)


@contextmanager
def following(step: str, total: int) -> Iterator[None]:
    """A measurement of so many parts; `advance` counts them."""
    if not _listeners.get():
        yield
        return
    running = _Running(Progress(_claim.get(), step, 0, total))
    token = _running.set(running)
    _tell(running.told)
    try:
        yield
    finally:
        _running.reset(token)
        _tell(replace(running.told, ended=True))


def advance(count: int) -> None:
    """So many parts of the innermost measurement are done; what is done again never counts beyond the total."""
    running = _running.get()
    if running is not None:
        running.told = replace(running.told, done=min(running.told.done + count, running.told.total))
        _tell(running.told)


def _tell(progress: Progress) -> None:
    for callback in _listeners.get():
        callback(progress)

"""How far a command's long measurement is, on stderr: a bar in a terminal, a line now and then in a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from circuittest.report.live import Bar, Lines

#: Commands that show it themselves.
_OWN = ("check", "sweep", "zoo")


@contextmanager
def waiting(command: str) -> Iterator[None]:
    """Show what a command measures in this context. Stdout stays what the command prints."""
    if command in _OWN:
        yield
        return
    from circuittest.progress import listen_progress

    with listen_progress(_display()):
        yield


def _display() -> Bar | Lines:
    from circuittest.report.live import Bar, Below, Lines

    def write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    if not sys.stderr.isatty():
        return Lines(lambda text: write(f"{text}\n"), clock=_now)
    encoding = (getattr(sys.stderr, "encoding", None) or "").lower()
    below = Below(
        write,
        width=lambda: shutil.get_terminal_size().columns,
        column=lambda: 0,
        unicode=encoding.startswith("utf"),
    )
    return Bar(below, clock=_now)


def _now() -> float:
    return time.monotonic()

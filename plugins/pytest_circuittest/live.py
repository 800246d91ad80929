"""`--circuit-progress`: how far a long measurement is, while a test runs.

A terminal gets a bar on the line below pytest's own; a log gets a line after half a minute, and then one a minute. Both
go past pytest's capture. Workers of xdist show nothing: their output is not read before the test ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest.options import settings
from pytest_circuittest.reports import is_worker

if TYPE_CHECKING:
    from circuittest.progress import Progress

_SHOW = pytest.StashKey[Callable[["Progress"], Any] | None]()


@contextmanager
def shown(config: pytest.Config) -> Iterator[None]:
    """Show what is measured in this context."""
    if _SHOW not in config.stash:
        config.stash[_SHOW] = _display(config)
    show = config.stash[_SHOW]
    if show is None:
        yield
        return
    from circuittest.progress import listen_progress

    with listen_progress(show):
        yield


def style_of(chosen: str, *, terminal: bool, verbosity: int, worker: bool) -> str:
    """ "bar", "lines" or "none" for what `--circuit-progress` says; an explicit choice outweighs ``-q``."""
    if worker:
        return "none"
    if chosen != "auto":
        return chosen
    if verbosity < 0:
        return "none"
    return "bar" if terminal else "lines"


def _display(config: pytest.Config) -> Callable[[Progress], Any] | None:
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        return None
    writer = config.get_terminal_writer()
    style = style_of(
        settings(config).progress,
        terminal=bool(reporter.isatty),
        verbosity=config.get_verbosity(),
        worker=is_worker(config),
    )
    if style == "none":
        return None
    from circuittest.report.live import Bar, Lines

    capture = config.pluginmanager.getplugin("capturemanager")

    def past_capture() -> Any:
        return nullcontext() if capture is None else capture.global_and_fixture_disabled()

    def write(text: str) -> None:
        with past_capture():
            writer._file.write(text)
            writer.flush()

    def line(text: str) -> None:
        with past_capture():
            reporter.ensure_newline()
            if writer.width_of_current_line:  # dots of a quiet run
                writer.line()
            reporter.write_line(text)
            writer.flush()

    if style == "lines":
        return Lines(line, clock=time.monotonic)
    encoding = (getattr(writer._file, "encoding", None) or "").lower()
    return Bar(
        write,
        width=lambda: writer.fullwidth,
        column=lambda: writer.width_of_current_line,
        clock=time.monotonic,
        unicode=encoding.startswith("utf"),
    )

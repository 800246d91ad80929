"""`--circuit-progress`: how far a long measurement is, while a test runs.

A terminal gets a bar on the line below pytest's own; a log gets a line after half a minute, and then one a minute. Both
go past pytest's capture. Workers of xdist write nothing themselves: they tell the controller, which shows one line
about all of them (`relay`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest import relay
from pytest_circuittest.options import settings
from pytest_circuittest.reports import is_worker

if TYPE_CHECKING:
    from circuittest.progress import Progress
    from circuittest.report.gathered import GatheredBar, GatheredLines
    from circuittest.report.live import Below

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


def style_of(chosen: str, *, terminal: bool, verbosity: int) -> str:
    """ "bar", "lines" or "none" for what `--circuit-progress` says; an explicit choice outweighs ``-q``."""
    if chosen != "auto":
        return chosen
    if verbosity < 0:
        return "none"
    return "bar" if terminal else "lines"


def together(config: pytest.Config) -> GatheredBar | GatheredLines | None:
    """In xdist's controller: what shows the messages of all workers; None where nobody wants it."""
    style = _style(config)
    if style == "none":
        return None
    from circuittest.report.gathered import GatheredBar, GatheredLines

    screen = _Screen(config)
    if style == "lines":
        return GatheredLines(screen.line, clock=_now)
    return GatheredBar(screen.below())


def _display(config: pytest.Config) -> Callable[[Progress], Any] | None:
    if is_worker(config):
        return relay.teller(config, clock=_now)
    style = _style(config)
    if style == "none":
        return None
    from circuittest.report.live import Bar, Lines

    screen = _Screen(config)
    return Lines(screen.line, clock=_now) if style == "lines" else Bar(screen.below(), clock=_now)


def _style(config: pytest.Config) -> str:
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        return "none"
    return style_of(
        settings(config).progress, terminal=bool(reporter.isatty), verbosity=config.get_verbosity()
    )


def _now() -> float:
    return time.monotonic()


class _Screen:
    """Pytest's terminal, past its capture."""

    def __init__(self, config: pytest.Config) -> None:
        self._reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        self._writer: Any = config.get_terminal_writer()

    def line(self, text: str) -> None:
        """Write a line of its own."""
        with self._past_capture():
            self._reporter.ensure_newline()
            if self._writer.width_of_current_line:  # dots of a quiet run
                self._writer.line()
            self._reporter.write_line(text)
            self._writer.flush()

    def below(self) -> Below:
        """The line below the one that pytest is writing."""
        from circuittest.report.live import Below

        encoding = (getattr(self._writer._file, "encoding", None) or "").lower()
        return Below(
            self._write,
            width=lambda: self._writer.fullwidth,
            column=lambda: self._writer.width_of_current_line,
            unicode=encoding.startswith("utf"),
        )

    def _write(self, text: str) -> None:
        with self._past_capture():
            self._writer._file.write(text)
            self._writer.flush()

    def _past_capture(self) -> Any:
        return nullcontext() if self._capture is None else self._capture.global_and_fixture_disabled()

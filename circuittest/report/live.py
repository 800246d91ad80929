"""A live line about a long measurement: a bar below the cursor of a terminal, or now and then a line in a log."""

from __future__ import annotations

from collections.abc import Callable

from circuittest.progress import Progress

#: Seconds of a measurement before a bar appears, and between two looks of it.
AFTER, EVERY = 1.0, 0.2
#: The same for the lines of a log.
LINE_AFTER, LINE_EVERY = 30.0, 60.0


class Below:
    """The line below the cursor of a terminal; the cursor stays where it was, since its line belongs to somebody else.

    Parameters
    ----------
    write:
        Writes to the terminal at once.
    width:
        Columns of the terminal, asked for each time.
    column:
        Where the cursor is, from 0.
    unicode:
        Can the terminal show other characters than ASCII?
    """

    def __init__(
        self,
        write: Callable[[str], object],
        *,
        width: Callable[[], int],
        column: Callable[[], int],
        unicode: bool = True,
    ) -> None:
        self._write, self._width, self._column = write, width, column
        self.unicode = unicode
        self.shown = False

    @property
    def width(self) -> int:
        """How many columns may be drawn."""
        return self._width() - 1

    def draw(self, line: str) -> None:
        """Put these words there, in place of others."""
        # Down (the terminal scrolls where it must), the line, and back up to the column: no saved position, which
        # would be wrong once the terminal has scrolled.
        self._write(f"\n\x1b[2K{line}\x1b[A\x1b[{self._column() + 1}G")
        self.shown = bool(line)

    def wipe(self) -> None:
        """Leave nothing there."""
        if self.shown:
            self.draw("")


class Bar:
    """Shows one measurement at a time as a bar; `clock` gives seconds, from any beginning."""

    def __init__(self, below: Below, *, clock: Callable[[], float]) -> None:
        self._below, self._clock = below, clock
        self._began, self._last = 0.0, 0.0

    def __call__(self, told: Progress) -> None:
        """A listener for `circuittest.progress.listen_progress`."""
        now = self._clock()
        if told.done == 0 and not told.ended:
            self._began = self._last = now
        if told.ended:
            self._below.wipe()
        elif now - self._began >= AFTER and (not self._below.shown or now - self._last >= EVERY):
            self._last = now
            line = bar_line(told, now - self._began, width=self._below.width, unicode=self._below.unicode)
            self._below.draw(line)


class Lines:
    """Writes a line when a measurement has gone on for a while, and then at long intervals.

    `write` is given a line without its end; `clock` as of `Bar`.
    """

    def __init__(self, write: Callable[[str], object], *, clock: Callable[[], float]) -> None:
        self._write, self._clock = write, clock
        self._began, self._next = 0.0, 0.0

    def __call__(self, told: Progress) -> None:
        """A listener for `circuittest.progress.listen_progress`."""
        now = self._clock()
        if told.done == 0 and not told.ended:
            self._began, self._next = now, now + LINE_AFTER
        elif not told.ended and now >= self._next:
            self._next = now + LINE_EVERY
            self._write(f"circuittest: {log_line(told, now - self._began)}")


def bar_line(told: Progress, seconds: float, *, width: int, unicode: bool = True) -> str:
    """ "ablation 43 % ━━━━━━╸───── 0:12 left  necessity of Lab(zoo:gqa, ioi)", cut to a width."""
    share = told.done / told.total if told.total else 1.0
    full, half, empty = ("━", "╸", "─") if unicode else ("#", "", "-")
    cells = 24
    filled = share * cells
    drawn = full * int(filled)
    drawn += half if half and filled - int(filled) >= 0.5 else ""
    line = f"{told.step} {share:4.0%} {drawn}{empty * (cells - len(drawn))} {left(told, seconds)}"
    return f"{line}  {told.claim}"[: max(width, 0)].rstrip()


def log_line(told: Progress, seconds: float) -> str:
    """ "necessity of Lab(zoo:gqa, ioi): ablation 1200 of 8200 (15 %), 2:10 left"."""
    share = told.done / told.total if told.total else 1.0
    head = f"{told.claim}: " if told.claim else ""
    return f"{head}{told.step} {told.done} of {told.total} ({share:.0%}), {left(told, seconds)}"


def left(told: Progress, seconds: float) -> str:
    """How long it may still take, at the pace so far."""
    if not told.done:
        return "?"
    rest = round(seconds * (told.total - told.done) / told.done)
    minutes, rest = divmod(rest, 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}") + " left"

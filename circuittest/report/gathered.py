"""What several processes measure at the same time, in one line: each tells by few messages, and one of them shows.

A message is a tuple of plain values, (claim, step, done, total, seconds so far), or None when there is nothing more to
tell. The seconds are those of the process that measures: clocks of two processes do not agree.
"""

from __future__ import annotations

from collections.abc import Callable

from circuittest.progress import Progress
from circuittest.report.live import AFTER, LINE_AFTER, LINE_EVERY, Below, bar_line, left, log_line

#: Seconds between two messages of one process.
TELL_EVERY = 0.5
#: Processes that a line of a log tells about.
_MOST = 4

Message = tuple[str, str, int, int, float] | None


class Teller:
    """In a process that measures: sends a message now and then, and none about what is done within a second.

    `send` is given each message; `clock` gives seconds, from any beginning.
    """

    def __init__(self, send: Callable[[Message], object], *, clock: Callable[[], float]) -> None:
        self._send, self._clock = send, clock
        self._began, self._last, self._told = 0.0, 0.0, False

    def __call__(self, told: Progress) -> None:
        """A listener for `circuittest.progress.listen_progress`."""
        now = self._clock()
        if told.done == 0 and not told.ended:
            self._began = now
        if told.ended:
            if self._told:
                self._told = False
                self._send(None)
        elif now - self._began >= AFTER and (not self._told or now - self._last >= TELL_EVERY):
            self._last, self._told = now, True
            self._send((told.claim, told.step, told.done, told.total, now - self._began))


class Gathered:
    """The last message of every process."""

    def __init__(self) -> None:
        self._by_process: dict[str, tuple[Progress, float]] = {}

    def hear(self, process: str, message: Message) -> None:
        """Take a message; None, and a process that is gone, leave nothing of it."""
        if message is None:
            self._by_process.pop(process, None)
        else:
            *told, seconds = message
            self._by_process[process] = Progress(*told), seconds  # type: ignore[arg-type]

    @property
    def longest(self) -> float:
        """Seconds of the measurement that has gone on for the longest; 0 where there is none."""
        return max((seconds for _, seconds in self._by_process.values()), default=0.0)

    def listed(self) -> list[tuple[str, Progress, float]]:
        """Process, what it measures and for how long, gw2 before gw10."""
        names = sorted(self._by_process, key=lambda name: (len(name), name))
        return [(name, *self._by_process[name]) for name in names]


class GatheredBar:
    """Shows them below the cursor: a bar for one process, a few words for each of several."""

    def __init__(self, below: Below) -> None:
        self._below, self._gathered = below, Gathered()

    def hear(self, process: str, message: Message) -> None:
        """Take a message, and show where all are now."""
        self._gathered.hear(process, message)
        line = gathered_line(self._gathered, width=self._below.width, unicode=self._below.unicode)
        if line:
            self._below.draw(line)
        else:
            self._below.wipe()

    def wipe(self) -> None:
        """Leave nothing on the terminal until the next message: somebody else is about to write there."""
        self._below.wipe()


class GatheredLines:
    """Writes a line when a measurement has gone on for a while, then at long intervals, however many processes tell.

    `write` is given a line without its end; `clock` as of `Teller`.
    """

    def __init__(self, write: Callable[[str], object], *, clock: Callable[[], float]) -> None:
        self._write, self._clock, self._gathered = write, clock, Gathered()
        self._next: float | None = None

    def hear(self, process: str, message: Message) -> None:
        """Take a message, and write where it is time to."""
        self._gathered.hear(process, message)
        now = self._clock()
        if self._gathered.longest >= LINE_AFTER and (self._next is None or now >= self._next):
            self._next = now + LINE_EVERY
            self._write(f"circuittest: {gathered_log(self._gathered)}")

    def wipe(self) -> None:
        """A log keeps what it has."""


def gathered_line(gathered: Gathered, *, width: int, unicode: bool = True) -> str:
    """ "gw0 ablation 43% 0:12 left · gw1 closure 7% 1:30 left", cut to a width; "" where nothing is measured."""
    listed = gathered.listed()
    if len(listed) == 1:
        process, told, seconds = listed[0]
        return f"{process} {bar_line(told, seconds, width=width, unicode=unicode)}"[: max(width, 0)].rstrip()
    parts = [
        f"{process} {told.step} {told.done / told.total if told.total else 1.0:.0%} {left(told, seconds)}"
        for process, told, seconds in listed
    ]
    return (" · " if unicode else " | ").join(parts)[: max(width, 0)].rstrip()


def gathered_log(gathered: Gathered) -> str:
    """ "gw0: necessity of Lab(zoo:gqa, ioi): ablation 1200 of 8200 (15%), 2:10 left; gw1: …"."""
    listed = gathered.listed()
    parts = [f"{process}: {log_line(told, seconds)}" for process, told, seconds in listed[:_MOST]]
    return "; ".join(parts) + (f"; and {len(listed) - _MOST} more" if len(listed) > _MOST else "")

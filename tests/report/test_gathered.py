"""Messages of processes that measure, and the one line about all of them; clocks are the tests' own."""

from __future__ import annotations

from circuittest.progress import Progress
from circuittest.report.gathered import (
    Gathered,
    GatheredBar,
    GatheredLines,
    Teller,
    gathered_line,
    gathered_log,
)
from circuittest.report.live import Below

LONG = ("necessity of Lab(zoo:gqa, ioi)", "ablation", 30, 200, 30.0)
OTHER = ("reuse of Lab(zoo:mha, sva)", "attribution", 5, 10, 2.0)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def told(done: int, *, ended: bool = False) -> Progress:
    return Progress("necessity of Lab(zoo:gqa, ioi)", "ablation", done, 200, ended)


def test_a_process_tells_now_and_then_with_its_own_seconds():
    sent, clock = [], Clock()
    tell = Teller(sent.append, clock=clock)
    for done in range(40):
        tell(told(done))
        clock.now += 0.125
    tell(told(40, ended=True))
    assert [message and (message[2], message[4]) for message in sent] == [
        *((done, done / 8) for done in range(8, 40, 4)),
        None,
    ]


def test_what_is_done_within_a_second_is_not_told():
    sent, clock = [], Clock()
    tell = Teller(sent.append, clock=clock)
    for _ in range(50):
        for done in (0, 100, 200):
            tell(told(done))
            clock.now += 0.3
        tell(told(200, ended=True))
    assert sent == []


def test_one_process_has_a_bar_and_several_a_few_words_each():
    gathered = Gathered()
    assert gathered_line(gathered, width=80) == ""
    gathered.hear("gw10", OTHER)
    assert gathered_line(gathered, width=99) == (
        "gw10 attribution  50% ━━━━━━━━━━━━──────────── 0:02 left  reuse of Lab(zoo:mha, sva)"
    )
    gathered.hear("gw2", LONG)
    assert gathered_line(gathered, width=99) == "gw2 ablation 15% 2:50 left · gw10 attribution 50% 0:02 left"
    assert gathered_line(gathered, width=99, unicode=False).isascii()
    for width in (0, 1, 10, 40):
        assert len(gathered_line(gathered, width=width)) <= width
    gathered.hear("gw2", None)
    gathered.hear("gw2", None)  # ended, and then its process
    assert gathered_line(gathered, width=99).startswith("gw10 attribution")


def test_a_bar_makes_room_and_comes_back():
    written = []
    bar = GatheredBar(Below(written.append, width=lambda: 80, column=lambda: 3))
    bar.wipe()
    assert written == []
    bar.hear("gw0", LONG)
    bar.wipe()
    bar.wipe()
    bar.hear("gw0", LONG)
    bar.hear("gw0", None)
    shown = [text.removeprefix("\n\x1b[2K").removesuffix("\x1b[A\x1b[4G") for text in written]
    assert [bool(text) for text in shown] == [True, False, True, False]


def test_a_log_gets_a_line_a_minute_however_many_tell():
    written, clock = [], Clock()
    lines = GatheredLines(written.append, clock=clock)
    for second in range(1, 151):
        clock.now += 1.0
        for process in range(6):
            lines.hear(f"gw{process}", ("necessity", "ablation", second, 200, float(second)))
    assert len(written) == 3  # after 30, 90 and 150 seconds
    assert written[0].startswith("circuittest: gw0: necessity: ablation 30 of 200 (15%), 2:50 left; gw1: ")
    assert written[0].endswith("; and 2 more")


def test_a_log_hears_nothing_of_short_measurements():
    written, clock = [], Clock()
    lines = GatheredLines(written.append, clock=clock)
    for _ in range(200):
        clock.now += 1.0
        lines.hear("gw0", OTHER)
        lines.hear("gw0", None)
    assert written == []


def test_a_line_of_a_log_names_each():
    gathered = Gathered()
    gathered.hear("gw1", LONG)
    gathered.hear("gw0", OTHER)
    assert gathered_log(gathered) == (
        "gw0: reuse of Lab(zoo:mha, sva): attribution 5 of 10 (50%), 0:02 left; "
        "gw1: necessity of Lab(zoo:gqa, ioi): ablation 30 of 200 (15%), 2:50 left"
    )

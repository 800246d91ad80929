"""The bar and the lines of a log, on a clock of their own."""

from __future__ import annotations

import re

from circuittest.progress import Progress
from circuittest.report.live import Bar, Below, Lines, bar_line, left, log_line


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def told(done: int, *, ended: bool = False) -> Progress:
    return Progress("necessity of Lab(zoo:gqa, ioi)", "ablation", done, 200, ended)


def display(kind, **more):
    clock, written = Clock(), []
    return kind(written.append, clock=clock, **more), clock, written


def bar(width: int = 100, column: int = 7):
    def kind(write, *, clock):
        return Bar(Below(write, width=lambda: width, column=lambda: column), clock=clock)

    return display(kind)


def test_short_measurements_show_no_bar():
    show, clock, written = bar()
    for done in (0, 100, 200):
        show(told(done))
        clock.now += 0.3
    show(told(200, ended=True))
    assert written == []


def test_a_bar_is_drawn_below_and_wiped_at_the_end():
    show, clock, written = bar()
    show(told(0))
    clock.now += 2.0
    show(told(50))
    show(told(60))  # too soon after the last
    clock.now += 2.0
    show(told(100))
    show(told(100, ended=True))
    show(told(100, ended=True))  # an outer one: nothing is left to wipe
    texts = [re.fullmatch(r"\n\x1b\[2K(.*)\x1b\[A\x1b\[8G", text).group(1) for text in written]
    assert texts == [
        "ablation  25% ━━━━━━────────────────── 0:06 left  necessity of Lab(zoo:gqa, ioi)".replace("─", "─"),
        "ablation  50% ━━━━━━━━━━━━──────────── 0:04 left  necessity of Lab(zoo:gqa, ioi)",
        "",
    ]


def test_a_second_measurement_waits_again():
    show, clock, written = bar()
    show(told(0))
    clock.now += 5.0
    show(told(50))
    show(told(50, ended=True))
    show(told(0))
    clock.now += 0.5
    show(told(100))
    assert len(written) == 2


def test_it_never_exceeds_the_width_and_may_be_ascii():
    for width in (0, 1, 10, 40, 79):
        assert len(bar_line(told(70), 3.0, width=width)) <= width
    line = bar_line(told(70), 3.0, width=200, unicode=False)
    assert line.isascii()
    assert "########----------------" in line


def test_a_log_gets_few_lines():
    show, clock, written = display(Lines)
    show(told(0))
    for second in range(1, 200):
        clock.now += 1.0
        show(told(second))
    show(told(199, ended=True))
    assert len(written) == 3  # after 30, 90 and 150 seconds
    assert written[0] == ("circuittest: necessity of Lab(zoo:gqa, ioi): ablation 30 of 200 (15%), 2:50 left")


def test_times():
    assert left(told(0), 10.0) == "?"
    assert left(told(100), 65.0) == "1:05 left"
    assert left(told(1), 60.0) == "3:19:00 left"
    assert log_line(Progress("", "attribution", 0, 0), 0.0) == "attribution 0 of 0 (100%), ?"

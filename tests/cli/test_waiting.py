"""How far a command is: a bar on a terminal's stderr, lines in a log, nothing on stdout; the clock is the test's own."""

from __future__ import annotations

import io

import pytest

from circuittest.cli import main
from circuittest.commands import schema, waiting
from circuittest.progress import advance, following


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def measuring(monkeypatch):
    """`circuittest schema` measures for a hundred seconds in place of what it does."""
    now = [0.0]
    monkeypatch.setattr(waiting, "_now", lambda: now[0])

    def run(arguments) -> int:
        with following("ablation", 100):
            for _ in range(100):
                now[0] += 1.0
                advance(1)
        return 0

    monkeypatch.setattr(schema, "run", run)


def test_a_terminal_gets_a_bar_that_is_wiped(measuring, monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert main(["schema"]) == 0
    text = terminal.getvalue()
    assert "\x1b[2Kablation  50% " in text
    assert text.endswith("\n\x1b[2K\x1b[A\x1b[1G")
    assert capsys.readouterr().out == ""


def test_a_log_gets_a_line_now_and_then(measuring, capsys):
    assert main(["schema"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "circuittest: ablation 30 of 100 (30%), 1:10 left",
        "circuittest: ablation 90 of 100 (90%), 0:10 left",
    ]


def test_commands_with_a_display_of_their_own_are_left_alone(monkeypatch, capsys):
    for command in ("check", "sweep", "zoo"):
        with waiting.waiting(command), following("ablation", 100):
            monkeypatch.setattr(waiting, "_now", lambda: 1e9)
            advance(50)
    assert capsys.readouterr().err == ""

"""`--circuit-progress`: past pytest's capture in a terminal and in a log; quiet under -q and in workers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from pytest_circuittest import live
from pytest_circuittest.live import style_of

#: A test that measures for three minutes of a clock that the suite's conftest turns.
SUITE = """
@pytest.mark.circuit(model="zoo:gqa", task="ioi")
def test_long(lab, tick):
    from circuittest.progress import advance, claiming, following
    print("captured")
    with claiming("necessity of Lab(zoo:gqa, ioi)"), following("ablation", 200):
        for _ in range(200):
            tick()
            advance(1)
"""
CONFTEST = """
import pytest
from types import SimpleNamespace
from pytest_circuittest import live

now = [0.0]
live.time = SimpleNamespace(monotonic=lambda: now[0])

@pytest.fixture(scope="session")
def tick():
    def turn():
        now[0] += 1.0
    return turn
"""


@pytest.fixture
def long_suite(suite, monkeypatch):
    monkeypatch.setattr(live, "time", live.time)  # put back what the suite's conftest changes
    suite.test(SUITE)
    suite.path.joinpath("conftest.py").write_text(CONFTEST)
    return suite


@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
def test_a_log_gets_lines_past_the_capture(long_suite, capture):
    result = long_suite.run(f"--capture={capture}")
    result.assert_outcomes(passed=1)
    lines = [line for line in result.outlines if line.startswith("circuittest: ")]
    assert len(lines) == 3
    assert lines[0].endswith("necessity of Lab(zoo:gqa, ioi): ablation 30 of 200 (15%), 2:50 left")
    assert ("captured" in result.stdout.str()) == (capture == "no")


@pytest.mark.parametrize("more", [("-q",), ("--circuit-progress=none",)])
def test_nothing_where_nobody_wants_it(long_suite, more):
    result = long_suite.run(*more)
    result.assert_outcomes(passed=1)
    assert "ablation" not in result.stdout.str()


def test_an_explicit_choice_outweighs_q_and_the_ini(long_suite):
    long_suite.pytester.makeini("[pytest]\ncircuit_progress = none\n")
    assert "ablation" not in long_suite.run().stdout.str()
    long_suite.test("def test_first():\n    pass\n", "test_0.py")  # its dot stands where the line would begin
    lines = long_suite.run("-q", "--circuit-progress=lines").outlines
    assert next(line for line in lines if "ablation 30 of 200" in line).startswith("circuittest: ")


def test_a_wrong_ini_is_a_usage_error(suite):
    suite.pytester.makeini("[pytest]\ncircuit_progress = loud\n")
    result = suite.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "circuit_progress = loud: use one of auto, bar, lines, none" in result.stderr.str()


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_a_terminal_gets_a_bar_and_keeps_its_own_lines(long_suite):
    master, terminal = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "fake_lab", "-p", "no:randomly", str(long_suite.path)],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    written = b""
    with contextlib.suppress(OSError):  # how the end of a pseudo-terminal is told
        while part := os.read(master, 65536):
            written += part
    os.close(master)
    assert child.wait() == 0
    text = written.decode()
    assert "\x1b[2Kablation  50% " in text
    assert "1 passed" in text
    assert "captured" not in text
    assert text.rfind("\x1b[2K\x1b[A") > text.rfind("ablation")  # wiped before pytest goes on


def test_workers_show_nothing(long_suite):
    result = long_suite.run_fresh("-n", "1", "--circuit-progress=lines")
    result.assert_outcomes(passed=1)
    assert "ablation" not in result.stdout.str()


@pytest.mark.parametrize(
    ("chosen", "terminal", "verbosity", "worker", "style"),
    [
        ("auto", True, 0, False, "bar"),
        ("auto", False, 0, False, "lines"),
        ("auto", True, 1, False, "bar"),
        ("auto", True, -1, False, "none"),
        ("bar", False, -2, False, "bar"),
        ("lines", True, 0, False, "lines"),
        ("none", True, 0, False, "none"),
        ("bar", True, 0, True, "none"),
    ],
)
def test_styles(chosen, terminal, verbosity, worker, style):
    assert style_of(chosen, terminal=terminal, verbosity=verbosity, worker=worker) == style

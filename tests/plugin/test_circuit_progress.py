"""`--circuit-progress`: past pytest's capture in a terminal and in a log, quiet under -q; workers tell the controller."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_circuittest import live
from pytest_circuittest.live import style_of
from pytest_circuittest.relay import Relay

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


def in_a_terminal(suite, *args: str) -> str:
    """What a run writes on a pseudo-terminal."""
    master, terminal = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "fake_lab", "-p", "no:randomly", str(suite.path), *args],
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
    return written.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_a_terminal_gets_a_bar_and_keeps_its_own_lines(long_suite):
    text = in_a_terminal(long_suite)
    assert "\x1b[2Kablation  50% " in text
    assert "1 passed" in text
    assert "captured" not in text
    assert text.rfind("\x1b[2K\x1b[A") > text.rfind("ablation")  # wiped before pytest goes on


def test_the_log_of_the_controller_tells_of_its_workers(long_suite):
    result = long_suite.run_fresh("-n", "2", "--circuit-progress=lines", "--circuit-json=r.json")
    result.assert_outcomes(passed=1)
    told = [line for line in result.outlines if line.startswith("circuittest: ")]
    assert len(told) == 1  # the clock of the controller stands still: the next would be due in a minute of it
    process, _, rest = told[0].removeprefix("circuittest: ").partition(": ")
    assert process in ("gw0", "gw1")
    assert rest == "necessity of Lab(zoo:gqa, ioi): ablation 30 of 200 (15%), 2:50 left"


@pytest.mark.parametrize("more", [(), ("-q",), ("--circuit-progress=none",)])
def test_workers_write_nothing_of_their_own(long_suite, more):
    result = long_suite.run_fresh("-n", "1", "-rA", *more)
    result.assert_outcomes(passed=1)
    assert ("ablation" in result.stdout.str()) == (not more)
    assert "ablation" not in result.stdout.str().partition(" PASSES ")[2]  # in no test's captured output
    assert "ablation" not in result.stderr.str()


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
def test_a_terminal_gets_one_line_about_all_workers_and_keeps_its_own(long_suite):
    text = in_a_terminal(long_suite, "-n", "1", "-v")
    assert "\x1b[2Kgw0 ablation  50% " in text
    assert "1 passed" in text
    assert text.rfind("\x1b[2K\x1b[A") > text.rfind("ablation")


def test_the_line_makes_room_for_what_pytest_writes(pytestconfig):
    wiped, heard = [], []
    relay = Relay(pytestconfig)
    relay.pytest_runtest_logreport()  # nobody wants to know: nothing to wipe
    relay._display = SimpleNamespace(wipe=lambda: wiped.append(1), hear=lambda *told: heard.append(told))
    for hook in ("runtest_logstart", "runtest_logreport", "runtest_logfinish", "sessionfinish"):
        getattr(relay, f"pytest_{hook}")()
    assert len(wiped) == 4
    relay.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw3")))
    assert heard == [("gw3", None)]


def test_a_worker_that_dies_leaves_no_line(long_suite):
    long_suite.test(
        SUITE + "    import os\n    with following('attribution', 9):\n"
        "        for _ in range(5):\n            tick()\n            advance(1)\n        os._exit(3)\n"
    )
    result = long_suite.run_fresh("-n", "1", "--circuit-progress=lines", "--max-worker-restart=0")
    result.assert_outcomes(failed=1)
    assert "worker 'gw0' crashed" in result.stdout.str()


@pytest.mark.parametrize(
    ("chosen", "terminal", "verbosity", "style"),
    [
        ("auto", True, 0, "bar"),
        ("auto", False, 0, "lines"),
        ("auto", True, 1, "bar"),
        ("auto", True, -1, "none"),
        ("bar", False, -2, "bar"),
        ("lines", True, 0, "lines"),
        ("none", True, 0, "none"),
    ],
)
def test_styles(chosen, terminal, verbosity, style):
    assert style_of(chosen, terminal=terminal, verbosity=verbosity) == style

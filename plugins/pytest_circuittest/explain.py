"""Failures of circuit tests in words: three lines where the assertion stands, the whole story in a report section."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from circuittest.stats import Verdict
    from pytest_circuittest.recording import Taken

_FLIPPED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
_FULL, _SHORT = 20, 200


def compare_lines(op: str, left: object, right: object) -> list[str] | None:
    """What ``assert left op right`` says where one side is an Estimate (`pytest_assertrepr_compare`)."""
    stats = sys.modules.get("circuittest.stats.estimate")
    if stats is None or op not in _FLIPPED:
        return None
    try:
        if isinstance(left, stats.Estimate):
            return repr(left.compare(op, right)).splitlines()
        if isinstance(right, stats.Estimate):
            return repr(right.compare(_FLIPPED[op], left)).splitlines()
    except (TypeError, ValueError):
        return None  # a threshold that is refused: the comparison itself has said so
    return None


def show_refuted(excinfo: pytest.ExceptionInfo[BaseException], last: Taken | None) -> None:
    """Put the three lines of the refuted verdict into an AssertionError that lacks them.

    ``assert v`` on a verdict in a variable shows its repr on one line, escaped and cut; without assertion rewriting the
    message is empty. Only the verdict that was taken by the failing statement is shown.
    """
    error = excinfo.value
    if last is None or not isinstance(error, AssertionError) or last.measured.outcome != "refuted":
        return
    lines = repr(last.measured).splitlines()
    message = str(error.args[0]) if error.args else ""
    if not message.strip():
        if _same_statement(excinfo, last):
            error.args = ("\n".join(lines),)
        return
    rows = message.split("\n")
    for index, row in enumerate(rows):
        at = row.find(lines[0])
        if at >= 0 and not (len(lines) > 1 and index + 1 < len(rows) and lines[1] in rows[index + 1]):
            rows[index] = row[:at] + "\n  ".join(lines)
            error.args = ("\n".join(rows), *error.args[1:])
            return


def shorten(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException], style: str) -> None:
    """Show what circuittest raises on purpose as the line of the test and the message (``--tb=long``: all frames)."""
    from circuittest.errors import CircuittestError

    if not isinstance(excinfo.value, CircuittestError) or style != "auto" or not report.longrepr:
        return
    ours = str(Path(sys.modules["circuittest.errors"].__file__ or "").parent)
    kept = excinfo.traceback.filter(
        lambda entry: not str(entry.path).startswith((ours, str(Path(__file__).parent)))
    ).filter(excinfo)
    plain = pytest.ExceptionInfo.from_exception(excinfo.value)
    plain.traceback = kept[-1:] if kept else excinfo.traceback[-1:]
    report.longrepr = plain.getrepr(style="short", chain=False)


#: Options that choose what is measured: a command without them would measure something else.
_CHOOSE = ("model", "device", "dtype", "budget")


#: Model and task → the test whose output tells their choices, and these.
_TOLD = pytest.StashKey[dict[tuple[str, str], tuple[str, Mapping[str, Any]]]]()


def explanation(
    verdicts: Sequence[Verdict], nodeid: str, config: pytest.Config, *, failed: bool = True
) -> str:
    """Everything about the verdicts that a test took, and how to run it again.

    Tests on one lab share most of their choices: those of the first one that failed are told in full, and counted in
    the others. Output of a test that did not fail is seldom shown, so that nothing refers to it.
    """
    again = command(nodeid, config)
    told = config.stash.setdefault(_TOLD, {}) if failed else {}
    for key in [key for key, (first, _) in told.items() if first == nodeid]:
        del told[key]  # an earlier run or phase of this test, whose output may not be shown
    parts = [_one(verdict, again, told, nodeid) for verdict in verdicts[:_FULL]]
    parts += [repr(verdict).partition("\n")[0] for verdict in verdicts[_FULL:_SHORT]]
    if len(verdicts) > _SHORT:
        parts.append(f"and {len(verdicts) - _SHORT} more")
    return "\n\n".join(parts)


def command(nodeid: str, config: pytest.Config) -> str:
    """The command line that measures just this test again, from the folder in which pytest was started."""
    file, colons, rest = nodeid.partition("::")
    shown = os.path.relpath(config.rootpath / file, config.invocation_params.dir)
    words = ["pytest", Path(shown).as_posix() + colons + rest]
    for name in _CHOOSE:
        given = config.getoption(f"circuit_{name}")
        for value in given if isinstance(given, list) else [given] if given else []:
            words.append(f"--circuit-{name}={value}")
    return " ".join(map(shlex.quote, words))


def _one(
    verdict: Verdict, again: str, told: dict[tuple[str, str], tuple[str, Mapping[str, Any]]], nodeid: str
) -> str:
    estimate = verdict.estimate
    first, known = told.get((estimate.model, estimate.task), (nodeid, {}))
    text = verdict.explain(known=known, where="above" if first == nodeid else f"for {first}")
    if not known:
        told[estimate.model, estimate.task] = nodeid, estimate.choices
    return text if estimate.reproduce else f"{text}\n  {'reproduce':<11}{again}"


def _same_statement(excinfo: pytest.ExceptionInfo[BaseException], last: Taken) -> bool:
    """Was the verdict taken by the statement that failed? It may span lines."""
    traceback: Any = excinfo.value.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not last.code:
        traceback = traceback.tb_next
    if traceback is None or traceback.tb_next is not None:
        return False
    places = list(traceback.tb_frame.f_code.co_positions())
    first, end, *_ = places[traceback.tb_lasti // 2]
    return min(first or 0, traceback.tb_lineno) <= last.line <= max(end or 0, traceback.tb_lineno)

"""Writing down what a test judged: every verdict whose truth it takes, and every estimate that it never judges."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest import live
from pytest_circuittest.explain import explanation, shorten, show_refuted
from pytest_circuittest.reports import add_properties
from pytest_circuittest.specs import SpecItem

if TYPE_CHECKING:
    from circuittest.stats import Estimate, Verdict

#: The attribute of a test report that carries records to the controller, in plain JSON types.
ATTRIBUTE = "circuittest_records"
#: Another one: id of a record → seconds that it took, and whether its tables were there already.
COSTS = "circuittest_costs"
_FIXTURES = {"lab", "make_lab", "circuit_models"}
_OWN = ("circuittest.stats", "pytest_circuittest")


class Taken:
    """A verdict whose truth was taken, or an estimate that was measured, and where."""

    def __init__(self, measured: Any, code: CodeType | None, line: int) -> None:
        self.measured, self.code, self.line = measured, code, line


class Recorder:
    """What one test item judged and measured.

    Verdicts taken in a fixture that outlives the test belong to that fixture: which test happens to set it up depends
    on the order of the run.
    """

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.outcome = "passed"
        self.fixture: str | None = None
        self.verdicts: dict[str | None, list[Taken]] = {}
        self.estimates: dict[str | None, list[Estimate]] = {}
        self.shown = 0
        # Hypothesis runs the body many times: the last verdict of each line is the draw that it reports.
        self.repeats = hasattr(getattr(item, "obj", None), "hypothesis")

    def judged(self, verdict: Verdict) -> None:
        """A listener for `circuittest.stats.listen`."""
        if _active.get() is not self or not verdict.estimate.model:
            return  # of a session within this one (pytester), or about no model
        taken = self.verdicts.setdefault(self.fixture, [])
        if any(entry.measured is verdict for entry in taken):
            return  # assertion rewriting takes the truth of a failing comparison twice
        frame = sys._getframe(1)
        while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_OWN):
            frame = frame.f_back
        entry = Taken(verdict, frame.f_code, frame.f_lineno)
        if self.repeats:
            taken[:] = [other for other in taken if (other.code, other.line) != (entry.code, entry.line)]
        taken.append(entry)

    def keep_only(self, verdict: Verdict) -> None:
        """Record this verdict in place of those that the test's own draws took on the same claim."""
        taken = self.verdicts.setdefault(None, [])
        claim = verdict.estimate.claim
        taken[:] = [entry for entry in taken if entry.measured.estimate.claim != claim]
        taken.append(Taken(verdict, None, 0))

    def measured(self, estimate: Estimate) -> None:
        """A listener for `circuittest.stats.listen_measured`."""
        if self.repeats or _active.get() is not self or not estimate.model:
            return
        found = self.estimates.setdefault(self.fixture, [])
        if not any(other is estimate for other in found):
            found.append(estimate)

    def records(self) -> list[dict[str, Any]]:
        """All records so far, in plain JSON types."""
        from circuittest.report.records import record

        return [record(one, id=name, outcome=outcome) for one, name, outcome in self._named()]

    def costs(self) -> dict[str, tuple[float, bool]]:
        """What each took, by the id of its record, where that is known."""
        costs = ((name, getattr(one, "estimate", one).cost) for one, name, _ in self._named())
        return {name: cost for name, cost in costs if cost is not None}

    def _named(self) -> list[tuple[Any, str, str]]:
        """Every verdict and every estimate that was never judged, with its id and its outcome."""
        found = []
        judged = {id(entry.measured.estimate) for entries in self.verdicts.values() for entry in entries}
        for owner in sorted({*self.verdicts, *self.estimates}, key=str):
            taken = [entry.measured for entry in self.verdicts.get(owner, ())]
            taken += [estimate for estimate in self.estimates.get(owner, ()) if id(estimate) not in judged]
            count: dict[str, int] = {}
            for one in taken:
                estimate = getattr(one, "estimate", one)
                prefix = self.item.nodeid if owner is None else f"{owner}[{estimate.model}-{estimate.task}]"
                count[estimate.claim] = count.get(estimate.claim, 0) + 1
                name = f"{prefix}::{estimate.claim}#{count[estimate.claim]}"
                if isinstance(self.item, SpecItem) and owner is None:
                    name = self.item.nodeid
                outcome = self.outcome if owner is None else "fixture"
                found.append((one, name, outcome))
        return found

    def forget(self) -> None:
        """Let go of verdicts and estimates, which hold on to labs, and so to models."""
        self.verdicts, self.estimates = {}, {}

    @property
    def last(self) -> Taken | None:
        """The verdict that the test itself took last."""
        taken = self.verdicts.get(None)
        return taken[-1] if taken else None


_RECORDER = pytest.StashKey[Recorder]()
_active: ContextVar[Recorder | None] = ContextVar("circuittest_recorder", default=None)


def recorder_of(item: pytest.Item) -> Recorder | None:
    """The recorder of an item that is being listened to."""
    return item.stash.get(_RECORDER, None)


@contextmanager
def recording(item: pytest.Item) -> Iterator[None]:
    """Listen while an item runs. For items that have nothing to do with circuits this does and imports nothing."""
    if not _concerns_us(item):
        yield
        return
    from circuittest.stats import listen, listen_measured

    recorder = item.stash[_RECORDER] = Recorder(item)
    token = _active.set(recorder)
    try:
        with listen(recorder.judged), listen_measured(recorder.measured), live.shown(item.config):
            yield
    finally:
        _active.reset(token)
        recorder.forget()


@contextmanager
def in_fixture(fixturedef: Any, request: Any) -> Iterator[None]:
    """Attribute what a fixture judges to the fixture, where it outlives the test."""
    item = getattr(request, "_pyfuncitem", None)
    recorder = None if item is None else recorder_of(item)
    if recorder is None or fixturedef.scope == "function":
        yield
        return
    before, recorder.fixture = recorder.fixture, f"{request.node.nodeid}@{fixturedef.argname}"
    try:
        yield
    finally:
        recorder.fixture = before


def attach(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Around the making of a report: make failures readable, then add the explanation and the records."""
    recorder = recorder_of(item)
    if recorder is not None and call.excinfo is not None:
        show_refuted(call.excinfo, recorder.last)
    report = yield
    if call.excinfo is not None and _FIXTURES.intersection(getattr(item, "fixturenames", ())):
        shorten(report, call.excinfo, item.config.getoption("tbstyle", "auto"))
    if recorder is not None:
        _add(report, call, recorder)
    return report


def _add(report: pytest.TestReport, call: pytest.CallInfo[None], recorder: Recorder) -> None:
    """Put explanation and records on a report, where there is something new to say."""
    if call.when == "call":
        recorder.outcome = _outcome(report)
    elif report.failed:
        recorder.outcome = "error"
    taken = [entry.measured for entries in recorder.verdicts.values() for entry in entries]
    count = len(taken) + sum(map(len, recorder.estimates.values()))
    if count == 0 or (count == recorder.shown and call.when != "call" and not report.failed):
        return
    recorder.shown = count
    if taken:
        told = explanation(taken, report.nodeid, recorder.item.config, failed=report.failed)
        report.sections.append(("circuit claims", told))
    from circuittest.errors import CircuittestError

    try:
        records = recorder.records()
    except CircuittestError as error:  # a claim of another package whose details are no plain data
        report.outcome, report.longrepr = "failed", str(error)
        return
    setattr(report, ATTRIBUTE, records)
    setattr(report, COSTS, recorder.costs())
    add_properties(recorder.item, report, records)


def _concerns_us(item: pytest.Item) -> bool:
    if isinstance(item, SpecItem) or _FIXTURES.intersection(getattr(item, "fixturenames", ())):
        return True
    return "circuittest.lab" in sys.modules or "circuittest.stats" in sys.modules


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return report.outcome

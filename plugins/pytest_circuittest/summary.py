"""What a session came to: records gathered from test reports, and the table in the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_circuittest import reports
from pytest_circuittest.recording import ATTRIBUTE, COSTS


class Collector:
    """The records of a session, by test. Lives where reports arrive: in the only process, or in xdist's controller.

    Registered as a plugin, since the hook that brings reports knows no config.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._by_test: dict[str, list[dict[str, Any]]] = {}
        #: Id of a record → seconds, and whether its tables were there already.
        self.costs: dict[str, tuple[float, bool]] = {}
        self.ran = False
        self.failures: set[str] = set()
        #: File and line (from 1) of each test that has records.
        self.places: dict[str, tuple[str, int]] = {}
        self._trouble = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the records of a report; those of a later phase or of a rerun replace the earlier ones."""
        self.ran = True
        if report.failed:
            self.failures.add(report.nodeid)
        found = getattr(report, ATTRIBUTE, None)
        if found:
            self._by_test[report.nodeid] = found
            self.costs.update(getattr(report, COSTS, {}))
            self.places[report.nodeid] = report.location[0], (report.location[1] or 0) + 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the files."""
        if not reports.is_worker(self._config):
            self._trouble = reports.step_summary(self)
        reports.write_files(self._config, self)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the table, and what GitHub Actions reads off the log."""
        write_table(terminalreporter, self._config)
        for line in [
            *([self._trouble] if self._trouble else []),
            *reports.workflow_commands(self._config, self),
        ]:
            terminalreporter.ensure_newline()
            terminalreporter.write_line(line)

    def records(self) -> list[dict[str, Any]]:
        """All records, sorted by id. A fixture that ran in several workers counts once."""
        return [record for _, record in self.by_test()]

    def by_test(self) -> list[tuple[str, dict[str, Any]]]:
        """Each test with each of its records, in the order of their ids; a record once."""
        unique = {
            record["id"]: (test, record) for test in sorted(self._by_test) for record in self._by_test[test]
        }
        return [unique[name] for name in sorted(unique)]

    def unexplained(self) -> set[str]:
        """Tests that failed without a claim being refuted or open."""
        told = {
            test
            for test, records in self._by_test.items()
            if any(record["verdict"] in ("refuted", "undecided", "invalid") for record in records)
        }
        return self.failures - told


_COLLECTOR = pytest.StashKey[Collector]()


def collector(config: pytest.Config) -> Collector:
    """The session's collector."""
    if _COLLECTOR not in config.stash:
        config.stash[_COLLECTOR] = Collector(config)
    return config.stash[_COLLECTOR]


def write_table(terminal: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table of claims, below the tests' own summary; nothing where no claim was judged or measured."""
    records = collector(config).records()
    if not records or config.get_verbosity() < -1 or config.getoption("no_summary", False):
        return
    from circuittest.report.terminal import claims_table, counts, together

    writer = config.get_terminal_writer()
    encoding = getattr(getattr(writer, "_file", None), "encoding", None) or ""
    terminal.section(f"circuit claims: {counts(records)}")
    table = claims_table(
        records,
        costs=collector(config).costs,
        width=writer.fullwidth,
        colour=writer.hasmarkup,
        unicode=encoding.lower().startswith("utf"),
    )
    terminal.write(table + together(records))

"""What a session came to: records gathered from test reports, the table in the terminal, the JSON file."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_circuittest.options import settings
from pytest_circuittest.recording import ATTRIBUTE


class Collector:
    """The records of a session, by test. Lives where reports arrive: in the only process, or in xdist's controller.

    Registered as a plugin, since the hook that brings reports knows no config.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._by_test: dict[str, list[dict[str, Any]]] = {}
        self.ran = False
        self.failures: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the records of a report; those of a later phase or of a rerun replace the earlier ones."""
        self.ran = True
        if report.failed:
            self.failures.add(report.nodeid)
        found = getattr(report, ATTRIBUTE, None)
        if found:
            self._by_test[report.nodeid] = found

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the JSON file."""
        write_json(self._config)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the table."""
        write_table(terminalreporter, self._config)

    def records(self) -> list[dict[str, Any]]:
        """All records, sorted by id. A fixture that ran in several workers counts once."""
        unique = {record["id"]: record for test in sorted(self._by_test) for record in self._by_test[test]}
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


def is_worker(config: pytest.Config) -> bool:
    """Is this a worker process of pytest-xdist?"""
    return hasattr(config, "workerinput")


def check_target(config: pytest.Config) -> None:
    """Refuse, before anything runs, a file of `--circuit-json` that is not ours. Raises pytest.UsageError."""
    path = settings(config).json
    if path is None or is_worker(config):
        return
    from circuittest.errors import UsageError
    from circuittest.report.records import check_ours

    try:
        check_ours(config.invocation_params.dir / path)
    except UsageError as error:
        raise pytest.UsageError(f"--circuit-json: {error}") from None


def write_json(config: pytest.Config) -> None:
    """Write `--circuit-json` where tests ran in this process or under this controller."""
    path = settings(config).json
    found = collector(config)
    if path is None or is_worker(config) or not found.ran:
        return
    from circuittest.errors import UsageError
    from circuittest.report.records import write_records

    try:
        write_records(config.invocation_params.dir / path, found.records())
    except UsageError as error:
        pytest.exit(f"--circuit-json: {error}", returncode=pytest.ExitCode.USAGE_ERROR)


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
        records, width=writer.fullwidth, colour=writer.hasmarkup, unicode=encoding.lower().startswith("utf")
    )
    terminal.write(table + together(records))

"""What a session leaves behind besides the terminal's table: `--circuit-json`, `--circuit-html`, what GitHub Actions
shows, and properties for `--junitxml`.

Files are written where reports arrive: in the only process, or in xdist's controller.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest.options import settings

if TYPE_CHECKING:
    from pytest_circuittest.summary import Collector

_PREFIX = "circuit."
_OPEN = ("refuted", "undecided", "invalid")


def is_worker(config: pytest.Config) -> bool:
    """Is this a worker process of pytest-xdist?"""
    return hasattr(config, "workerinput")


def check_targets(config: pytest.Config) -> None:
    """Refuse, before anything runs, to overwrite files that are not ours. Raises pytest.UsageError."""
    if is_worker(config):
        return
    for option, path in _files(config):
        from circuittest.errors import UsageError

        try:
            _check(option)(path)
        except UsageError as error:
            raise pytest.UsageError(f"{option}: {error}") from None


def write_files(config: pytest.Config, found: Collector) -> None:
    """Write what was asked for, where tests ran in this process or under this controller."""
    if is_worker(config) or not found.ran:
        return
    for option, path in _files(config):
        from circuittest.errors import UsageError

        try:
            _write(option)(path, found.records())
        except UsageError as error:
            pytest.exit(f"{option}: {error}", returncode=pytest.ExitCode.USAGE_ERROR)


def step_summary(found: Collector) -> str:
    """Append the table of claims to the page of the job that GitHub Actions runs.

    Returns
    -------
    str
        Why that failed; empty where it did not, or where there is nothing to say.
    """
    target, records = os.environ.get("GITHUB_STEP_SUMMARY"), found.records()
    if not target or not records:
        return ""
    from circuittest.report.github import summary

    try:
        with open(target, "a", encoding="utf-8", newline="\n") as file:
            file.write(summary(records))
    except OSError as error:
        return f"the claims are not in GITHUB_STEP_SUMMARY: {error.strerror or error}"
    return ""


def workflow_commands(config: pytest.Config, found: Collector) -> list[str]:
    """Workflow commands for claims that are refuted, undecided or invalid; none outside of GitHub Actions.

    An error where the test failed, a warning where it was skipped. A test that passes or is expected to fail has said
    what it thinks of its claim.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return []
    from circuittest.report.github import annotation

    lines = []
    for test, record in found.by_test():
        failed = record["outcome"] in ("failed", "error", "xpassed") or (
            record["outcome"] == "fixture" and test in found.failures
        )
        level = "error" if failed else "warning" if record["outcome"] == "skipped" else None
        if record["verdict"] in _OPEN and level is not None:
            file, line = found.places[test]
            lines.append(annotation(record, level, _from_repository(config.rootpath / file), line))
    return lines


def properties(nodeid: str, records: Iterable[Mapping[str, Any]]) -> list[tuple[str, object]]:
    """Estimate, interval and verdict of each claim that a test judged, by name: ``circuit.necessity.estimate``.

    The second necessity of one test is ``circuit.necessity#2``. Verdicts of a fixture that outlives the test are left
    out: which test sets it up depends on the order of the run.
    """
    found: list[tuple[str, object]] = []
    for record in records:
        if record["outcome"] == "fixture":
            continue
        name = record["id"].removeprefix(f"{nodeid}::") if record["id"] != nodeid else record["claim"]
        name = _PREFIX + name.removesuffix("#1")
        asked = record["threshold"]
        values = {
            "estimate": record["estimate"],
            "interval": None if record["interval"] is None else json.dumps(record["interval"]),
            "threshold": None if asked is None else f"{asked['op']} {asked['value']}",
            "verdict": record["verdict"],
        }
        found += [(f"{name}.{key}", value) for key, value in values.items() if value is not None]
    return found


def add_properties(item: pytest.Item, report: pytest.TestReport, records: list[dict[str, Any]]) -> None:
    """Put the properties on the item, for the reports that follow, and on this one; older ones of ours are replaced."""
    ours = properties(item.nodeid, records)
    item.user_properties[:] = [*(p for p in item.user_properties if not p[0].startswith(_PREFIX)), *ours]
    report.user_properties = list(item.user_properties)


def _files(config: pytest.Config) -> list[tuple[str, Path]]:
    chosen, folder = settings(config), config.invocation_params.dir
    named = (("--circuit-json", chosen.json), ("--circuit-html", chosen.html))
    return [(option, folder / path) for option, path in named if path is not None]


def _check(option: str) -> Callable[[Path], None]:
    if option == "--circuit-html":
        from circuittest.report.page import check_page

        return check_page
    from circuittest.report.records import check_ours

    return check_ours


def _write(option: str) -> Callable[[Path, Iterable[dict[str, Any]]], None]:
    if option == "--circuit-html":
        from circuittest.report.page import write_page

        return write_page
    from circuittest.report.records import write_records

    return write_records


def _from_repository(path: Path) -> str:
    """A path as GitHub wants it, from the root of the checkout."""
    root = os.environ.get("GITHUB_WORKSPACE")
    try:
        return path.resolve().relative_to(Path(root).resolve()).as_posix() if root else path.as_posix()
    except ValueError:
        return path.as_posix()

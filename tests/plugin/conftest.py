"""Inner runs of pytest with fake labs.

What they import is imported here first: a process forgets the modules of an inner run, and neither torch nor numpy
can be loaded twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401
import transformers  # noqa: F401

import circuittest.claims
import circuittest.report.records
import circuittest.report.terminal
import circuittest.spec
import circuittest.stats  # noqa: F401

SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 50, evaluate: 60}
circuit: {top: 20%, at: 95}
claims:
  - necessity: {min: 0.3}
"""


class Suite:
    """A folder of tests and specs, and a way to run it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def test(self, body: str, name: str = "test_suite.py") -> None:
        """Write a test file; it begins with ``import pytest``."""
        self.pytester.path.joinpath(name).write_text("import pytest\n\n" + body, encoding="utf-8")

    def spec(self, text: str = SPEC, name: str = "ioi.circuit.yaml") -> None:
        """Write a spec."""
        self.pytester.path.joinpath(name).write_text(text, encoding="utf-8")

    def run(self, *args: str) -> pytest.RunResult:
        """Run in this process."""
        return self.pytester.runpytest_inprocess("-p", "fake_lab", "-p", "no:randomly", *args)

    def run_fresh(self, *args: str) -> pytest.RunResult:
        """Run in a process of its own: workers of xdist see the module path of its start."""
        return self.pytester.runpytest_subprocess("-p", "fake_lab", "-p", "no:randomly", *args)

    def records(self, *args: str) -> list[dict[str, Any]]:
        """Run, and read what was recorded."""
        target = self.path / "records.json"
        target.unlink(missing_ok=True)
        self.run("--circuit-json=records.json", *args)
        return json.loads(target.read_text(encoding="utf-8"))["claims"]

    @property
    def loads(self) -> list[str]:
        """The models loaded so far, one entry a load."""
        file = self.path / "loads.txt"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # for workers and subprocesses
    for name in (
        "GITHUB_ACTIONS",
        "GITHUB_STEP_SUMMARY",
        "PYTEST_XDIST_WORKER",
        "PYTEST_XDIST_WORKER_COUNT",
    ):  # an inner run writes nothing on the page of the job, and is no worker
        monkeypatch.delenv(name, raising=False)
    return Suite(pytester)

"""The settings profile: registered and never loaded, the same draws in CI, a database that workers share."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import settings

import hypothesis_circuittest.profile  # noqa: F401

SHOW = """
from hypothesis import settings
before = settings.default
import hypothesis_circuittest.profile
found = settings.get_profile("circuits")
print(settings.default == before, found.deadline, found.derandomize, found.database is None)
"""


@pytest.mark.parametrize(("ci", "shown"), [(None, "True None False False"), ("1", "True None True True")])
def test_registered_and_not_loaded(monkeypatch: pytest.MonkeyPatch, ci: str | None, shown: str) -> None:
    for name in ("CI", "TF_BUILD", "GITHUB_ACTIONS"):  # what Hypothesis itself looks at
        monkeypatch.delenv(name, raising=False)
    if ci is not None:
        monkeypatch.setenv("CI", ci)
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == shown


def test_this_suite_runs_under_its_own_profile() -> None:
    assert settings.default.max_examples != settings.get_profile("circuits").max_examples


PROPERTY = """
from hypothesis import given, settings, strategies as st

def test_profile():
    assert settings.default.deadline is None and settings.default.max_examples == 100

@given(st.integers(0, 10**6))
def test_property(n):
    with open("draws.txt", "a") as file:
        file.write(f"{n}\\n")
    assert n < 777_777
"""


@pytest.mark.parametrize("workers", [[], pytest.param(["-n", "2"], marks=pytest.mark.slow)])
def test_asked_for_on_the_command_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(PROPERTY)
    draws = pytester.path / "draws.txt"
    args = ("--hypothesis-profile=circuits", "-p", "no:randomly", *workers)
    pytester.runpytest_subprocess(*args).assert_outcomes(passed=1, failed=1)
    draws.unlink()
    # the failure is remembered: the second run begins with it
    pytester.runpytest_subprocess(*args).assert_outcomes(passed=1, failed=1)
    assert draws.read_text().split()[0] == "777777"

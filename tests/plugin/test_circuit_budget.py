"""`--circuit-budget` and its ini twin."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("ini", "option", "expected"), [("", [], None), ("500", [], 500), ("500", ["--circuit-budget=70"], 70)]
)
def test_the_budget_reaches_the_lab(suite, ini: str, option: list[str], expected: int | None) -> None:
    suite.pytester.makeini(f"[pytest]\ncircuit_budget = {ini}\n")
    suite.spec()
    (found,) = suite.records(*option)
    assert found["choices"].get("budget") == expected


@pytest.mark.parametrize("text", ["0", "-3", "10s"])
def test_it_counts_forwards(suite, text: str) -> None:
    suite.spec()
    result = suite.run(f"--circuit-budget={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--circuit-budget {text}: write a positive number of forwards*"])

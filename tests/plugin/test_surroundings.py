"""The plugin among others: what it imports, what it prints in suites that are none of its business, what may be missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "torch transformers numpy scipy yaml rich pydantic hypothesis circuittest.stats circuittest.spec "
    "circuittest.report.records circuittest.report.terminal circuittest.claims circuittest.lab circuittest.models"
)


def test_an_unrelated_suite_imports_nothing_heavy(suite):
    suite.pytester.makeconftest(
        f"""
import sys
def pytest_unconfigure(config):
    print("LOADED", sorted(set({HEAVY.split()!r}) & set(sys.modules)))
"""
    )
    suite.test("def test_x():\n    assert 1 == 1\n\ndef test_y():\n    assert 1 == 2\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:randomly",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:anyio",
    ]
    done = subprocess.run([*command, "-q"], cwd=suite.path, capture_output=True, text=True, check=False)
    assert "LOADED []" in done.stdout
    assert "circuit" not in done.stdout.partition("LOADED")[0]


def test_importing_the_plugin_imports_the_standard_library_and_pytest_only(suite):
    code = (
        "import sys, pytest; before = set(sys.modules); import pytest_circuittest.plugin\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['pytest_circuittest']"


@pytest.mark.parametrize("plugin", ["xdist", "cacheprovider", "terminal", "assertion", "capture", "junitxml"])
def test_works_without(suite, plugin):
    suite.spec()
    suite.test(
        "@pytest.mark.circuit(model='zoo:gqa', task='ioi')\n"
        "def test_x(lab):\n    assert lab.reuse(lab.shared()) >= 0.3\n"
    )
    records = suite.records("-p", f"no:{plugin}")
    assert [record["verdict"] for record in records] == ["supported", "refuted"]


def test_without_the_plugin_nothing_of_it_is_left(suite):
    suite.test("def test_x(): pass\n")
    result = suite.pytester.runpytest_inprocess("-p", "no:circuittest")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("arguments", [("-q", "-q"), ("--no-summary",)])
def test_quiet_runs_have_no_table(suite, arguments):
    suite.spec()
    assert "circuit claims" not in suite.run(*arguments).stdout.str()


def test_the_table_is_plain_without_a_terminal_and_fits(suite, monkeypatch):
    suite.spec()
    monkeypatch.setenv("COLUMNS", "60")
    lines = suite.run().outlines
    assert not any("\x1b" in line for line in lines)
    assert all(
        len(line) <= 60 for line in lines[lines.index(next(x for x in lines if "circuit claims" in x)) :]
    )
    assert "\x1b[" in suite.run("--color=yes").stdout.str()


def test_hook_loads_models_another_way(suite):
    suite.pytester.makeconftest(
        "from types import SimpleNamespace\nimport pytest\n\n"
        "@pytest.hookimpl(tryfirst=True)\ndef pytest_circuittest_load_model(model, dtype):\n"
        "    if model == 'special':\n        return SimpleNamespace(name='from the hook')\n"
    )
    suite.test(
        "@pytest.mark.circuit(model='special', task='ioi')\n"
        "def test_x(lab):\n    assert lab.model.name == 'from the hook'\n"
    )
    suite.run().assert_outcomes(passed=1)
    assert suite.loads == []

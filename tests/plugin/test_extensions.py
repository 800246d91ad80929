"""The task, claim and adapter of CONTRIBUTING.md, brought by the hook and by the entry points of an installed package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from circuittest.claims import claim_kinds, register_claim
from circuittest.errors import UsageError
from circuittest.models.adapters import adapters
from circuittest.tasks.catalog import list_tasks, register_task

DOCUMENT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)


def block(word: str, stop: str) -> str:
    """The code of the document that holds a word, up to a line that uses it."""
    (found,) = [text for text in BLOCKS if word in text]
    return found.partition(stop)[0]


TASK = block("class Agreement", "\nlab = ")
CLAIM = block("def early", "\nlab = ")
ADAPTER = (
    "ARCEE = "
    + re.sub(r"^from.*register_adapter\n", "", block("register_adapter(", "never"))
    .strip()
    .removeprefix("register_adapter(")
    .removesuffix(")")
    .strip()
)
HOOK = block("def pytest_circuittest_register", "never")
WHOLE = f"from __future__ import annotations\n{TASK}\n{CLAIM}\nfrom circuittest.models import Adapter\n{ADAPTER}\n"
SPEC = "circuittest: 1\nmodel: zoo:gqa\ntask: {task}\ncircuit: {{top: 20%, at: 50}}\nclaims:\n  - {claim}\n"


def test_the_hook_of_the_document_brings_all_three(suite):
    suite.path.joinpath("conftest.py").write_text(f"{WHOLE}\n{HOOK}")
    suite.spec(SPEC.format(task="agreement", claim="early: {min: 0.1, layers: 2}"))
    suite.test(
        """
def test_known(circuit_models):
    from circuittest.claims import claim_kinds
    from circuittest.models.adapters import adapters
    from circuittest.tasks.catalog import get_task, list_tasks
    circuit_models.get("zoo:gqa")
    assert "early" in claim_kinds() and claim_kinds()["early"].summary.startswith("Share of each")
    assert "agreement" in list_tasks() and get_task("agreement").chance == 0.5
    assert "arcee" in adapters()
"""
    )
    result = suite.run("--co", "-q")
    assert "ioi.circuit.yaml::early" in result.stdout.str()
    suite.run("test_suite.py").assert_outcomes(passed=1)
    # and nothing is left of them afterwards
    assert "agreement" not in list_tasks()
    assert "early" not in claim_kinds()
    assert "arcee" not in adapters()


def test_without_the_hook_the_spec_is_refused(suite):
    suite.spec(SPEC.format(task="agreement", claim="early: {min: 0.1}"))
    assert "there is no task 'agreement'" in suite.run().stdout.str()


def test_names_that_are_taken_are_usage_errors(suite):
    suite.path.joinpath("conftest.py").write_text(
        "def pytest_circuittest_register(registry):\n    registry.claim('necessity', print)\n"
    )
    suite.spec()
    result = suite.run()
    assert (
        "pytest_circuittest_register: there is a claim 'necessity' already"
        in result.stdout.str() + result.stderr.str()
    )


def test_what_cannot_be_a_name():
    with pytest.raises(UsageError, match="there is a task 'ioi' already"):
        register_task("ioi", object)
    for name in ("a+chat", "mine.jsonl", ""):
        with pytest.raises(UsageError, match="cannot name a task"):
            register_task(name, object)
    with pytest.raises(UsageError, match="there is a claim 'reuse' already"):
        register_claim("reuse", print)


def installed(folder: Path) -> dict[str, str]:
    """A package with the entry points of the document, as pip leaves it in a folder; the environment that finds it."""
    package = folder / "site" / "my_package"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text("")
    for name in ("tasks", "claims", "adapters"):
        package.joinpath(f"{name}.py").write_text(WHOLE)
    points = "\n".join(re.findall(r'\[project\.entry-points\."[^`]*?(?=```)', DOCUMENT))
    points = re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", points).replace('"', "")
    info = folder / "site" / "my_package-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text(points)
    return {**os.environ, "PYTHONPATH": str(folder / "site"), "OMP_NUM_THREADS": "1"}


def command(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "circuittest.cli", *words]
    return subprocess.run(whole, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_entry_points_are_listed(tmp_path):
    environment = installed(tmp_path)
    tasks = json.loads(command(tmp_path, environment, "list", "tasks", "--json").stdout)["tasks"]
    assert "agreement" in {one["name"] for one in tasks}
    claims = json.loads(command(tmp_path, environment, "list", "claims", "--json").stdout)["claims"]
    assert "early" in {one["name"] for one in claims}


@pytest.mark.slow
def test_an_installed_task_and_claim_are_judged_in_a_spec(tmp_path):
    environment = installed(tmp_path)
    spec = SPEC.format(
        task="{name: agreement, discover: 4, evaluate: 6}", claim="early: {min: 0.0, layers: 6}"
    )
    (tmp_path / "own.circuit.yaml").write_text(spec)
    done = command(
        tmp_path, environment, "check", "own.circuit.yaml", "--json", "r.json", "--", "-p", "no:cacheprovider"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = json.loads((tmp_path / "r.json").read_text())["claims"]
    assert (record["claim"], record["task"], record["verdict"]) == ("early", "agreement", "supported")
    code = "from circuittest.models.adapters import adapters; assert 'arcee' in adapters()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=300)

"""A spec about a task that is a file beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from circuittest import Lab
from pytest_circuittest import run_specs

SUITE = Path(__file__).parents[2] / "example_suites" / "own_task"
QUIET = ["-p", "no:cacheprovider", "-p", "no:randomly"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """The working directory is not the suite's, and what is loaded once stays loaded."""
    Lab("zoo:gqa", "ioi", discover=2, evaluate=2).outcomes([()])
    monkeypatch.chdir(tmp_path)


def test_the_example_suite_holds_and_records_which_file_it_read(tmp_path):
    assert run_specs([SUITE], json=tmp_path / "out.json", args=QUIET) == 0
    claims = json.loads((tmp_path / "out.json").read_text())["claims"]
    assert {(claim["task"], claim["verdict"]) for claim in claims} == {("handing.jsonl", "supported")}
    assert len({claim["choices"]["task_digest"] for claim in claims}) == 1
    assert str(SUITE) not in (tmp_path / "out.json").read_text()


def test_a_wrong_line_is_named_from_the_spec(tmp_path, capsys):
    shutil.copytree(SUITE, tmp_path / "suite")
    lines = (SUITE / "handing.jsonl").read_text().splitlines()
    lines[6] = lines[6].replace('"answer"', '"anwser"')
    (tmp_path / "suite" / "handing.jsonl").write_text("\n".join(lines))
    assert run_specs([tmp_path / "suite"], args=[*QUIET, "-k", "coverage"]) == 2
    assert "handing.jsonl:7 has an unknown key 'anwser'" in capsys.readouterr().out

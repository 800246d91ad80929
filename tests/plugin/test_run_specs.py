"""`run_specs`: the exit codes of `circuittest check`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from circuittest.errors import UsageError
from pytest_circuittest import run_specs

HEAD = "circuittest: 1\nmodel: zoo:gqa\ntask: ioi\ncircuit: {top: 20%, at: 95}\nclaims:\n"
SUPPORTED, REFUTED, UNDECIDED = ("necessity: {min: 0.3}", "reuse: {min: 0.3}", "coverage: {min: 0.3}")


@pytest.fixture
def check(suite, monkeypatch):
    """Run with fake labs, in the folder of the suite."""
    monkeypatch.chdir(suite.path)

    def run(*claims: str, text: str | None = None, **options: object) -> int:
        suite.spec(text or HEAD + "".join(f"  - {claim}\n" for claim in claims))
        arguments = ["-p", "fake_lab", "-p", "no:randomly", "-p", "no:cacheprovider"]
        return run_specs(["ioi.circuit.yaml"], args=arguments, **options)  # type: ignore[arg-type]

    return run


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ((SUPPORTED,), 0),
        ((SUPPORTED, REFUTED), 1),
        ((SUPPORTED, UNDECIDED, REFUTED), 1),
        ((SUPPORTED, UNDECIDED), 3),
        (("necessity: {mim: 0.3}",), 2),
    ],
)
def test_codes(check, claims, code):
    assert check(*claims) == code


def test_failures_that_are_no_verdict_are_bad_usage(check):
    assert check(REFUTED, text=HEAD.replace("zoo:gqa", "broken") + f"  - {REFUTED}\n") == 2
    assert check(text=HEAD.replace("{top: 20%, at: 95}", "{units: [L99.H1]}") + f"  - {SUPPORTED}\n") == 2


def test_skipped_undecided_claims_are_passed_over(check):
    assert check(SUPPORTED, UNDECIDED, undecided="skip") == 0


def test_ctrl_c_is_130_and_an_error_in_a_file_is_not(check, monkeypatch):
    from pytest_circuittest import specs

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    assert check(text="circuittest: 1\nnonsense: [") == 2
    monkeypatch.setattr(specs.SpecItem, "runtest", stop)
    assert check(SUPPORTED) == 130


def test_options_are_handed_on(check, suite):
    assert check(SUPPORTED, model="new", device="cpu", dtype="float64", json="r.json") == 0
    assert suite.loads == ["new cpu float64"]
    assert json.loads((suite.path / "r.json").read_text())["claims"][0]["model"] == "new"
    assert check(SUPPORTED, model=["zoo:gqa=other"]) == 0
    assert suite.loads[-1] == "other auto float32"
    assert check(SUPPORTED, dtype="float8") == 2


def test_paths_that_are_no_specs_are_refused(check, suite):
    with pytest.raises(UsageError, match="there is no spec"):
        run_specs(["missing.circuit.yaml"])
    (suite.path / "x.yaml").write_text("")
    with pytest.raises(UsageError, match="does not end in"):
        run_specs(["x.yaml"])


def test_a_folder_without_specs_is_bad_usage(check, suite):
    (suite.path / "empty").mkdir()
    with pytest.raises(UsageError, match="there are no specs in empty: names of specs end in .circuit.yaml"):
        run_specs(["empty"], args=["-p", "no:cacheprovider"])


def test_the_command_warns_of_nothing(suite):
    suite.spec()
    command = [
        sys.executable,
        "-m",
        "circuittest.cli",
        "check",
        "ioi.circuit.yaml",
        "--",
        "--co",
        "-p",
        "no:randomly",
    ]
    done = subprocess.run(command, cwd=suite.path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert "Warning" not in done.stdout + done.stderr

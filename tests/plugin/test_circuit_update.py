"""``--circuit-update``: who may write a lock, when, and what is said of it."""

from __future__ import annotations

import os
from typing import Any

import pytest

CONFTEST = """
import circuittest.spec.lock
from circuittest.lock import Lock, Locked
from circuittest.spec.lock import asked
from circuittest.units import Layout

def make_lock(spec, lab, measured=None):
    from fake_lab import Lab
    Lab.fingerprint = property(lambda self: (self.model.name * 64)[:64])
    claims = {"necessity": {"claim": "necessity", "estimate": VALUE, "interval": [0.1, 0.9], "invalid": ""}}
    model = {"name": lab.model.name, "fingerprint": lab.fingerprint, "tokenizer": "", "dtype": "float32"}
    circuits = {"circuit": Locked(lab.shared())}
    return Lock(model, lab.layout, asked(spec), ("a",), ("b",), circuits, claims, {"torch": "2"})

circuittest.spec.lock.make_lock = make_lock

import fake_lab
fake_lab.Lab.fingerprint = property(lambda self: (self.model.name * 64)[:64])
"""


@pytest.fixture
def locks(suite: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A suite whose locks hold one estimate."""
    import circuittest.spec.lock

    monkeypatch.setattr(circuittest.spec.lock, "make_lock", circuittest.spec.lock.make_lock)
    suite.spec()
    suite.value = lambda value: suite.path.joinpath("conftest.py").write_text(
        CONFTEST.replace("VALUE", str(value)), encoding="utf-8"
    )
    suite.value(0.5)
    suite.lock = suite.path / "ioi.circuit.lock"
    return suite


def test_new_writes_what_is_missing_and_judges_nothing(locks: Any) -> None:
    locks.test("def test_x(): raise SystemError\n")
    result = locks.run("--circuit-update=new", "--circuit-json=r.json")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["ioi.circuit.lock: written", "  there is no lock yet"])
    assert '"claims": []' in (locks.path / "r.json").read_text()
    before = locks.lock.read_text()
    spec = (locks.path / "ioi.circuit.yaml").read_text()
    locks.value(0.6)
    result = locks.run("--circuit-update=new")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["ioi.circuit.lock: kept as it is*"])
    assert locks.lock.read_text() == before
    assert (locks.path / "ioi.circuit.yaml").read_text() == spec


def test_diff_says_and_all_writes_what_changed(locks: Any) -> None:
    locks.run("--circuit-update=all").assert_outcomes(passed=1)
    before = locks.lock.read_text()
    result = locks.run("--circuit-update=diff")
    result.stdout.fnmatch_lines(["ioi.circuit.lock: unchanged"])
    locks.value(0.6)
    change = "  necessity: 0.5 [[]0.1, 0.9[]] → 0.6 [[]0.1, 0.9[]]"
    locks.run("--circuit-update=diff").stdout.fnmatch_lines(["ioi.circuit.lock: would change", change])
    assert locks.lock.read_text() == before
    locks.run("--circuit-update=all").stdout.fnmatch_lines(["ioi.circuit.lock: written", change])
    assert locks.lock.read_text() != before


def test_another_model_does_not_become_the_base_unasked(locks: Any) -> None:
    locks.run("--circuit-update=all").assert_outcomes(passed=1)
    before = locks.lock.read_text()
    tuned = ["--circuit-update=all", "--circuit-model=tuned"]
    result = locks.run(*tuned)
    result.assert_outcomes(failed=1)
    assert "what drifted would become the baseline" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    assert locks.lock.read_text() == before
    locks.run(*tuned, "--circuit-accept-model").assert_outcomes(passed=1)
    assert '"name": "tuned"' in locks.lock.read_text()


def test_a_lock_that_cannot_be_read_is_not_lost_unasked(locks: Any) -> None:
    locks.lock.write_text("torn")
    result = locks.run("--circuit-update=all")
    result.assert_outcomes(failed=1)
    assert "the lock is torn, or no JSON, so that its base model is not known" in result.stdout.str()
    assert locks.lock.read_text() == "torn"
    locks.run().assert_outcomes(errors=1)  # and judging refuses it
    locks.run("--circuit-update=all", "--circuit-accept-model").assert_outcomes(passed=1)
    locks.run().assert_outcomes(passed=1)


def test_options_that_do_not_go_together_are_usage_errors(locks: Any) -> None:
    for words in (["--circuit-accept-model"], ["--circuit-update=new", "-n2"], ["--circuit-update=some"]):
        assert locks.run(*words).ret == pytest.ExitCode.USAGE_ERROR
    assert not locks.lock.exists()


def test_a_spec_of_several_models_has_no_lock(locks: Any) -> None:
    locks.spec((locks.path / "ioi.circuit.yaml").read_text().replace("zoo:gqa", "[a, b]"))
    result = locks.run("--circuit-update=new")
    result.assert_outcomes(failed=1)
    assert "names 2 models: a lock is of one" in result.stdout.str()


@pytest.mark.parametrize("there", [True, False])
def test_two_that_update_one_lock_do_not_overwrite_each_other(locks: Any, there: bool) -> None:
    if there:
        locks.run("--circuit-update=new").assert_outcomes(passed=1)
    other = CONFTEST.replace("VALUE", "0.6").replace(
        "    claims = {",
        '    spec.path.with_suffix(".lock").write_text("of the other process")\n    claims = {',
    )
    locks.path.joinpath("conftest.py").write_text(other, encoding="utf-8")
    result = locks.run("--circuit-update=all")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ioi.circuit.lock is not updated: another process wrote it while*"])
    assert locks.lock.read_text() == "of the other process"


@pytest.mark.parametrize("at", ["make_lock", "os.replace"])
def test_ctrl_c_leaves_the_lock_as_it_was(locks: Any, at: str) -> None:
    locks.run("--circuit-update=new").assert_outcomes(passed=1)
    before = locks.lock.read_bytes()
    stop = "\ndef stop(*_, **__):\n    raise KeyboardInterrupt\n"
    target = "circuittest.spec.lock.make_lock" if at == "make_lock" else "circuittest.lock.os.replace"
    text = CONFTEST.replace("VALUE", "0.6") + stop + f"import circuittest.lock\n{target} = stop\n"
    locks.path.joinpath("conftest.py").write_text(text, encoding="utf-8")
    names = sorted(path.name for path in locks.path.iterdir())
    replace = os.replace
    try:
        # pytester would raise it again in this test
        ran = locks.pytester.inline_run(
            "-p", "fake_lab", "-p", "no:randomly", "--circuit-update=all", no_reraise_ctrlc=True
        )
    finally:
        os.replace = replace
    assert ran.ret == pytest.ExitCode.INTERRUPTED
    assert locks.lock.read_bytes() == before
    assert sorted(path.name for path in locks.path.iterdir()) == names

"""`--circuit-json`: the same bytes in one process and in two, and no file that is not ours is lost."""

from __future__ import annotations

import json

import pytest

SUITE = """
@pytest.mark.circuit(model=["zoo:gqa", "zoo:mha"], task="ioi")
class TestAll:
    def test_a(self, lab):
        assert lab.necessity(lab.shared()) >= 0.3
        lab.coverage(lab.shared())

    def test_b(self, lab):
        assert lab.reuse(lab.shared()) >= 0.3

    def test_c(self, lab):
        assert lab.coverage(lab.shared()) >= 0.3

@pytest.fixture(scope="module")
def circuit(lab):
    assert lab.necessity(lab.shared()) > 0
    return lab.shared()

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
@pytest.mark.parametrize("k", range(4))
def test_d(circuit, k): pass
"""


def test_same_bytes_whatever_the_number_of_workers_and_the_order(suite):
    suite.test(SUITE)
    suite.spec()
    target = suite.path / "out" / "r.json"
    seen = set()
    for run, more in (
        (suite.run, ("-p", "no:xdist")),
        (suite.run, ("-p", "randomly")),
        (suite.run_fresh, ("-n", "2", "-v")),
    ):
        result = run("--circuit-json=out/r.json", *more)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        loads = sorted(set(suite.loads)), len(suite.loads)
        assert loads == (
            ["zoo:gqa auto float32", "zoo:mha auto float32"],
            2,
        )  # one worker a lab: no model twice
        (suite.path / "loads.txt").unlink()
        seen.add(target.read_bytes())
        target.unlink()
    text = result.stdout.str()  # the table and the failures are the controller's
    assert text.count("circuit claims: ") == 1
    assert "4 supported, 2 refuted, 2 undecided, 2 measured" in text
    assert "reuse >= 0.3 is refuted (zoo:gqa, ioi)" in text
    assert text.count("- circuit claims -") == 4
    assert "scheduling tests via LabScheduling" in text
    (text,) = seen
    assert text.endswith(b"}\n")
    data = json.loads(text)
    assert data["schema"] == "circuittest/1"
    assert [claim["id"] for claim in data["claims"]] == sorted(claim["id"] for claim in data["claims"])
    assert len(data["claims"]) == 10


def test_an_older_file_of_ours_is_replaced(suite):
    suite.spec()
    assert len(suite.records()) == 1
    assert len(suite.records()) == 1
    suite.run("--circuit-json=records.json", "--collect-only")
    assert len(json.loads((suite.path / "records.json").read_text())["claims"]) == 1


@pytest.mark.parametrize("content", ["precious", "{}", "[1, 2]", '{"schema": "other/1"}'])
def test_a_file_that_is_not_ours_is_never_overwritten(suite, content):
    suite.spec()
    target = suite.path / "r.json"
    target.write_text(content)
    result = suite.run("--circuit-json=r.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "is not overwritten: it is no file of verdict records" in result.stderr.str()
    assert target.read_text() == content


@pytest.mark.parametrize(
    ("path", "message"), [("r.txt", "must end in .json"), ("dir.json", "it is a folder")]
)
def test_bad_paths_are_usage_errors(suite, path, message):
    suite.path.joinpath("dir.json").mkdir()
    result = suite.run(f"--circuit-json={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_nothing_is_written_where_the_collection_failed(suite):
    suite.spec()
    suite.spec("circuittest: 2\n", name="bad.circuit.yaml")
    suite.run("--circuit-json=r.json")
    assert not (suite.path / "r.json").exists()


def test_a_suite_without_claims_writes_an_empty_list(suite):
    suite.test("def test_x(): pass\n")
    assert suite.records() == []


def test_rerunning_a_test_replaces_its_records(suite):
    suite.pytester.makeconftest(
        """
from _pytest.runner import runtestprotocol
def pytest_runtest_protocol(item, nextitem):
    for _ in range(2):
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
    )
    suite.spec()
    assert len(suite.records()) == 1

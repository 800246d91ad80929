"""`--circuit-html`: the page is the controller's, the same bytes however it was run, and no other file is lost."""

from __future__ import annotations

import pytest

from circuittest.report.page import page

SUITE = """
@pytest.mark.circuit(model=["zoo:gqa", "zoo:mha"], task="ioi")
class TestAll:
    def test_a(self, lab):
        assert lab.necessity(lab.shared()) >= 0.3
        lab.coverage(lab.shared())

    def test_b(self, lab):
        assert lab.reuse(lab.shared()) >= 0.3
"""


def test_same_bytes_with_workers_and_beside_the_records(suite):
    suite.test(SUITE)
    suite.spec()
    records = suite.records("--circuit-html=out/r.html", "-p", "no:xdist")
    target = suite.path / "out" / "r.html"
    serial = target.read_text(encoding="utf-8")
    assert serial == page(records)
    for record in records:
        assert record["id"].rpartition("::")[2] in serial
    assert len(records) == 7
    target.unlink()
    suite.run_fresh("--circuit-html=out/r.html", "-n", "2")
    assert target.read_text(encoding="utf-8") == serial


def test_an_older_page_is_replaced_and_collecting_writes_none(suite):
    suite.spec()
    suite.run("--circuit-html=r.html")
    first = (suite.path / "r.html").read_bytes()
    suite.run("--circuit-html=r.html")
    assert (suite.path / "r.html").read_bytes() == first
    suite.run("--circuit-html=new.html", "--collect-only")
    assert not (suite.path / "new.html").exists()


@pytest.mark.parametrize("content", ["precious", "<!DOCTYPE html><html></html>"])
def test_a_file_that_is_not_ours_is_never_overwritten(suite, content):
    suite.spec()
    target = suite.path / "r.html"
    target.write_text(content)
    result = suite.run("--circuit-html=r.html")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--circuit-html: " in result.stderr.str()
    assert "is not overwritten: it is no report of circuittest" in result.stderr.str()
    assert target.read_text() == content
    assert not suite.loads  # refused before anything ran


@pytest.mark.parametrize(
    ("path", "message"), [("r.htm", "must end in .html"), ("dir.html", "it is a folder")]
)
def test_bad_paths_are_usage_errors(suite, path, message):
    suite.path.joinpath("dir.html").mkdir()
    result = suite.run(f"--circuit-html={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()

"""On GitHub Actions: a table on the job's page, and annotations at the lines of claims that are not supported."""

from __future__ import annotations

import re

import pytest

from circuittest.report.github import MOST_BYTES, annotation, markdown, summary

SPEC = """\
circuittest: 1
model: zoo:gqa
task: ioi
circuit: {top: 20%, at: 95}
claims:
  - necessity: {min: 0.3}
  - reuse: {min: 0.3}
  - coverage: {min: 0.3}
"""
SUITE = """
pytestmark = pytest.mark.circuit(model="zoo:gqa", task="ioi")

def test_expected(lab):
    with pytest.raises(Exception, match="undecided"):
        assert lab.coverage(lab.shared()) >= 0.3

@pytest.mark.xfail(strict=True)
def test_known(lab):
    assert lab.reuse(lab.shared()) >= 0.3

def test_new(lab):
    assert lab.reuse(lab.shared()) >= 0.3

@pytest.fixture(scope="module")
def circuit(lab):
    assert lab.reuse(lab.shared()) > 0.5

def test_fixture(circuit): pass
"""


@pytest.fixture
def actions(suite, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(suite.path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(suite.path / "summary.md"))
    return suite


def commands(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("::")]


def test_claims_of_specs_are_annotated_at_their_lines(actions):
    actions.pytester.mkdir("specs")
    actions.spec(SPEC, name="specs/ioi.circuit.yaml")
    found = commands(actions.run())
    assert [
        re.match(r"::(\w+) file=([^,]+),line=(\d+),title=([^:]+)::", line).groups() for line in found
    ] == [
        ("error", "specs/ioi.circuit.yaml", "8", "coverage >= 0.3 is undecided"),
        ("error", "specs/ioi.circuit.yaml", "7", "reuse >= 0.3 is refuted"),
    ]
    skipped = commands(actions.run("--circuit-undecided=skip"))
    assert [line.partition(" ")[0] for line in skipped] == ["::warning", "::error"]


def test_tests_that_expect_the_verdict_are_not_annotated(actions):
    actions.test(SUITE)
    result = actions.run_fresh("-n", "2")
    places = [re.search(r"file=(.*),line=(\d+)", line).groups() for line in commands(result)]
    text = (actions.path / "test_suite.py").read_text().splitlines()
    assert sorted(text[int(line) - 1] for _, line in places) == [
        "def test_fixture(circuit): pass",
        "def test_new(lab):",
    ]
    assert {file for file, _ in places} == {"test_suite.py"}
    summary = (actions.path / "summary.md").read_text(encoding="utf-8")
    assert summary.count("### Circuit claims") == 1  # the controller's alone


def test_the_table_is_appended_once(actions):
    actions.spec(SPEC)
    target = actions.path / "summary.md"
    target.write_text("before\n")
    actions.run()
    text = target.read_text(encoding="utf-8")
    assert text.startswith("before\n### Circuit claims: 1 supported, 1 refuted, 1 undecided\n\n| claim |")
    assert text.count("### Circuit claims") == 1
    assert (
        "| ioi.circuit.yaml::necessity | 0.75 \\[0.68, 0.81\\] | &gt;= 0.3 | 200/40 | ✅ supported |" in text
    )
    assert "- ioi.circuit.yaml::reuse: " in text


def test_nothing_elsewhere_and_nothing_without_claims(suite, monkeypatch, tmp_path):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    suite.spec(SPEC)
    assert commands(suite.run()) == []
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    suite.run("-k", "nothing")
    assert not (tmp_path / "summary.md").exists()


def test_a_summary_that_cannot_be_written_is_told_and_fails_nothing(actions, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(actions.path / "no" / "such.md"))
    actions.spec()
    result = actions.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*claims are not in GITHUB_STEP_SUMMARY: No such file*"])


def record(name: str, reason: str = "why") -> dict:
    return {
        "id": name, "claim": "necessity", "estimate": 0.1, "interval": [0.0, 0.2], "threshold": {"op": ">=", "value": 0.3},
        "n_examples": 9, "n_controls": None, "verdict": "refuted", "label": "", "reason": reason, "outcome": "failed",
        "confidence": 0.95, "p_value": 1.0, "details": {}, "censored": None,
    }  # fmt: skip


def test_escapes():
    assert markdown("a|b `c` *d*\n[e](f) <g> _h_") == r"a\|b \`c\` \*d\* \[e\](f) &lt;g&gt; \_h\_"
    line = annotation(record("a", "50 %\nof: it,"), "error", "a,b:c.py", 3)
    assert line == (
        "::error file=a%2Cb%3Ac.py,line=3,title=necessity >= 0.3 is refuted::a: 0.10 [0.00, 0.20]: 50 %25%0Aof: it,"
    )


def test_a_long_table_is_cut_and_says_so():
    text = summary([record(f"{i:05}" + "x" * 200) for i in range(5000)])
    assert len(text.encode()) < MOST_BYTES + 20_000
    shown = len(re.findall(r"^\| \d{5}", text, flags=re.MULTILINE))
    assert f"{5000 - shown} more claims are not shown here." in text

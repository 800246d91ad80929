"""With other plugins and pytest's own ways to select: circuit tests are ordinary items. The workflow and hook of
docs/interop.md run.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

DOCUMENT = (Path(__file__).parents[2] / "docs" / "interop.md").read_text(encoding="utf-8")
SUITE = """
@pytest.mark.circuit(model="zoo:gqa", task="ioi")
class TestAll:
    def test_good(self, lab):
        assert lab.necessity(lab.shared()) >= 0.3

    def test_bad(self, lab):
        assert lab.reuse(lab.shared()) >= 0.3

def test_plain():
    pass
"""


@pytest.fixture
def both(suite):
    suite.test(SUITE)
    suite.spec()
    return suite


@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        (("-k", "good"), {"passed": 1, "deselected": 3}),
        (("-k", "necessity"), {"passed": 1, "deselected": 3}),
        (("-m", "circuit"), {"passed": 2, "failed": 1, "deselected": 1}),
        (("-m", "not circuit"), {"passed": 1, "deselected": 3}),
        (("ioi.circuit.yaml::necessity",), {"passed": 1}),
        (("--deselect", "ioi.circuit.yaml::necessity"), {"passed": 2, "failed": 1, "deselected": 1}),
    ],
)
def test_selections(both, options, outcomes):
    both.run(*options).assert_outcomes(**outcomes)


def test_last_failed_and_collect_only(both):
    both.run()
    both.run("--lf").assert_outcomes(failed=1)
    result = both.run("--co", "-q")
    assert "ioi.circuit.yaml::necessity" in result.stdout.str()
    assert len(both.loads) == 2  # of the two runs that were runs


def test_it_can_be_turned_off(suite):
    suite.test("def test_plain():\n    pass\n")
    suite.spec()
    result = suite.pytester.runpytest_subprocess("-p", "no:circuittest", "-p", "no:randomly")
    result.assert_outcomes(passed=1)


def test_random_order_changes_no_record(both):
    first = both.records()
    both.pytester.runpytest_inprocess(
        "-p", "fake_lab", "-p", "randomly", "-p", "no:cacheprovider", "--circuit-json=r.json"
    )
    again = json.loads((both.path / "r.json").read_text())["claims"]
    assert again == first


def test_a_timeout_is_a_failure_like_any_other(suite):
    suite.test(
        SUITE
        + """
@pytest.mark.timeout(0.05, method="signal")
@pytest.mark.circuit(model="zoo:gqa", task="ioi")
def test_slow(lab):
    assert lab.necessity(lab.shared()) >= 0.3
    while True:
        pass
"""
    )
    records = suite.records("-k", "slow")
    assert [(record["verdict"], record["outcome"]) for record in records] == [("supported", "failed")]


@pytest.mark.parametrize("more", [(), ("-n", "2")])
def test_coverage_of_a_user_s_own_package(suite, more):
    suite.path.joinpath("mine.py").write_text("def double(x):\n    return 2 * x\n")
    suite.test(SUITE + "\ndef test_mine():\n    import mine\n    assert mine.double(2) == 4\n")
    result = suite.run_fresh("--cov=mine", "-k", "mine or good", "--circuit-json=r.json", *more)
    result.assert_outcomes(passed=2, **({} if more else {"deselected": 2}))
    assert re.search(r"mine\.py\s+2\s+0\s+100%", result.stdout.str())
    (claim,) = json.loads((suite.path / "r.json").read_text())["claims"]
    assert claim["verdict"] == "supported"


def documented(heading: str) -> object:
    section = DOCUMENT.split(f"## {heading}\n")[1]
    return yaml.safe_load(re.search(r"```yaml\n(.*?)```", section, re.S)[1])


def test_the_workflow_s_command_is_one_that_runs(both, monkeypatch):
    from circuittest.cli import parser

    steps = documented("GitHub Actions")["jobs"]["claims"]["steps"]
    (command,) = [step["run"] for step in steps if "circuittest check" in step.get("run", "")]
    words = shlex.split(command)[1:]
    cut = words.index("--")
    arguments = parser().parse_args(words[:cut])
    assert (arguments.specs, arguments.json) == (["circuits"], "verdicts.json")
    (both.path / "circuits").mkdir()
    both.spec(name="circuits/ioi.circuit.yaml")
    both.run(
        "circuits",
        f"--circuit-json={arguments.json}",
        *[w.replace("html ", "html=") for w in words[cut + 1 :]],
    )
    assert (both.path / "verdicts.json").exists()
    assert (both.path / "verdicts.html").exists()


def test_the_hook_s_command_finds_mistakes_and_loads_nothing(both):
    (hook,) = documented("pre-commit")["repos"][0]["hooks"]
    assert re.search(hook["files"], "circuits/ioi.circuit.yaml")
    words = shlex.split(hook["entry"])
    assert words[0] == "pytest"
    both.run(*words[1:], "ioi.circuit.yaml")
    assert both.run(*words[1:], "ioi.circuit.yaml").ret == 0
    both.spec("circuittest: 1\nmodel: zoo:gqa\ntask: ioy\nclaims: []\n", name="bad.circuit.yaml")
    result = both.run(*words[1:], "bad.circuit.yaml")
    assert result.ret != 0
    assert not both.loads

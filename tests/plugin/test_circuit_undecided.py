"""`--circuit-undecided`: skip touches spec items that are undecided, and nothing else."""

from __future__ import annotations

import pytest

SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 50, evaluate: 60}
circuit: {top: 20%, at: 95}
claims:
  - necessity: {min: 0.3}
  - coverage: {min: 0.3}
  - reuse: {min: 0.3}
"""
TEST = """
@pytest.mark.circuit(model="zoo:gqa", task="ioi")
def test_open(lab):
    assert lab.coverage(lab.shared()) >= 0.3
"""


@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        ((), {"passed": 1, "failed": 3}),
        (("--circuit-undecided=skip",), {"passed": 1, "failed": 2, "skipped": 1}),
    ],
)
def test_undecided_claims_fail_or_are_skipped(suite, options, outcomes):
    suite.spec(SPEC)
    suite.test(TEST)
    result = suite.run(*options, "-rs")
    result.assert_outcomes(**outcomes)
    assert ("contains 0.3; what would decide it" in result.stdout.str().partition("SKIPPED")[2]) == bool(
        options
    )


def test_what_was_skipped_is_recorded_as_undecided(suite):
    suite.spec(SPEC)
    found = {claim["claim"]: claim for claim in suite.records("--circuit-undecided=skip")}
    assert (found["coverage"]["verdict"], found["coverage"]["outcome"]) == ("undecided", "skipped")
    assert (found["reuse"]["verdict"], found["reuse"]["outcome"]) == ("refuted", "failed")


def test_an_invalid_claim_is_never_skipped(suite):
    suite.spec()
    suite.pytester.makeconftest(
        "import fake_lab\nfrom circuittest.circuit import Circuit\n"
        "fake_lab.Lab.shared = lambda self, **options: Circuit(layout=self.layout)\n"
    )
    result = suite.run("--circuit-undecided=skip")
    result.assert_outcomes(failed=1)
    assert "necessity >= 0.3 is invalid" in result.stdout.str()


def test_other_choices_are_usage_errors(suite):
    assert suite.run("--circuit-undecided=pass").ret == pytest.ExitCode.USAGE_ERROR

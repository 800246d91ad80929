"""`xfail` and `skip` of a claim in a spec: only what is refuted was expected."""

from __future__ import annotations

import pytest

from pytest_circuittest.run import check_code
from pytest_circuittest.summary import collector

SPEC = """\
circuittest: 1
model: zoo:gqa
task: ioi
circuit: {units: [L2.H1, L3.MLP]}
claims:
"""


def test_a_refuted_claim_may_be_expected(suite):
    suite.spec(SPEC + "  - reuse: {min: 0.3, xfail: the tuned model lost it}\n")
    result = suite.run("-rx")
    result.assert_outcomes(xfailed=1)
    assert "the tuned model lost it" in result.stdout.str()
    (record,) = suite.records()
    assert (record["verdict"], record["outcome"]) == ("refuted", "xfailed")


def test_an_undecided_or_invalid_claim_was_not_expected(suite):
    suite.spec(SPEC + "  - coverage: {min: 0.3, xfail: lost}\n")
    suite.run().assert_outcomes(failed=1)


def test_a_supported_claim_passes_unexpectedly(suite):
    suite.spec(SPEC + "  - necessity: {min: 0.3, xfail: lost}\n")
    suite.run().assert_outcomes(xpassed=1)
    suite.pytester.makeini("[pytest]\nxfail_strict = true\n")
    suite.run().assert_outcomes(failed=1)


def test_a_skipped_claim_is_not_measured(suite):
    suite.spec(SPEC + "  - reuse: {min: 0.3, skip: too dear for now}\n  - necessity: {min: 0.3}\n")
    result = suite.run("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    assert "too dear for now" in result.stdout.str()
    assert [record["claim"] for record in suite.records()] == ["necessity"]


def test_both_are_refused(suite):
    suite.spec(SPEC + "  - reuse: {min: 0.3, skip: a, xfail: b}\n")
    result = suite.run()
    assert "ioi.circuit.yaml:6:23: the claim reuse has 'xfail' and 'skip'" in result.stdout.str()


@pytest.mark.parametrize(("claims", "code"), [("reuse: {min: 0.3, xfail: a}", 0), ("reuse: {min: 0.3}", 1)])
def test_check_passes_over_what_was_expected(suite, claims, code):
    suite.spec(SPEC + f"  - {claims}\n")
    found = []

    class Witness:
        def pytest_configure(self, config):
            found.append(collector(config))

    result = suite.pytester.inline_run("-p", "fake_lab", "-p", "no:randomly", plugins=[Witness()])
    assert check_code(int(result.ret), found[0]) == code

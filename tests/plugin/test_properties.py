"""Tests under `@given`: a counterexample counts if untouched data confirm it, and green means all draws together."""

from __future__ import annotations

import pytest

BODY = """
from hypothesis import given, settings, strategies as st

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
@settings(deadline=None, max_examples=30, database=None, derandomize=True)
@given(partition=st.sampled_from({draws}))
def test_stable(lab, partition):
    assert lab.stability(partition) >= 0.3
"""


def outcome(suite, *draws, body=BODY):
    suite.test(body.replace("{draws}", repr(draws)))
    return suite.run()


def test_all_supported_is_one_record_of_all_draws(suite):
    suite.test(BODY.replace("{draws}", repr(("good",))))
    (record,) = suite.records()
    assert (record["claim"], record["verdict"], record["outcome"]) == ("stability", "supported", "passed")
    assert record["choices"]["partition"] == ["good"]


def test_a_counterexample_that_the_untouched_half_confirms_fails_the_test(suite):
    result = outcome(suite, "good", "bad")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*partition='bad'*", "*On the evaluation examples, which had no part in the search*"]
    )
    (record,) = suite.records()
    assert (record["verdict"], record["choices"]["partition"], record["estimate"]) == (
        "refuted",
        ["bad"],
        0.06,
    )


def test_a_counterexample_that_is_not_confirmed_leaves_the_test_undecided(suite):
    result = outcome(suite, "good", "luck")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Undecided*the untouched examples do not confirm*"])
    (record,) = suite.records()
    assert record["verdict"] == "supported"
    assert record["outcome"] == "failed"


def test_undecided_draws_are_counted_and_never_green(suite):
    result = outcome(suite, "good", "open")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Undecided*stability >= 0.3 is undecided*"])
    result.stdout.re_match_lines([r".*in \d+ draws: \d+ supported, \d+ undecided.*"])


def test_an_invalid_draw_is_an_error_at_once(suite):
    result = outcome(suite, "good", "broken")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*InvalidClaim*blocks are too small*", "*partition='broken'*"])


def test_claims_that_are_not_judged_together_need_every_draw(suite):
    body = """
from hypothesis import given, settings, strategies as st

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
@settings(deadline=None, max_examples=5, database=None, derandomize=True)
@given(claim=st.sampled_from({draws}))
def test_all(lab, claim):
    assert lab.measure(claim, lab.shared()) >= 0.3
"""
    outcome(suite, "necessity", body=body).assert_outcomes(passed=1)
    result = outcome(suite, "necessity", "coverage", body=body)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Undecided*coverage >= 0.3 is undecided in some draws*"])
    outcome(suite, "necessity", "reuse", body=body).assert_outcomes(failed=1)


def test_other_failures_and_tests_without_circuits_are_left_alone(suite):
    result = outcome(suite, "good", body=BODY + "    assert partition == 'other'\n")
    result.assert_outcomes(failed=1)
    assert "no part in the search" not in result.stdout.str()
    plain = "from hypothesis import given, strategies as st\n\n@given(st.integers())\ndef test_it(n):\n    assert n == n\n"
    suite.test(plain)
    suite.run().assert_outcomes(passed=1)


def test_the_inner_test_is_put_back(suite):
    suite.test(
        BODY.replace("{draws}", "('good',)")
        + "\nINNER = test_stable.hypothesis.inner_test\n"
        + """
def test_after():
    assert test_stable.hypothesis.inner_test is INNER
"""
    )
    suite.run().assert_outcomes(passed=2)


@pytest.mark.parametrize("claimed", ["assert not (lab.stability(partition) >= 0.3)"])
def test_a_property_that_a_claim_never_holds(suite, claimed):
    body = BODY.replace("assert lab.stability(partition) >= 0.3", claimed)
    outcome(suite, "bad", body=body).assert_outcomes(passed=1)


def test_draws_of_one_task_say_nothing_of_another(suite):
    body = """
from types import SimpleNamespace
from hypothesis import given, settings, strategies as st

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
@settings(deadline=None, max_examples=10, database=None, derandomize=True)
@given(task=st.sampled_from({draws}))
def test_tasks(lab, task):
    other = type(lab)(lab.model, task)
    assert other.stability("good") >= 0.3
"""
    outcome(suite, "sure", body=body).assert_outcomes(passed=1)
    result = outcome(suite, "sure", "unsure", body=body)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*stability >= 0.3 is undecided*"])

"""What is recorded, under which id, and what a failing test says, whatever the form of the assertion."""

from __future__ import annotations

import pytest

MARK = "pytestmark = pytest.mark.circuit(model='zoo:gqa', task='ioi')\n\n"
NODE = "test_suite.py::test_x[zoo:gqa-ioi]"
PLAIN = "--assert=plain"


def told(records):
    return [(r["id"].removeprefix("test_suite.py::"), r["verdict"], r["outcome"]) for r in records]


def test_every_truth_taken_is_a_record_with_the_outcome_of_its_test(suite):
    suite.test(
        MARK
        + """
def test_x(lab):
    circuit = lab.shared()
    assert lab.necessity(circuit) >= 0.3
    assert lab.necessity(circuit) > 0.1
    assert lab.reuse(circuit) >= 0.3
"""
    )
    assert told(suite.records()) == [
        ("test_x[zoo:gqa-ioi]::necessity#1", "supported", "failed"),
        ("test_x[zoo:gqa-ioi]::necessity#2", "supported", "failed"),
        ("test_x[zoo:gqa-ioi]::reuse#1", "refuted", "failed"),
    ]


def test_the_record_holds_what_the_design_asks_for(suite):
    suite.test(MARK + "def test_x(lab):\n    assert lab.necessity(lab.shared(), controls=7) >= 0.3\n")
    (record,) = suite.records()
    low, high = record.pop("interval")
    assert 0.68 < low < 0.75 < high < 0.82
    assert record.pop("p_value") < 1e-6
    assert record.pop("reason").startswith("the interval")
    assert record == {
        "id": f"{NODE}::necessity#1",
        "claim": "necessity",
        "model": "zoo:gqa",
        "fingerprint": "",
        "task": "ioi",
        "circuit": {"name": "S_P", "units": ["L2.H1", "L3.MLP"], "edges": []},
        "examples": {"discover": [0, 1], "evaluate": [2, 3]},
        "estimate": 0.75,
        "censored": None,
        "confidence": 0.95,
        "threshold": {"op": ">=", "value": 0.3},
        "margin": None,
        "verdict": "supported",
        "label": None,
        "outcome": "passed",
        "n_examples": 200,
        "n_controls": 40,
        "choices": {"seed": 0, "dtype": "float32", "controls": 7},
        "details": {},
    }


def test_estimates_that_nobody_judges_are_recorded_as_measured(suite):
    suite.test(
        MARK + "def test_x(lab):\n    lab.reuse(lab.shared())\n    assert lab.necessity(lab.shared()) > 0\n"
    )
    records = suite.records()
    assert told(records) == [
        ("test_x[zoo:gqa-ioi]::necessity#1", "supported", "passed"),
        ("test_x[zoo:gqa-ioi]::reuse#1", "measured", "passed"),
    ]
    assert records[1]["threshold"] is None


def test_a_comparison_whose_truth_is_not_taken_is_no_verdict(suite):
    suite.test(MARK + "def test_x(lab):\n    lab.reuse(lab.shared()) >= 0.3\n")
    assert told(suite.records()) == [("test_x[zoo:gqa-ioi]::reuse#1", "measured", "passed")]


def test_the_same_verdict_twice_is_one_record(suite):
    suite.test(
        MARK
        + "def test_x(lab):\n    v = lab.reuse(lab.shared()) >= 0.3\n    assert not v\n    assert not v\n"
    )
    assert told(suite.records()) == [("test_x[zoo:gqa-ioi]::reuse#1", "refuted", "passed")]


def test_spec_items_are_recorded_under_their_own_id(suite):
    suite.spec()
    assert [(r["id"], r["outcome"]) for r in suite.records()] == [("ioi.circuit.yaml::necessity", "passed")]


def test_outcomes_of_xfail_and_skip(suite):
    suite.test(
        MARK
        + """
@pytest.mark.xfail
def test_xfail(lab):
    assert lab.reuse(lab.shared()) >= 0.3

@pytest.mark.xfail(strict=False)
def test_xpass(lab):
    assert lab.necessity(lab.shared()) >= 0.3

def test_skip(lab):
    assert lab.necessity(lab.shared()) >= 0.3
    pytest.skip("enough")
"""
    )
    assert [outcome for _, _, outcome in told(suite.records())] == ["skipped", "xfailed", "xpassed"]


def test_what_a_lasting_fixture_judges_belongs_to_the_fixture(suite):
    suite.test(
        MARK
        + """
@pytest.fixture(scope="module")
def circuit(lab):
    circuit = lab.shared()
    assert lab.necessity(circuit) > 0
    return circuit

@pytest.fixture
def own(lab):
    assert lab.necessity(lab.shared()) > 0.1

def test_a(circuit): pass
def test_b(circuit, own): pass
"""
    )
    assert told(suite.records()) == [
        ("test_b[zoo:gqa-ioi]::necessity#1", "supported", "passed"),
        ("test_suite.py@circuit[zoo:gqa-ioi]::necessity#1", "supported", "fixture"),
    ]


def test_a_failing_fixture_is_an_error_beside_the_record(suite):
    suite.test(
        MARK
        + "@pytest.fixture\ndef own(lab):\n    assert lab.reuse(lab.shared()) > 0.1\n\ndef test_x(own): pass\n"
    )
    assert told(suite.records()) == [("test_x[zoo:gqa-ioi]::reuse#1", "refuted", "error")]


def test_labs_made_by_hand_are_recorded_too(suite):
    suite.test(
        "from types import SimpleNamespace\nfrom circuittest.lab import Lab\n\n"
        "def test_x():\n    lab = Lab(SimpleNamespace(name='mine'), 'ioi')\n    assert lab.necessity(lab.shared()) > 0\n"
    )
    assert told(suite.records()) == [("test_x::necessity#1", "supported", "passed")]


# The outer pytest rewrites every test_*.py that an inner one imports, whatever the inner one is told. So the files of the
# tests below have another name.
FILE = "checks.py"
COMPARISON = "assert lab.reuse(lab.shared()) >= 0.3"
FLIPPED = "assert 0.3 <= lab.reuse(lab.shared())"
VARIABLE = "v = lab.reuse(lab.shared()) >= 0.3\n    assert v"
WITH_MESSAGE = "v = lab.reuse(lab.shared()) >= 0.3\n    assert v, 'mine'"
LINES = "assert (\n        lab.reuse(lab.shared())\n        >= 0.3\n    )"


@pytest.mark.parametrize("form", [COMPARISON, FLIPPED, VARIABLE, LINES])
@pytest.mark.parametrize("mode", [(), (PLAIN,), ("-p", "no:assertion")])
def test_a_refuted_assertion_prints_three_lines_and_the_whole_story(suite, form, mode):
    suite.test(MARK + f"def test_x(lab):\n    {form}\n", FILE)
    result = suite.run(FILE, *mode)
    result.assert_outcomes(failed=1)
    errors = [line[2:].strip() for line in result.outlines if line.startswith("E ")]
    assert errors[0].startswith("AssertionError: " if mode else ("assert ", "AssertionError: assert "))
    errors = [line.removeprefix("AssertionError: ").removeprefix("assert ") for line in errors]
    assert errors[0] == "reuse >= 0.3 is refuted (zoo:gqa, ioi)"
    assert errors[1].startswith("measured 0.050 [")
    assert errors[2].startswith("the interval [")
    assert len(errors) == 3
    text = result.stdout.str()
    assert text.count("- circuit claims -") == 1
    assert "reproduce  pytest 'checks.py::test_x[zoo:gqa-ioi]'" in text


def test_an_assertion_message_of_the_user_stays(suite):
    suite.test(MARK + f"def test_x(lab):\n    {WITH_MESSAGE}\n", FILE)
    for mode in ((), (PLAIN,)):
        text = suite.run(FILE, *mode).stdout.str()
        assert "AssertionError: mine\n" in text
        assert "reuse >= 0.3 is refuted (zoo:gqa, ioi)" in text


def test_an_unrelated_failure_after_a_refuted_verdict_keeps_its_own_words(suite):
    body = "def test_x(lab):\n    assert not (lab.reuse(lab.shared()) >= 0.3)\n    assert lab is None\n"
    suite.test(MARK + body, FILE)
    for mode in ((), (PLAIN,)):
        result = suite.run(FILE, *mode)
        result.assert_outcomes(failed=1)
        errors = [line for line in result.outlines if line.startswith("E ")]
        assert errors
        assert not any("refuted" in line for line in errors)


@pytest.mark.parametrize("form", ["assert lab.coverage(c) >= 0.3", "assert not lab.coverage(c) >= 0.3"])
@pytest.mark.parametrize("mode", [(), (PLAIN,)])
def test_an_undecided_claim_fails_shortly_whichever_way_it_is_asked(suite, form, mode):
    suite.test(MARK + f"def test_x(lab):\n    c = lab.shared()\n    {form}\n", FILE)
    result = suite.run(FILE, *mode)
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "Undecided: coverage >= 0.3 is undecided: the interval [" in text
    assert "verdict.py" not in text
    assert text.count(form) == 1
    body = text.partition("= FAILURES =")[2].partition("- circuit claims -")[0]
    assert len(body.splitlines()) < 8


def test_an_invalid_claim_fails_shortly(suite):
    suite.test(MARK + "def test_x(lab):\n    assert not lab.reuse(lab.circuit([])) >= 0.3\n", FILE)
    result = suite.run(FILE)
    result.assert_outcomes(failed=1)
    assert "InvalidClaim: reuse >= 0.3 is invalid: the circuit is empty." in result.stdout.str()


def test_a_bare_estimate_is_refused(suite):
    suite.test(MARK + "def test_x(lab):\n    assert lab.reuse(lab.shared())\n")
    result = suite.run()
    result.assert_outcomes(failed=1)
    assert "compare it with a threshold" in result.stdout.str()


def test_the_story_of_passing_tests_is_there_for_those_who_ask(suite):
    suite.test(MARK + "def test_x(lab):\n    assert lab.necessity(lab.shared()) >= 0.3\n")
    assert "- circuit claims -" not in suite.run().stdout.str()
    assert "- circuit claims -" in suite.run("-rP").stdout.str()


def test_hypothesis_draws_leave_one_record_a_line(suite):
    suite.test(
        "from hypothesis import given, strategies as st\n"
        + MARK
        + """
@given(k=st.integers(1, 50))
def test_x(lab, k):
    assert lab.necessity(lab.shared()) >= 0.3
"""
    )
    assert told(suite.records()) == [("test_x[zoo:gqa-ioi]::necessity#1", "supported", "passed")]


def test_details_that_are_no_plain_data_fail_the_test_and_say_so(suite):
    suite.test(
        MARK
        + """
from dataclasses import replace
from circuittest.stats import announce

def test_x(lab):
    announce(replace(lab.necessity(lab.shared()), details={"odd": object()}))
"""
    )
    result = suite.run()
    result.assert_outcomes(failed=1)
    assert "details.odd of an estimate holds a object: records are plain data" in result.stdout.str()


def test_the_whole_traceback_is_there_for_those_who_ask(suite):
    suite.test(MARK + "def test_x(lab):\n    assert lab.coverage(lab.shared()) >= 0.3\n", FILE)
    assert "verdict.py" in suite.run(FILE, "--tb=long").stdout.str()


def test_shared_choices_are_told_once(suite):
    suite.test(
        """
@pytest.mark.circuit(model="zoo:gqa", task="ioi")
class TestAll:
    def test_passes(self, lab):
        assert lab.necessity(lab.shared()) >= 0.3

    def test_first(self, lab):
        with pytest.raises(AssertionError):
            assert lab.reuse(lab.shared(), controls=3) >= 0.3
        assert lab.reuse(lab.shared(), controls=7) >= 0.3

    def test_second(self, lab):
        assert lab.reuse(lab.shared(), controls=7) >= 0.3

@pytest.mark.circuit(model="zoo:gqa", task="sva")
def test_other(lab):
    assert lab.reuse(lab.shared()) >= 0.3
"""
    )
    told = [line.strip() for line in suite.run().outlines if line.startswith("  choices ")]
    assert told == [
        "choices    seed=0, dtype=float32, controls=3",
        "choices    controls=7; 2 more as above",
        "choices    controls=7; 2 more as for test_suite.py::TestAll::test_first[zoo:gqa-ioi]",
        "choices    seed=0, dtype=float32",
    ]

"""`lab`: who gets which one, how often a model is loaded, and what is refused."""

from __future__ import annotations

import pytest

BODY = """
@pytest.mark.circuit(model="zoo:gqa", task="ioi")
def test_one(lab):
    assert lab.necessity(lab.shared()) >= 0.3
"""


def test_ids_name_model_and_task(suite):
    suite.test(BODY)
    result = suite.run("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_suite.py::test_one[[]zoo:gqa-ioi[]] PASSED*"])


def test_a_list_of_models_is_a_matrix_and_each_is_loaded_once(suite):
    suite.test(
        """
@pytest.mark.circuit(model=["zoo:gqa", "zoo:mha"], task="ioi")
@pytest.mark.parametrize("k", [1, 2])
def test_many(lab, k):
    assert lab.model.name in ("zoo:gqa", "zoo:mha")

@pytest.mark.circuit(model="zoo:gqa", task="addition")
def test_other_task(lab):
    assert lab.task == "addition"
"""
    )
    suite.run("-v").assert_outcomes(passed=5)
    assert suite.loads == ["zoo:gqa auto float32", "zoo:mha auto float32"]


@pytest.mark.skipif(
    pytest.version_tuple < (9, 1),
    reason="pytest before 9.1 groups by a parameter's position, not by its value",
)
def test_tests_are_grouped_by_lab(suite):
    suite.test(
        """
@pytest.mark.circuit(model=["a", "b"], task="ioi")
def test_1(lab): pass

@pytest.mark.circuit(model=["b", "a"], task="ioi")
def test_2(lab): pass
"""
    )
    result = suite.run("-v")
    lines = [line.split()[0].partition("::")[2] for line in result.outlines if "PASSED" in line]
    assert lines == ["test_1[a-ioi]", "test_2[a-ioi]", "test_1[b-ioi]", "test_2[b-ioi]"]


def test_defaults_written_out_ask_for_the_same_lab(suite):
    suite.test(
        """
labs = []

@pytest.mark.circuit(model="zoo:gqa", task="ioi", headroom=0.2)
def test_explicit(lab): labs.append(lab)

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
def test_implicit(lab):
    labs.append(lab)
    assert labs[0] is labs[-1]
"""
    )
    suite.run().assert_outcomes(passed=2)


def test_nearest_marker_wins(suite):
    suite.test(
        """
pytestmark = pytest.mark.circuit(model="module", task="ioi", seed=3)

def test_module(lab):
    assert (lab.model.name, lab.options) == ("module", {"seed": 3})

@pytest.mark.circuit(model="class", task="ioi")
class TestClass:
    def test_class(self, lab):
        assert (lab.model.name, lab.options) == ("class", {})

    @pytest.mark.circuit(model="function", task="ioi")
    def test_function(self, lab):
        assert lab.model.name == "function"
"""
    )
    suite.run().assert_outcomes(passed=3)


def test_ini_fills_what_the_marker_leaves_out(suite):
    suite.pytester.makeini("[pytest]\ncircuit_model = zoo:mha\ncircuit_task = facts\n")
    suite.test(
        """
def test_ini(lab):
    assert (lab.model.name, lab.task) == ("zoo:mha", "facts")

@pytest.mark.circuit(task="ioi")
def test_task(lab):
    assert (lab.model.name, lab.task) == ("zoo:mha", "ioi")

def test_dynamic(request):
    assert request.getfixturevalue("lab").task == "facts"
"""
    )
    suite.run().assert_outcomes(passed=3)


def test_module_fixtures_may_depend_on_it(suite):
    suite.test(
        """
@pytest.fixture(scope="module")
def circuit(lab):
    return lab.shared()

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
class TestAll:
    def test_a(self, lab, circuit):
        assert lab.necessity(circuit) >= 0.3

    def test_b(self, circuit):
        assert len(circuit) == 2
"""
    )
    suite.run().assert_outcomes(passed=2)


def test_works_under_given_without_a_health_check(suite):
    suite.test(
        """
from hypothesis import given, strategies as st

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
@given(k=st.integers(1, 3))
def test_property(lab, k):
    assert lab.necessity(lab.shared()) >= 0.3
"""
    )
    suite.run("-W", "error").assert_outcomes(passed=1)


def test_a_users_own_lab_is_left_alone(suite):
    suite.test(
        """
@pytest.fixture
def lab():
    return "test tubes"

def test_own(lab):
    assert lab == "test tubes"
"""
    )
    suite.run().assert_outcomes(passed=1)


def test_a_users_lab_may_wrap_ours(suite):
    suite.test(
        """
@pytest.fixture
def lab(lab):
    return [lab]

@pytest.mark.circuit(model="zoo:gqa", task="ioi")
def test_own(lab):
    assert lab[0].task == "ioi"
"""
    )
    suite.run().assert_outcomes(passed=1)


def test_a_parametrised_lab_is_left_alone(suite):
    suite.test("@pytest.mark.parametrize('lab', [1])\ndef test_own(lab):\n    assert lab == 1\n")
    suite.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("", "says no task: mark it with"),
        ("@pytest.mark.circuit(task='ioi')", "says no model"),
        ("@pytest.mark.circuit(model='zoo:gqa')", "says no task"),
        ("@pytest.mark.circuit('zoo:gqa', 'ioi')", "by name"),
        ("@pytest.mark.circuit(model='a', tasks='ioi')", "did you mean 'task'?"),
        ("@pytest.mark.circuit(model=['a', 'a'], task='ioi')", "names a model twice"),
        (
            "@pytest.mark.circuit(model='a', task='ioi', seed=[1])",
            "seed of the circuit marker is [1], no text or",
        ),
        ("@pytest.mark.circuit(model=['a', 1], task='ioi')", "use make_lab for objects"),
    ],
)
def test_bad_markers_are_usage_errors(suite, marker, message):
    suite.test(f"{marker}\ndef test_x(lab):\n    pass\n")
    result = suite.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert message in result.stdout.str()


def test_a_model_that_cannot_be_loaded_is_tried_once_and_told_shortly(suite):
    suite.test(
        """
@pytest.mark.circuit(model="broken", task="ioi")
class TestBroken:
    def test_a(self, lab): pass
    def test_b(self, lab): pass
"""
    )
    result = suite.run()
    result.assert_outcomes(errors=2)
    assert "broken cannot be loaded: it is broken. Mend it." in result.stdout.str()
    assert len(result.outlines) < 40
    assert suite.loads == ["broken auto float32"]


def test_make_lab_uses_the_pool_for_names_and_takes_objects_as_they_are(suite):
    suite.test(
        """
def test_names(make_lab, circuit_models):
    first, second = make_lab("zoo:gqa", "ioi", seed=1), make_lab(model="zoo:gqa", task="facts")
    assert first.model is second.model is circuit_models.get("zoo:gqa")
    assert (first.options, first.task, second.task) == ({"seed": 1}, "ioi", "facts")
    assert circuit_models.loaded() == ["zoo:gqa"]
    assert make_lab("zoo:gqa", "ioi", dtype="float64").model.dtype == "float64"

def test_objects(make_lab):
    module, tokenizer = object(), object()
    lab = make_lab(model=module, tokenizer=tokenizer, task="ioi")
    assert lab.model is module and lab.options == {"tokenizer": tokenizer}
"""
    )
    suite.run().assert_outcomes(passed=2)
    assert suite.loads == ["zoo:gqa auto float32", "zoo:gqa auto float64"]


def test_the_marker_is_registered(suite):
    suite.test(BODY)
    suite.run("--strict-markers").assert_outcomes(passed=1)
    suite.run("--markers").stdout.fnmatch_lines(["@pytest.mark.circuit(model, task,*"])

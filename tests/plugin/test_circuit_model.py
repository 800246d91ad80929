"""`--circuit-model` and its ini twin."""

from __future__ import annotations

import pytest

TEST = "@pytest.mark.circuit(model={model!r}, task='ioi')\ndef test_x(lab):\n    assert lab.model.name == {got!r}\n"


def test_new_replaces_the_only_model_of_tests_and_specs(suite):
    suite.test(TEST.format(model="zoo:gqa", got="new"))
    suite.spec()
    result = suite.run("-v", "--circuit-model=new")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["test_suite.py::test_x[[]new-ioi[]] PASSED*"])
    assert suite.loads == ["new auto float32"]


@pytest.mark.parametrize("where", ["marker", "spec", "both"])
def test_new_is_refused_where_the_suite_names_several(suite, where):
    if where == "marker":
        suite.test(TEST.format(model=["zoo:gqa", "zoo:mha"], got="new"))
    elif where == "spec":
        suite.spec(
            "circuittest: 1\nmodel: [zoo:gqa, zoo:mha]\ntask: ioi\ncircuit: {at: 95}\nclaims: [reuse: {max: 1}]\n"
        )
    else:
        suite.test(TEST.format(model="zoo:mha", got="new"))
        suite.spec()
    result = suite.run("--circuit-model=new")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = result.stdout.str()
    assert "is ambiguous: the suite names several models (zoo:gqa, zoo:mha)" in text
    assert "write --circuit-model zoo:" in text


def test_old_new_replaces_one_of_several(suite):
    suite.test("@pytest.mark.circuit(model=['a', 'b'], task='ioi')\ndef test_x(lab): pass\n")
    result = suite.run("-v", "--circuit-model=a=c", "-W", "error")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_x[[]c-ioi[]] PASSED*", "*test_x[[]b-ioi[]] PASSED*"])


def test_an_old_that_nobody_names_is_a_usage_error(suite):
    suite.test(TEST.format(model="a", got="a"))
    result = suite.run("--circuit-model=zoo:x=c")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "no test or spec names zoo:x" in result.stderr.str()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["=x"], "write NEW or OLD=NEW"),
        (["a=x", "a=y"], "a is replaced by x and by y"),
        (["x", "y"], "cannot both replace"),
        (["x", "a=y"], "do not go together"),
    ],
)
def test_contradictions_are_usage_errors(suite, values, message):
    result = suite.run(*(f"--circuit-model={value}" for value in values))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_an_existing_path_with_an_equals_sign_is_a_model(suite):
    suite.path.joinpath("lr=3").mkdir()
    suite.test("@pytest.mark.circuit(model='a', task='ioi')\ndef test_x(lab): pass\n")
    suite.run("--circuit-model=lr=3").assert_outcomes(passed=1)
    assert suite.loads == ["lr=3 auto float32"]


def test_a_path_shows_as_its_last_part(suite):
    (suite.path / "runs" / "tuned").mkdir(parents=True)
    suite.test(
        "@pytest.mark.circuit(model='a', task='ioi')\ndef test_x(lab):\n    assert lab.name == 'tuned'\n"
    )
    suite.run("-v", "--circuit-model=./runs/tuned").stdout.fnmatch_lines(["*test_x[[]tuned-ioi[]] PASSED*"])


def test_new_stands_in_for_a_missing_model(suite):
    suite.test("@pytest.mark.circuit(task='ioi')\ndef test_x(lab): pass\n")
    suite.run("--circuit-model=new").assert_outcomes(passed=1)
    assert suite.loads == ["new auto float32"]


def test_make_lab_obeys(suite):
    suite.test("def test_x(make_lab):\n    assert make_lab('zoo:gqa', 'ioi').model.name == 'new'\n")
    suite.run("--circuit-model=new").assert_outcomes(passed=1)

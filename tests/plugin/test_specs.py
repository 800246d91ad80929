"""Spec files as test items: ids, failures in words, errors of the collection, and `--circuit-undecided`."""

from __future__ import annotations

import json

import pytest

HEAD = "circuittest: 1\nmodel: zoo:gqa\ntask: ioi\ncircuit: {top: 20%, at: 95}\nclaims:\n"


def test_one_item_a_claim(suite):
    suite.spec(
        "circuittest: 1\nmodel: zoo:gqa\ntask: {name: ioi, seed: 4}\ncircuit: {units: [L2.H1]}\n"
        "groups: {movers: [L5.H1]}\nclaims:\n"
        "  - necessity: {min: 0.3}\n  - necessity: {of: movers, above: 0.1}\n  - reuse: {id: low, max: 0.5}\n"
    )
    result = suite.run("-v", "--circuit-json=r.json")
    result.assert_outcomes(passed=3)
    names = [line.split()[0] for line in result.outlines if " PASSED" in line]
    assert names == [f"ioi.circuit.yaml::{name}" for name in ("necessity", "necessity[movers]", "low")]


def test_a_list_of_models_multiplies(suite):
    suite.spec(
        HEAD.replace("zoo:gqa", "[zoo:gqa, zoo:mha]").replace("claims:", "groups: {m: [L0.H0]}\nclaims:")
        + "  - necessity: {min: 0.3}\n  - necessity: {of: m, min: 0.3}\n"
    )
    result = suite.run("-v")
    result.assert_outcomes(passed=4)
    names = [line.split()[0].partition("::")[2] for line in result.outlines if " PASSED" in line]
    assert names == [
        "necessity[zoo:gqa]",
        "necessity[m-zoo:gqa]",
        "necessity[zoo:mha]",
        "necessity[m-zoo:mha]",
    ]
    assert suite.loads == ["zoo:gqa auto float32", "zoo:mha auto float32"]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_directories_of_one_name_are_told_apart(suite, tmp_path_factory, workers):
    folders = [tmp_path_factory.mktemp("models") / "tuned" for _ in range(2)]
    suite.spec(
        HEAD.replace("zoo:gqa", f"[{folders[0]}, zoo:mha, {folders[1]}]") + "  - necessity: {min: 0.3}\n"
    )
    run = suite.run_fresh if workers else suite.run
    run("-v", "--circuit-json=r.json", *workers).assert_outcomes(passed=3)
    wanted = {f"necessity[{one.parent.name}/tuned]" for one in folders} | {"necessity[zoo:mha]"}
    claims = json.loads((suite.path / "r.json").read_text())["claims"]
    assert {one["id"].partition("::")[2] for one in claims} == wanted


def test_one_directory_named_twice_is_refused(suite, tmp_path):
    suite.spec(HEAD.replace("zoo:gqa", f"[{tmp_path}/x, {tmp_path}/y/../x]") + "  - necessity: {min: 0.3}\n")
    result = suite.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ioi.circuit.yaml: 'model' names one directory twice*"])


def test_models_that_are_replaced_by_one_are_judged_once(suite):
    suite.spec(HEAD.replace("zoo:gqa", "[zoo:gqa, zoo:mha]") + "  - necessity: {min: 0.3}\n")
    suite.run("--circuit-model=zoo:gqa=zoo:mha").assert_outcomes(passed=1)
    assert suite.loads == ["zoo:mha auto float32"]


def test_specs_and_tests_share_the_pool(suite):
    suite.spec()
    suite.test("@pytest.mark.circuit(model='zoo:gqa', task='ioi')\ndef test_x(lab): pass\n")
    suite.run().assert_outcomes(passed=2)
    assert suite.loads == ["zoo:gqa auto float32"]


def test_circuit_marker_selects_specs(suite):
    suite.spec()
    suite.test("def test_x(): pass\n")
    suite.run("-m", "circuit").assert_outcomes(passed=1, deselected=1)


def test_failures_say_what_was_claimed_and_measured_without_a_traceback(suite):
    suite.spec(HEAD + "  - reuse: {min: 0.3}\n  - coverage: {min: 0.3}\n")
    result = suite.run()
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert "\nreuse >= 0.3 is refuted (zoo:gqa, ioi)\nmeasured 0.050 [0.02" in text
    assert "\nioi.circuit.yaml:6:5: refuted\n" in text
    if pytest.version_tuple >= (9, 0):  # older ones show no reason where there is no traceback
        assert "FAILED ioi.circuit.yaml::reuse - reuse >= 0.3 is refuted (zoo:gqa, ioi)" in text
    assert "\ncoverage >= 0.3 is undecided (zoo:gqa, ioi)" in text
    assert "\nioi.circuit.yaml:7:5: undecided\n" in text
    assert "Traceback" not in text
    assert "specs.py" not in text
    assert text.count("- circuit claims -") == 2


def test_an_invalid_claim_fails_and_says_why(suite, monkeypatch):
    suite.spec(HEAD + "  - necessity: {min: 0.3}\n")
    suite.pytester.makeconftest(
        "import fake_lab\nfrom circuittest.circuit import Circuit\n"
        "def shared(self, **options):\n    return Circuit(layout=self.layout)\n"
        "fake_lab.Lab.shared = shared\n"
    )
    result = suite.run()
    result.assert_outcomes(failed=1)
    assert "necessity >= 0.3 is invalid (zoo:gqa, ioi)\nthe circuit is empty" in result.stdout.str()


@pytest.mark.parametrize("style", ["auto", "long", "short", "line", "native", "no"])
def test_every_traceback_style_works(suite, style):
    suite.spec(HEAD + "  - reuse: {min: 0.3}\n")
    suite.run(f"--tb={style}").assert_outcomes(failed=1)


def test_a_mistake_in_a_spec_is_an_error_of_the_collection_with_its_place(suite):
    suite.spec(HEAD + "  - necesity: {min: 0.3}\n")
    suite.test("def test_x(): pass\n")
    result = suite.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "ioi.circuit.yaml:6:5: unknown claim 'necesity'. Did you mean 'necessity'?" in result.stdout.str()


def test_a_unit_that_the_model_lacks_fails_at_its_place(suite):
    suite.spec(
        "circuittest: 1\nmodel: zoo:gqa\ntask: ioi\ncircuit: {units: [L2.H1,\n  L99.H0]}\n"
        "claims:\n  - necessity: {min: 0.3}\n"
    )
    result = suite.run()
    result.assert_outcomes(failed=1)
    assert "ioi.circuit.yaml:5:3: the model has no L99.H0: it has layers L0 to L5" in result.stdout.str()


def test_a_model_that_cannot_be_loaded_fails_each_claim_and_is_tried_once(suite):
    suite.spec(HEAD.replace("zoo:gqa", "broken") + "  - necessity: {min: 0.3}\n  - reuse: {min: 0.3}\n")
    result = suite.run()
    result.assert_outcomes(failed=2)
    assert "ioi.circuit.yaml:6:5: broken cannot be loaded: it is broken. Mend it." in result.stdout.str()
    assert suite.loads == ["broken auto float32"]


def test_messages_name_the_file_as_seen_from_where_pytest_was_started(suite):
    suite.path.joinpath("deep").mkdir()
    suite.spec("circuittest: 2\n", name="deep/x.circuit.yaml")
    assert (
        "\ndeep/x.circuit.yaml:1:14: 'circuittest' is 2: this release reads version 1"
        in suite.run().stdout.str()
    )


def test_a_model_beside_the_spec_and_its_name_in_ids(suite):
    folder = suite.path / "deep"
    (folder / "tuned").mkdir(parents=True)
    suite.spec(
        HEAD.replace("zoo:gqa", "[./tuned, zoo:gqa]") + "  - necessity: {min: 0.3}\n",
        name="deep/x.circuit.yaml",
    )
    result = suite.run("-v")
    result.stdout.fnmatch_lines(["deep/x.circuit.yaml::necessity[[]tuned[]] PASSED*"])
    assert suite.loads[0] == f"{folder / 'tuned'} auto float32"


def test_undecided_fails_by_default_and_skips_on_request(suite):
    suite.spec(HEAD + "  - coverage: {min: 0.3}\n  - reuse: {min: 0.3}\n  - necessity: {min: 0.3}\n")
    suite.run().assert_outcomes(failed=2, passed=1)
    result = suite.run("--circuit-undecided=skip", "-rs")
    result.assert_outcomes(failed=1, skipped=1, passed=1)
    assert "coverage >= 0.3 is undecided" in result.stdout.str()


def test_skip_touches_spec_items_only(suite):
    suite.test(
        "@pytest.mark.circuit(model='zoo:gqa', task='ioi')\n"
        "def test_x(lab):\n    assert lab.coverage(lab.shared()) >= 0.3\n"
    )
    suite.run("--circuit-undecided=skip").assert_outcomes(failed=1)


def test_files_of_other_names_are_no_specs(suite):
    suite.spec("nonsense", name="other.yaml")
    assert suite.run().ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("name", ["necessity[zoo:gqa]", "necessity[m-zoo:mha]"])
def test_an_item_runs_by_its_id(suite, name):
    suite.spec(
        HEAD.replace("zoo:gqa", "[zoo:gqa, zoo:mha]").replace("claims:", "groups: {m: [L0.H0]}\nclaims:")
        + "  - necessity: {min: 0.3}\n  - necessity: {of: m, min: 0.3}\n"
    )
    result = suite.run("-v", f"ioi.circuit.yaml::{name}")
    result.assert_outcomes(passed=1)
    assert f"ioi.circuit.yaml::{name} PASSED" in result.stdout.str()

"""Claims judged by the name of an outcome: in spec files, in tests, in records and in the summary."""

from __future__ import annotations

HEAD = "circuittest: 1\nmodel: zoo:gqa\ntask: ioi\ncircuit: {top: 20%, at: 95}\nclaims:\n"


def test_in_specs(suite):
    suite.spec(
        HEAD
        + "  - closure: {is: load-bearing}\n  - closure: {id: other, is: none}\n  - closure: {id: open, is: redundant}\n"
    )
    result = suite.run("--circuit-json=r.json")
    result.assert_outcomes(passed=1, failed=2)
    text = result.stdout.str()
    assert "closure is none: refuted (zoo:gqa, ioi)\nmeasured 0.75 [" in text
    assert "closure is redundant: undecided (zoo:gqa, ioi)" in text
    assert "no complement was given" in text
    assert "outcome    load-bearing supported: three measures agree" in text
    assert "is load-bearing" in text.partition("circuit claims:")[2]
    records = {one["id"].partition("::")[2]: one for one in suite.records()}
    assert records["closure"]["threshold"] == {"op": "is", "value": "load-bearing"}
    assert {name: (one["verdict"], one["label"]) for name, one in records.items()} == {
        "closure": ("supported", "load-bearing"),
        "other": ("refuted", "load-bearing"),
        "open": ("undecided", "load-bearing"),
    }
    suite.run("--circuit-undecided=skip").assert_outcomes(passed=1, failed=1, skipped=1)


def test_names_are_checked_when_the_file_is_read(suite):
    suite.spec(HEAD + "  - closure: {is: load_bearing}\n")
    result = suite.run()
    text = result.stdout.str()
    assert (
        "ioi.circuit.yaml:6:19: the claim closure has no outcome 'load_bearing'. Did you mean 'load-bearing'"
        in text
    )
    assert suite.loads == []


def test_in_tests(suite):
    suite.test(
        "@pytest.mark.circuit(model='zoo:gqa', task='ioi')\n"
        "class TestIt:\n"
        "    def test_a(self, lab):\n"
        "        assert lab.measure('closure', lab.shared()).labelled('load-bearing')\n"
        "    def test_b(self, lab):\n"
        "        assert lab.measure('closure', lab.shared()).labelled('none')\n"
    )
    result = suite.run()
    result.assert_outcomes(passed=1, failed=1)
    assert "closure is none: refuted (zoo:gqa, ioi)" in result.stdout.str()

"""`--circuit-trust` reaches the loader, and nothing in a spec can say it."""

from __future__ import annotations

import pytest

from circuittest.models.loading import TRUST
from pytest_circuittest import options, plugin


def test_the_words_are_those_of_the_loader():
    assert options.TRUST == TRUST


@pytest.mark.parametrize(
    ("given", "trust"),
    [((), ()), (("pickle",), ("pickle",)), (("remote-code", "pickle"), ("pickle", "remote-code"))],
)
def test_the_option_reaches_the_loader(suite, monkeypatch, given, trust):
    told = []
    monkeypatch.setattr(plugin, "load_model", lambda *_, **how: told.append(how["trust"]))
    suite.test("def test_x(circuit_models, pytestconfig):\n    circuit_models.get('zoo:gqa')\n")
    suite.pytester.runpytest_inprocess("-p", "no:randomly", *(f"--circuit-trust={one}" for one in given))
    assert told == [trust]


def test_other_words_are_usage_errors(suite):
    result = suite.run("--circuit-trust=everything")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_spec_cannot_say_it(suite):
    suite.spec("circuittest: 1\nmodel: zoo:gqa\ntrust: [pickle]\ntask: ioi\nclaims: [{reuse: {min: 0.3}}]\n")
    assert "unknown key 'trust' in the spec" in suite.run().stdout.str()

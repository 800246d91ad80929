"""The plugin with real labs on a model of the zoo: the whole way from a spec to the bytes of the record."""

from __future__ import annotations

import json
import os

import pytest

from circuittest import Lab, zoo
from pytest_circuittest import run_specs

pytestmark = pytest.mark.skipif(
    not (zoo.path("gqa") / "model.safetensors").exists(), reason="the weights of zoo:gqa are not built yet"
)

SPEC = """\
circuittest: 1
model: zoo:gqa
task: {name: ioi, discover: 60, evaluate: 60, seed: 0}
circuit: {method: eap, universe: heads, top: 20%, at: 95}
groups: {two: [L2.H1, L3.H0]}
claims:
  - reuse: {min: 0.05}
  - necessity: {min: 0.05, controls: 20}
  - coverage: {of: two, max: 0.9}
"""
TESTS = """
@pytest.mark.circuit(model="zoo:gqa", task="sva", discover=60, evaluate=60)
def test_sva(lab):
    circuit = lab.shared(top="20%", at=90)
    assert lab.reuse(circuit) >= 0.05
    assert lab.necessity(circuit, controls=20) >= -0.5
"""


@pytest.fixture(scope="module", autouse=True)
def everything_imported():
    """`pytester` forgets what is imported while it is in use, and parts of torch cannot be loaded twice."""
    lab = Lab("zoo:gqa", "ioi", discover=4, evaluate=4)
    lab.outcomes([lab.shared(at=50).units])


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")


def run(suite, target, *args):
    suite.pytester.runpytest_subprocess(f"--circuit-json={target}", *args).assert_outcomes(passed=4)
    return (suite.path / target).read_bytes()


@pytest.mark.slow
def test_the_same_bytes_in_one_process_and_in_two(suite):
    suite.spec(SPEC)
    suite.test(TESTS)
    one = run(suite, "one.json", "-p", "no:xdist", "-p", "no:randomly")
    assert run(suite, "two.json", "-n", "2") == one
    data = json.loads(one)
    assert [(claim["id"], claim["verdict"]) for claim in data["claims"]] == [
        ("ioi.circuit.yaml::coverage[two]", "supported"),
        ("ioi.circuit.yaml::necessity", "supported"),
        ("ioi.circuit.yaml::reuse", "supported"),
        ("test_suite.py::test_sva[zoo:gqa-sva]::necessity#1", "supported"),
        ("test_suite.py::test_sva[zoo:gqa-sva]::reuse#1", "supported"),
    ]
    necessity = data["claims"][1]
    assert necessity["fingerprint"]
    assert (necessity["n_examples"], necessity["n_controls"]) == (60, 10)  # decided at the first look
    assert {"acc_base", "acc_circuit", "acc_controls", "controls", "floor"} <= set(necessity["details"])
    assert set(necessity["examples"]["discover"]).isdisjoint(necessity["examples"]["evaluate"])
    assert os.fspath(suite.path) not in one.decode()
    assert "/" not in necessity["model"]


def test_units_that_the_model_lacks_and_unknown_tasks_are_bad_specs(suite, monkeypatch, capsys):
    monkeypatch.chdir(suite.path)
    quiet = ["-p", "no:cacheprovider", "-p", "no:randomly"]
    suite.spec(SPEC.replace("L3.H0", "L99.H0"))
    assert run_specs(["ioi.circuit.yaml"], args=[*quiet, "-k", "two"]) == 2
    assert "ioi.circuit.yaml:5:23: the model has no L99.H0" in capsys.readouterr().out
    suite.spec(SPEC.replace("name: ioi", "name: ioy"))
    assert run_specs(["ioi.circuit.yaml"], args=[*quiet, "-k", "two"]) == 2
    assert "ioi.circuit.yaml:3:14: " in capsys.readouterr().out

"""`--junitxml`: properties with plain values for each claim that a test judged."""

from __future__ import annotations

import json
from xml.etree import ElementTree

SUITE = """
pytestmark = pytest.mark.circuit(model="zoo:gqa", task="ioi")

@pytest.fixture(scope="module")
def circuit(lab):
    assert lab.necessity(lab.shared()) > 0
    return lab.shared()

def test_a(lab, circuit, record_property):
    record_property("own", "kept")
    assert lab.necessity(circuit) >= 0.3
    assert lab.necessity(circuit) >= 0.2
    assert lab.reuse(circuit) >= 0.3

def test_invalid(lab):
    assert lab.necessity(lab.circuit([])) >= 0.3

def test_plain(): pass

@pytest.fixture
def broken():
    yield
    raise OSError("cannot clean up")

def test_told_again_after_a_failing_teardown(lab, broken):
    assert lab.necessity(lab.shared()) >= 0.3
"""


def properties(suite) -> dict[str, dict[str, str]]:
    """Test → property → value."""
    suite.run("--junitxml=j.xml", "-o", "junit_family=xunit1")  # under xunit2 pytest warns of record_property
    found = {}
    for case in ElementTree.parse(suite.path / "j.xml").iter("testcase"):
        listed = [(one.get("name"), one.get("value")) for one in case.iter("property")]
        assert len(dict(listed)) == len(listed)
        found[case.get("name")] = dict(listed)
    return found


def test_properties(suite):
    suite.test(SUITE)
    suite.spec()
    serial = properties(suite)
    necessity = {"estimate": "0.75", "threshold": ">= 0.3", "verdict": "supported"}
    told = serial["test_a[zoo:gqa-ioi]"]
    assert told.pop("own") == "kept"
    interval = json.loads(told.pop("circuit.necessity.interval"))
    assert 0.6 < interval[0] < 0.75 < interval[1] < 0.9
    assert told.pop("circuit.necessity#2.interval")
    assert told.pop("circuit.reuse.interval")
    assert told == {
        **{f"circuit.necessity.{key}": value for key, value in necessity.items()},
        **{f"circuit.necessity#2.{key}": value for key, value in (necessity | {"threshold": ">= 0.2"}).items()},
        "circuit.reuse.estimate": "0.05", "circuit.reuse.threshold": ">= 0.3", "circuit.reuse.verdict": "refuted",
    }  # fmt: skip
    assert serial["test_invalid[zoo:gqa-ioi]"]["circuit.necessity.verdict"] == "invalid"
    assert "circuit.necessity.interval" not in serial["test_invalid[zoo:gqa-ioi]"]
    assert serial["test_plain"] == {}
    assert len(serial["test_told_again_after_a_failing_teardown[zoo:gqa-ioi]"]) == 4
    assert serial["necessity"]["circuit.necessity.verdict"] == "supported"

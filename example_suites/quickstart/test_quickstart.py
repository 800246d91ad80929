"""What tests with circuittest look like. Copy this folder to start a suite of your own."""

import pytest

from circuittest import Undecided

pytestmark = pytest.mark.circuit(model="zoo:gqa", task="ioi")


@pytest.fixture(scope="module")
def circuit(lab):
    """The heads that nearly all examples share, found on the discovery examples."""
    return lab.shared(top="20%", at=95, universe="heads")


def test_the_circuit_is_shared(lab, circuit):
    assert lab.reuse(circuit) >= 0.25


def test_the_circuit_is_necessary(lab, circuit):
    assert lab.necessity(circuit) >= 0.3  # against random sets of as many heads


def test_a_threshold_inside_the_interval_is_undecided(lab, circuit):
    """Data that cannot tell do not pass: neither the claim nor its negation is true."""
    estimate = lab.reuse(circuit)
    with pytest.raises(Undecided, match="would decide"):
        assert estimate >= float(estimate)

"""The claim of ioi.circuit.yaml in Python, and what is known of this model."""

import pytest

PREFIX = (
    "<|endoftext|>"  # the token that separated its training documents; without it the first word is the sink
)

pytestmark = pytest.mark.circuit(
    model="smollm2", task="ioi", discover=60, evaluate=100, seed=0, prefix=PREFIX
)


@pytest.fixture(scope="module")
def circuit(lab):
    """The heads that nearly all examples share."""
    return lab.shared(top="20%", at=95, universe="heads")


def test_the_model_is_the_one_we_know(lab):
    assert lab.layout.describe().startswith(
        "it has layers L0 to L29, heads H0 to H8 and KV groups KV0 to KV2"
    )
    assert not lab.model.quantised
    assert all(check.passed for check in lab.model.checks)


def test_the_circuit_is_shared_and_late(lab, circuit):
    assert 10 <= len(circuit.units) <= 40
    assert (
        min(unit.layer for unit in circuit.units) >= 5
    )  # the heads that move names come after those that read
    assert lab.reuse(circuit) >= 0.25

"""The `circuit_gpu` marker: skips with the reason, and only what it marks."""

from __future__ import annotations

import pytest

from pytest_circuittest import devices
from pytest_circuittest.devices import lacking

SUITE = """
import sys

@pytest.mark.circuit_gpu
def test_marked(): pass

@pytest.mark.circuit_gpu(count=2, memory="40GiB")
def test_large(): pass

def test_other():
    pass

@pytest.fixture
def dear():
    raise RuntimeError("set up although the test is skipped")

@pytest.mark.circuit_gpu
def test_fixture(dear): pass
"""


def mark(*args: object, **kwargs: object) -> pytest.Mark:
    return pytest.mark.circuit_gpu.with_args(*args, **kwargs).mark


def test_without_a_gpu_marked_tests_are_skipped_with_the_reason(suite, monkeypatch):
    monkeypatch.setattr(devices, "gpu_memory", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    suite.test(SUITE)
    result = suite.run("-rs", "--strict-markers")
    result.assert_outcomes(passed=1, skipped=3)
    text = result.stdout.str()
    assert "needs a GPU, and torch sees no GPU (CUDA_VISIBLE_DEVICES is '')" in text
    assert "needs 2 GPUs, and torch sees no GPU" in text


def test_with_gpus_they_run(suite, monkeypatch):
    monkeypatch.setattr(devices, "gpu_memory", lambda: [50 << 30, 80 << 30])
    suite.test(SUITE)
    suite.run().assert_outcomes(passed=3, errors=1)
    result = suite.run("--circuit-device=cpu", "-rs")
    result.assert_outcomes(passed=1, skipped=3)
    assert "needs a GPU, and --circuit-device is cpu" in result.stdout.str()


@pytest.mark.parametrize(
    ("given", "gpus", "reason"),
    [
        ({}, [1], ""),
        ({"count": 2}, [1], "needs 2 GPUs, and torch sees 1 of 2 GPUs"),
        ({"memory": "40GiB"}, [24 << 30, 16 << 30], "needs a GPU with 40 GiB, and the largest has 24 GiB"),
        ({"memory": 100, "count": 2}, [100, 99], "needs a GPU with "),
        ({"memory": 100, "count": 2}, [100, 100, 1], ""),
    ],
)
def test_reasons(given, gpus, reason):
    assert lacking(mark(**given), "auto", lambda: gpus, None).startswith(reason)
    assert bool(reason) == bool(lacking(mark(**given), "auto", lambda: gpus, None))


@pytest.mark.parametrize(
    "marker", [mark(2), mark(counts=1), mark(count=0), mark(count=True), mark(memory="much")]
)
def test_bad_markers_are_usage_errors(marker):
    with pytest.raises(pytest.UsageError, match="circuit_gpu"):
        lacking(marker, "auto", lambda: [1], None)

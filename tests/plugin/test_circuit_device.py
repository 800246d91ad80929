"""`--circuit-device`: what it may be, and that each worker of xdist takes a GPU of those that the caller shows."""

from __future__ import annotations

import pytest

from pytest_circuittest import devices
from pytest_circuittest.devices import own_device, place, size, worker_of


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "mps", "auto"])
def test_devices_reach_the_loader(suite, device):
    suite.spec()
    suite.run(f"--circuit-device={device}").assert_outcomes(passed=1)
    assert suite.loads == [f"zoo:gqa {device} float32"]


def test_the_ini_says_it_too_and_the_option_outweighs_it(suite):
    suite.pytester.makeini("[pytest]\ncircuit_device = mps\n")
    suite.spec()
    suite.run()
    suite.run("--circuit-device=cpu")
    assert suite.loads == ["zoo:gqa mps float32", "zoo:gqa cpu float32"]


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "CPU", "cuda:1,2"])
def test_others_are_usage_errors(suite, device):
    suite.spec()
    result = suite.run(f"--circuit-device={device}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--circuit-device {device}: write auto, cpu, cuda, cuda:1 or mps" in result.stderr.str()
    assert not suite.loads


@pytest.mark.parametrize(
    ("asked", "worker", "gpus", "device"),
    [
        ("auto", None, 4, "auto"), ("auto", 0, 4, "cuda:0"), ("auto", 3, 4, "cuda:3"), ("auto", 5, 4, "cuda:1"),
        ("cuda", 1, 2, "cuda:1"), ("auto", 2, 0, "auto"), ("cpu", 1, 4, "cpu"), ("cuda:2", 1, 4, "cuda:2"),
        ("mps", 1, 4, "mps"),
    ],
)  # fmt: skip
def test_workers_take_the_gpus_in_turn(asked, worker, gpus, device):
    assert own_device(asked, worker, gpus) == device


def test_the_worker_is_read_off_the_environment(monkeypatch):
    assert worker_of({}) is None
    assert worker_of({"PYTEST_XDIST_WORKER": "gw12"}) == 12
    assert worker_of({"PYTEST_XDIST_WORKER": "master"}) is None
    monkeypatch.setattr(devices, "gpu_memory", lambda: [1, 1])
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
    assert place("auto") == "cuda:1"
    assert place("cpu") == "cpu"
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    assert place("auto") == "auto"


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1024", 1024), (7, 7), ("8GiB", 8 << 30), ("1.5 MiB", 3 << 19), ("2gb", 2 * 10**9), ("3 KB", 3000)],
)
def test_sizes(text, bytes_):
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "GiB", "8 bits", "-1", "1e9", True, -1])
def test_no_sizes(text):
    with pytest.raises(ValueError, match="is no size"):
        size(text)

"""`--circuit-memory`: beyond the budget the least recently used models are let go, and loaded again when asked for."""

from __future__ import annotations

import pytest

from pytest_circuittest import memory
from pytest_circuittest.memory import budget_of, bytes_of, victims

SUITE = """
import gc, weakref
alive = []

@pytest.fixture
def load(circuit_models):
    def load(name):
        model = circuit_models.get(name)
        if not any(one() is model for one in alive):
            alive.append(weakref.ref(model))
        return model
    return load

def names():
    gc.collect()
    return [one().name for one in alive if one() is not None]

def test_first(load): load("a"); load("b")
def test_second(load): load("a"); load("c")
def test_third(circuit_models):
    assert names() == EXPECTED
    assert circuit_models.loaded() == sorted(EXPECTED)
"""
#: Models of a hundred bytes each, in place of the fake ones.
CONFTEST = """
import pytest

class Model:
    def __init__(self, name):
        class Tensor:
            nbytes = 100
        class Module:
            def parameters(self, tensor=Tensor()): return [tensor, tensor]
            def buffers(self): return []
        self.name, self.module = name, Module()

@pytest.hookimpl(tryfirst=True)
def pytest_circuittest_load_model(config, model):
    with (config.rootpath / "loads.txt").open("a") as file:
        file.write(model + chr(10))
    return Model(model)
"""


@pytest.mark.parametrize(
    ("budget", "expected"), [("200", ["a", "c"]), ("100", ["c"]), ("none", ["a", "b", "c"])]
)
def test_the_least_recently_used_goes(suite, budget, expected):
    suite.path.joinpath("conftest.py").write_text(CONFTEST)
    suite.test(SUITE.replace("EXPECTED", repr(expected)))
    suite.run(f"--circuit-memory={budget}").assert_outcomes(passed=3)
    again = {
        "200": ["a", "b", "c"],
        "100": ["a", "b", "a", "c"],
        "10": ["a", "b", "a", "c"],
        "none": ["a", "b", "c"],
    }
    assert suite.loads == again[budget]


def test_labs_go_with_their_models_and_come_back(suite):
    suite.path.joinpath("conftest.py").write_text(CONFTEST)
    suite.test(
        """
seen = []

@pytest.mark.parametrize("model", ["a", "b", "a"])
def test_x(make_lab, circuit_models, model):
    lab = make_lab(model, "ioi")
    assert lab.model is circuit_models.get(model)
    assert circuit_models.loaded() == [model]
"""
    )
    suite.spec(
        "circuittest: 1\nmodel: [a, b]\ntask: ioi\ncircuit: {top: 20%}\nclaims: [{necessity: {min: 0.3}}]\n"
    )
    suite.run("--circuit-memory=100").assert_outcomes(passed=5)
    assert len(suite.loads) == 5


def test_the_pool_is_empty_after_the_session(suite):
    suite.path.joinpath("conftest.py").write_text(
        CONFTEST
        + """
import weakref
from pytest_circuittest.pool import pool
held = []

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    held.extend(weakref.ref(model) for model in pool(session.config)._models.values())

def pytest_unconfigure(config):
    config.add_cleanup(lambda: print("HELD", len(held), sum(one() is not None for one in held)))
"""
    )
    suite.spec()
    result = suite.run("-s")
    assert "HELD 1 0" in result.stdout.str()


@pytest.mark.parametrize("text", ["much", "8 bits", "-3"])
def test_no_sizes_are_usage_errors(suite, text):
    result = suite.run(f"--circuit-memory={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "is no size: write bytes, or 8GiB, 500MB, auto or none" in result.stderr.str()


def test_victims():
    sizes = {"a": 3, "b": 0, "c": 4, "d": 2}
    assert victims(sizes, None) == []
    assert victims(sizes, 9) == []
    assert victims(sizes, 8) == ["a"]
    assert victims(sizes, 8, keep="a") == ["c"]
    assert victims(sizes, 9, coming=1) == ["a"]
    assert victims(sizes, 0, keep="d") == ["a", "c"]


def test_budgets(monkeypatch):
    from pytest_circuittest import devices

    monkeypatch.setattr(memory, "machine_memory", lambda: 1000)
    monkeypatch.setattr(devices, "gpu_memory", list)
    two = {"PYTEST_XDIST_WORKER_COUNT": "2"}
    assert budget_of("none", "cpu", {}) is None
    assert budget_of("auto", "cpu", {}) == 500
    assert budget_of("auto", "auto", two) == 250
    assert budget_of("1KiB", "cpu", two) == 512
    monkeypatch.setattr(devices, "gpu_memory", lambda: [100, 200])
    assert budget_of("auto", "cuda:1", {}) == 160
    assert budget_of("auto", "cuda:1", {"PYTEST_XDIST_WORKER_COUNT": "3"}) == 80  # one GPU serves two workers
    assert budget_of("auto", "cpu", {}) == 500
    monkeypatch.setattr(memory, "machine_memory", lambda: None)
    assert budget_of("auto", "cpu", {}) is None


def test_bytes_count_shared_tensors_once():
    import torch
    from torch import nn

    class Loaded:
        def __init__(self, module):
            self.module = module

    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    module[1].weight = module[0].weight
    module.register_buffer("b", torch.zeros(2, dtype=torch.float64))
    assert bytes_of(Loaded(module)) == 16 * 4 + 16
    assert bytes_of(object()) == 0

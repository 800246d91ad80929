"""Under xdist, one worker serves one lab; other suites are scheduled as xdist does."""

from __future__ import annotations

import json

import pytest

from pytest_circuittest.scheduling import make_scheduler, register


class Config:
    """As much of a config as the scheduling looks at."""

    def __init__(self, dist: str = "load", xdist: bool = True) -> None:
        self.stash = pytest.Stash()
        self.registered: list[object] = []
        self.pluginmanager = self
        self.hasplugin = lambda name: xdist
        self.getoption = lambda name, default=None: dist
        self.register = lambda plugin, name: self.registered.append(plugin)


@pytest.mark.parametrize(
    ("config", "number"),
    [(Config(), 1), (Config(dist="loadfile"), 0), (Config(dist="no"), 0), (Config(xdist=False), 0)],
)
def test_takes_part_only_where_xdist_distributes_by_load(config, number):
    register(config)
    assert len(config.registered) == number
    for controller in config.registered:
        controller.pytest_unconfigure()


def test_no_part_in_a_worker():
    config = Config()
    config.workerinput = {}
    register(config)
    assert config.registered == []


class Node:
    """A worker that writes down which tests it is given."""

    def __init__(self, name: str) -> None:
        self.gateway = self
        self.id = name
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(pytestconfig, folder, ids):
    """Two workers after the first distribution."""
    scheduler = make_scheduler(pytestconfig, None, folder)
    nodes = [Node("gw0"), Node("gw1")]
    for node in nodes:
        scheduler.add_node(node)
    for node in nodes:
        scheduler.add_node_collection(node, ids)
    assert scheduler.collection_is_completed
    scheduler.schedule()
    return scheduler, nodes


@pytest.fixture
def two_workers(pytestconfig, monkeypatch):
    monkeypatch.setattr(pytestconfig.option, "tx", ["2*popen"], raising=False)
    monkeypatch.setattr(pytestconfig.option, "maxschedchunk", None, raising=False)
    monkeypatch.setattr(pytestconfig.option, "loadscopereorder", True, raising=False)
    return pytestconfig


def test_one_worker_a_lab(two_workers, tmp_path):
    ids = [f"t[{k}-{lab}]" for k in range(3) for lab in ("a-ioi", "b-ioi")]
    (tmp_path / "gw0.json").write_text(json.dumps({name: name[4:-1] for name in ids}))
    scheduler, nodes = scheduled(two_workers, tmp_path, ids)
    assert sorted(node.given for node in nodes) == [[0, 2, 4], [1, 3, 5]]
    assert scheduler.nodes == nodes


def test_suites_without_labs_are_scheduled_by_load(two_workers, tmp_path):
    scheduler, nodes = scheduled(two_workers, tmp_path, [f"t[{k}]" for k in range(12)])
    assert type(scheduler._active[0]).__name__ == "LoadScheduling"
    assert all(len(node.given) >= 2 for node in nodes)
    scheduler.mark_test_complete(nodes[0], nodes[0].given[0], 0.1)
    assert scheduler.has_pending
    assert not scheduler.tests_finished


def test_a_worker_that_is_lost_before_the_collection_is_forgotten_by_both(two_workers, tmp_path):
    scheduler = make_scheduler(two_workers, None, tmp_path)
    node = Node("gw0")
    scheduler.add_node(node)
    assert scheduler.remove_node(node) is None
    assert scheduler.nodes == []


def test_a_worker_that_dies_fails_its_test_and_keeps_the_records_of_the_others(suite):
    suite.test(
        """
import os

@pytest.mark.circuit(model="a", task="ioi")
class TestAll:
    def test_first(self, lab):
        assert lab.necessity(lab.shared()) >= 0.3

    def test_second(self, lab):
        os._exit(3)

    def test_third(self, lab):
        assert lab.reuse(lab.shared()) <= 0.3
"""
    )
    result = suite.run_fresh("-n", "2", "--circuit-json=r.json")
    result.assert_outcomes(passed=2, failed=1)
    claims = json.loads((suite.path / "r.json").read_text())["claims"]
    assert [(claim["claim"], claim["verdict"]) for claim in claims] == [
        ("necessity", "supported"),
        ("reuse", "supported"),
    ]

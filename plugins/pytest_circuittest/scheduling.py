"""Under pytest-xdist, tests on one lab go to one worker, so that a model is loaded and measured once.

The controller sees test ids only. Which lab a test uses is known to the workers, who leave a note in a folder that the
controller names to them; where no note is found (no circuit tests, or workers on other machines), xdist's own ``load``
scheduling takes over. Asking for any other ``--dist`` turns this off.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pytest_circuittest.requests import LabRequest
from pytest_circuittest.specs import SpecItem

_KEY = "circuittest_groups"


def register(config: pytest.Config) -> None:
    """Take part in the scheduling where xdist distributes by ``load``."""
    distributes = config.pluginmanager.hasplugin("xdist") and config.getoption("dist", "no") == "load"
    if distributes and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(), "circuittest-scheduling")


class Controller:
    """The hooks of xdist's controller."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="circuittest-"))

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to leave its note."""
        node.workerinput[_KEY] = str(self._folder)

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """The scheduler of the session."""
        return make_scheduler(config, log, self._folder)

    def pytest_unconfigure(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


def leave_note(session: pytest.Session) -> None:
    """In a worker: which lab each collected test uses."""
    folder = getattr(session.config, "workerinput", {}).get(_KEY)
    groups = {item.nodeid: group for item in session.items if (group := group_of(item))} if folder else {}
    if folder and groups and Path(folder).is_dir():
        name = session.config.workerinput["workerid"]  # type: ignore[attr-defined]
        Path(folder, f"{name}.json").write_text(json.dumps(groups), encoding="utf-8")


def group_of(item: pytest.Item) -> str | None:
    """The id of the lab that an item uses, or None."""
    request = item.request if isinstance(item, SpecItem) else None
    if request is None and hasattr(item, "callspec"):
        request = item.callspec.params.get("lab")
    return request.id if isinstance(request, LabRequest) else None


def read_notes(folder: Path) -> dict[str, str]:
    """What the workers have left. All collect the same tests, so their notes agree."""
    groups: dict[str, str] = {}
    for file in sorted(folder.glob("*.json")):
        groups.update(json.loads(file.read_text(encoding="utf-8")))
    return groups


def make_scheduler(config: pytest.Config, log: Any, folder: Path) -> Any:
    """A scheduler that groups by lab where there are labs, and is xdist's ``load`` otherwise."""
    from xdist.scheduler import LoadScheduling, LoadScopeScheduling

    class ByLab(LoadScopeScheduling):
        groups: dict[str, str]

        def _split_scope(self, nodeid: str) -> str:
            return self.groups.get(nodeid, nodeid)

        def remove_node(self, node: Any) -> str | None:
            # As in the base class, but the test that killed the worker is not run again: with whole labs as units, it
            # would kill every replacement, too.
            workload = self.assigned_work.pop(node)
            pending = [
                (unit, nodeid) for unit in workload.values() for nodeid, done in unit.items() if not done
            ]
            if not pending:
                return None
            unit, crashed = pending[0]
            unit[crashed] = True
            self.workqueue.update({scope: left for scope, left in workload.items() if not all(left.values())})
            for other in self.nodes:
                self._reschedule(other)
            return crashed

    class LabScheduling:
        """Feeds both schedulers until all workers have collected, then goes on with the one that fits."""

        def __init__(self) -> None:
            self._by_lab = ByLab(config, log)
            self._active = [LoadScheduling(config, log), self._by_lab]

        def add_node(self, node: Any) -> None:
            for scheduler in self._active:
                scheduler.add_node(node)

        def add_node_collection(self, node: Any, collection: Any) -> None:
            for scheduler in self._active:
                scheduler.add_node_collection(node, collection)

        def remove_node(self, node: Any) -> Any:
            crashed = [scheduler.remove_node(node) for scheduler in self._active]
            return crashed[0]

        def schedule(self) -> None:
            if len(self._active) > 1:
                self._by_lab.groups = read_notes(folder)
                self._active = [self._by_lab] if self._by_lab.groups else self._active[:1]
            self._active[0].schedule()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._active[0], name)

    return LabScheduling()

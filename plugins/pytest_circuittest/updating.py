"""``--circuit-update``: write the locks of specs, or show what would change; it judges nothing and rewrites no spec.

One item a spec takes the place of its claims, and every other test is deselected. Locks are written where the option
was given, so that xdist's workers, which could race, are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest.options import settings
from pytest_circuittest.pool import pool
from pytest_circuittest.requests import LabRequest

if TYPE_CHECKING:
    from circuittest.lab import Lab
    from circuittest.lock import Lock
    from circuittest.spec import Spec

_SAID = pytest.StashKey[list[str]]()


def check(config: pytest.Config) -> None:
    """Refuse options that do not go together. Raises pytest.UsageError."""
    chosen = settings(config)
    if chosen.update is None:
        if chosen.accept_model:
            raise pytest.UsageError("--circuit-accept-model goes with --circuit-update=all")
        return
    if hasattr(config, "workerinput") or config.getoption("dist", "no") != "no":
        raise pytest.UsageError("--circuit-update writes from one process: run it without -n, or with -n0")
    config.stash[_SAID] = []


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the locks alone in the session, where locks are to be written."""
    if settings(config).update is None:
        return
    others = [item for item in items if not isinstance(item, LockItem)]
    if others:
        items[:] = [item for item in items if isinstance(item, LockItem)]
        config.hook.pytest_deselected(items=others)


def write_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was written, or would be."""
    if said := config.stash.get(_SAID, None):
        terminalreporter.section("locks")
        for line in said:
            terminalreporter.write_line(line)


class LockItem(pytest.Item):
    """The lock of one spec."""

    def __init__(self, *, spec: Spec, requests: list[LabRequest], **more: Any) -> None:
        super().__init__(**more)
        self.spec, self.requests = spec, requests

    def runtest(self) -> None:
        """Measure, compare, and write what differs."""
        from circuittest.errors import UsageError
        from circuittest.lock import content, lock_path
        from circuittest.spec.lock import changes, make_lock, refuse_other_weights
        from circuittest.stats.listening import silence

        chosen = settings(self.config)
        there, name = lock_path(self.path), lock_path(self.spec.file).as_posix()
        if chosen.update == "new" and there.exists():
            self._say([f"{name}: kept as it is; --circuit-update=all writes it again"])
            return
        if len(self.requests) > 1:
            raise UsageError(
                f"{self.spec.file} names {len(self.requests)} models",
                "a lock is of one",
                "write a spec for each",
            )
        before = content(there)
        old = self._old(name)
        lab: Lab = pool(self.config).lab(self.requests[0])
        if old is not None:
            refuse_other_weights(old, lab, chosen.accept_model, name)
        with silence():
            new = make_lock(self.spec, lab)
        found = changes(old, new)
        if found and chosen.update != "diff":
            new.save(there, over=before)
        verb = "would change" if chosen.update == "diff" else "written"
        told = [f"{name}: {verb if found else 'unchanged'}"]
        self._say(told + [f"  {line}" for line in found])

    def _old(self, name: str) -> Lock | None:
        """The lock that is there. One that cannot be read hides what its base was, so that somebody has to agree."""
        from circuittest.errors import SpecError, UsageError
        from circuittest.lock import Lock, lock_path

        there = lock_path(self.path)
        if not there.exists():
            return None
        try:
            return Lock.load(there, name=name)
        except SpecError as error:
            if settings(self.config).accept_model:
                return None
            raise UsageError(
                f"{name} is not updated",
                f"{error.what}, so that its base model is not known",
                "restore it from version control, or give --circuit-accept-model",
            ) from error

    def _say(self, lines: list[str]) -> None:
        self.config.stash.setdefault(_SAID, []).extend(lines)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """No traceback for everything that circuittest raises on purpose."""
        from circuittest.errors import CircuittestError

        if isinstance(excinfo.value, CircuittestError):
            return str(excinfo.value)
        return super().repr_failure(excinfo) if style is None else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        """The spec."""
        return self.path, 0, self.name


def lock_item(parent: pytest.File, spec: Spec, requests: list[LabRequest]) -> Iterator[LockItem]:
    """The only item of a spec whose lock is to be written."""
    yield LockItem.from_parent(parent, name="lock", spec=spec, requests=requests)

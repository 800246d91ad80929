"""Tasks, claims and adapters that conftest files and plugins bring (`pytest_circuittest_register`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from circuittest.models import Adapter


class Registry:
    """What the hook is handed; each name is known until the session ends."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def task(self, name: str, task: Any) -> None:
        """A Task subclass, a Task or a function that returns one. Raises UsageError for a name that is taken."""
        from circuittest.tasks.catalog import register_task, unregister_task

        register_task(name, task)
        self._undo.append(lambda: unregister_task(name))

    def claim(self, name: str, function: Callable[..., Any]) -> None:
        """``function(lab, circuit, *, option=…) -> Estimate``. Raises UsageError for a name that is taken."""
        from circuittest.claims import register_claim, unregister_claim

        register_claim(name, function)
        self._undo.append(lambda: unregister_claim(name))

    def adapter(self, adapter: Adapter) -> None:
        """Where the units of an architecture are. Raises UsageError for a model type that has an adapter."""
        from circuittest.models.adapters import register_adapter, unregister_adapter

        register_adapter(adapter)
        self._undo.append(lambda: unregister_adapter(adapter))

    def forget(self) -> None:
        """Undo everything."""
        while self._undo:
            self._undo.pop()()


_REGISTRY = pytest.StashKey[Registry]()


def once(config: pytest.Config) -> None:
    """Call the hook, unless this session did already. Raises pytest.UsageError."""
    if _REGISTRY in config.stash:
        return
    registry = config.stash[_REGISTRY] = Registry()
    try:
        config.hook.pytest_circuittest_register(registry=registry)
    except ValueError as error:
        raise pytest.UsageError(f"pytest_circuittest_register: {error}") from None


def forget(config: pytest.Config) -> None:
    """At the end of the session, where something was registered."""
    if _REGISTRY in config.stash:
        config.stash[_REGISTRY].forget()

"""Models and labs of a session, each made once."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest import devices, memory, registering
from pytest_circuittest.options import settings
from pytest_circuittest.requests import LabRequest, short_name
from pytest_circuittest.storing import store_of

if TYPE_CHECKING:
    from circuittest.lab import Lab
    from circuittest.store import Store

_POOL = pytest.StashKey["ModelPool"]()


class ModelPool:
    """Every model and lab that a session has asked for. What the `circuit_models` fixture gives."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._models: dict[tuple[str, str, str], Any] = {}
        self._labs: dict[LabRequest, Lab] = {}

    def get(self, model: str, *, device: str | None = None, dtype: str | None = None) -> Any:
        """The loaded model; loaded on the first call.

        Raises
        ------
        CircuittestError
            When it cannot be loaded; the same again on every further call.
        """
        registering.once(self._config)
        key = self._key(model, device, dtype)
        if key not in self._models:
            self._keep_within(None)
            try:
                self._models[key] = self._config.hook.pytest_circuittest_load_model(
                    config=self._config, model=key[0], device=key[1], dtype=key[2]
                )
            except Exception as error:
                self._models[key] = error
                raise
        self._models[key] = self._models.pop(key)  # the most recently used comes last
        self._keep_within(key)
        if isinstance(self._models[key], Exception):
            raise self._models[key].with_traceback(None)
        return self._models[key]

    def _key(self, model: str, device: str | None = None, dtype: str | None = None) -> tuple[str, str, str]:
        chosen = settings(self._config)
        return model, devices.place(device or chosen.device), dtype or chosen.dtype

    def _keep_within(self, key: tuple[str, str, str] | None) -> None:
        """Let models go, with their labs, until the others fit beside the one of this key, or beside one to come.

        How large that will be is not known; it is taken for as large as the largest.
        """
        sizes = {other: memory.bytes_of(model) for other, model in self._models.items()}
        if sum(size > 0 for size in sizes.values()) < (1 if key is None else 2):
            return
        budget = memory.budget_of(settings(self._config).memory, next(reversed(sizes))[1], os.environ)
        coming = max(sizes.values()) if key is None else 0
        gone = memory.victims(sizes, budget, keep=key, coming=coming)
        for other in gone:
            del self._models[other]
        for request in [one for one in self._labs if self._key(one.model) in gone]:
            del self._labs[request]
        if gone:
            devices.free(sys.modules.get("torch"))

    def lab(self, request: LabRequest) -> Lab:
        """The lab of a request; made on the first call. Raises as `get` does."""
        if request in self._labs:
            self.get(request.model)  # it is in use
        else:
            from circuittest.lab import Lab

            self._labs[request] = Lab(
                self.get(request.model),
                request.task,
                name=request.name,
                **self._options(request),
            )
        return self._labs[request]

    def _options(self, request: LabRequest) -> dict[str, Any]:
        session = {"budget": settings(self._config).budget, "store": store_of(self._config)}
        told = {key: value for key, value in session.items() if value is not None}
        return {**dict(request.options), **told}

    def loaded(self) -> list[str]:
        """The models loaded so far."""
        return sorted({key[0] for key, model in self._models.items() if not isinstance(model, Exception)})

    def clear(self) -> None:
        """Forget everything, so that the memory can be used again."""
        held = any(memory.bytes_of(model) for model in self._models.values())
        self._models.clear()
        self._labs.clear()
        if held:
            devices.free(sys.modules.get("torch"))


def pool(config: pytest.Config) -> ModelPool:
    """The session's pool."""
    if _POOL not in config.stash:
        config.stash[_POOL] = ModelPool(config)
    return config.stash[_POOL]


def close_pool(config: pytest.Config) -> None:
    """Empty the pool at the end of the session, where there is one."""
    if _POOL in config.stash:
        config.stash[_POOL].clear()


def load_model(
    model: str, device: str, dtype: str, *, store: Store | None = None, trust: tuple[str, ...] = ()
) -> Any:
    """The usual way to load a model, under a name that says nothing of where it lies.

    One that the store knows is read when something first needs its weights.
    """
    from circuittest.models.loading import load_model as load

    return load(model, device=device, dtype=dtype, name=short_name(model), store=store, trust=trust)

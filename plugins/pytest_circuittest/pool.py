"""Models and labs of a session, each made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest.options import settings
from pytest_circuittest.requests import LabRequest, short_name

if TYPE_CHECKING:
    from circuittest.lab import Lab

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
        chosen = settings(self._config)
        key = (model, device or chosen.device, dtype or chosen.dtype)
        if key not in self._models:
            try:
                self._models[key] = self._config.hook.pytest_circuittest_load_model(
                    config=self._config, model=key[0], device=key[1], dtype=key[2]
                )
            except Exception as error:
                self._models[key] = error
                raise
        if isinstance(self._models[key], Exception):
            raise self._models[key].with_traceback(None)
        return self._models[key]

    def lab(self, request: LabRequest) -> Lab:
        """The lab of a request; made on the first call. Raises as `get` does."""
        if request not in self._labs:
            from circuittest.lab import Lab

            self._labs[request] = Lab(
                self.get(request.model), request.task, name=request.name, **self._options(request)
            )
        return self._labs[request]

    def _options(self, request: LabRequest) -> dict[str, Any]:
        budget = settings(self._config).budget
        return {**dict(request.options), **({} if budget is None else {"budget": budget})}

    def loaded(self) -> list[str]:
        """The models loaded so far."""
        return sorted({key[0] for key, model in self._models.items() if not isinstance(model, Exception)})

    def clear(self) -> None:
        """Forget everything, so that the memory can be used again."""
        self._models.clear()
        self._labs.clear()


def pool(config: pytest.Config) -> ModelPool:
    """The session's pool."""
    if _POOL not in config.stash:
        config.stash[_POOL] = ModelPool(config)
    return config.stash[_POOL]


def close_pool(config: pytest.Config) -> None:
    """Empty the pool at the end of the session, where there is one."""
    if _POOL in config.stash:
        config.stash[_POOL].clear()


def load_model(model: str, device: str, dtype: str) -> Any:
    """The usual way to load a model, under a name that says nothing of where it lies."""
    from dataclasses import replace

    from circuittest.models.loading import load_model as load

    return replace(load(model, device=device, dtype=dtype), name=short_name(model))

"""Hooks that conftest files and other plugins may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_circuittest.registering import Registry


@pytest.hookspec(firstresult=True)
def pytest_circuittest_load_model(config: pytest.Config, model: str, device: str, dtype: str) -> Any:
    """Load a model by another way than `circuittest.models.loading.load_model`; called once a session for each model.

    Parameters
    ----------
    model:
        What the marker, the spec or `--circuit-model` says.
    device, dtype:
        What `--circuit-device` and `--circuit-dtype` or their ini twins say.

    Returns
    -------
    LoadedModel or None
        None leaves it to the next implementation.
    """


@pytest.hookspec
def pytest_circuittest_register(registry: Registry) -> None:
    """Bring tasks, claims and adapters of your own; called once a session, before the first circuit test is collected.

    Parameters
    ----------
    registry:
        ``registry.task("agreement", Agreement)``, ``registry.claim("early", early)``, ``registry.adapter(ARCEE)``.
        What is registered is forgotten when the session ends.
    """

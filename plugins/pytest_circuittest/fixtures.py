"""The fixtures `lab`, `make_lab` and `circuit_models`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_circuittest.options import settings
from pytest_circuittest.pool import ModelPool, pool
from pytest_circuittest.requests import LabRequest, request as lab_request
from pytest_circuittest.storing import store_of

if TYPE_CHECKING:
    from circuittest.lab import Lab


@pytest.fixture(scope="session")
def circuit_models(pytestconfig: pytest.Config) -> ModelPool:
    """The models of this session; ``circuit_models.get("zoo:gqa")`` loads one or gives the one already loaded."""
    return pool(pytestconfig)


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest, circuit_models: ModelPool) -> Lab:
    """The lab on the model and task of the nearest ``circuit`` marker, or of the ini file."""
    wanted = getattr(request, "param", None)
    if wanted is None:  # asked for by getfixturevalue: no marker was read
        chosen = settings(request.config)
        if not chosen.model or not chosen.task:
            raise pytest.UsageError(
                "ask for `lab` as an argument of the test, so that its circuit marker is read"
            )
        wanted = lab_request(chosen, chosen.model, chosen.task, {})
    if not isinstance(wanted, LabRequest):
        raise pytest.UsageError(
            f"`lab` is parametrised with a {type(wanted).__name__}; use the circuit marker"
        )
    return circuit_models.lab(wanted)


@pytest.fixture(scope="session")
def make_lab(request: pytest.FixtureRequest, circuit_models: ModelPool) -> Callable[..., Lab]:
    """A function that makes labs: ``make_lab(model, task, *, tokenizer=None, **options of Lab)``.

    A model that is given by name comes from the session's pool, with `--circuit-model`, `--circuit-device` and
    `--circuit-dtype` applied; a module in memory is taken as it is.
    """

    def make(model: Any = None, task: Any = None, **options: Any) -> Lab:
        from circuittest.lab import Lab

        chosen = settings(request.config)
        model = chosen.model if model is None else model
        task = chosen.task if task is None else task
        if not isinstance(model, str) or "tokenizer" in options:
            return Lab(model, task, **options)
        place = {key: options.pop(key) for key in ("device", "dtype") if key in options}
        wanted = lab_request(chosen, model, "", {})
        store = store_of(request.config)
        usual = {"name": wanted.name, **({} if store is None else {"store": store})}
        return Lab(circuit_models.get(wanted.model, **place), task, **{**usual, **options})

    return make

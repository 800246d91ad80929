"""What pytest sees of the plugin: every hook, each a line or two that hands over to the module with the idea.

This module and those it imports at the top use pytest and the standard library only. A suite without circuit tests
never loads anything else.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_circuittest import (
    devices,
    hookspecs,
    options,
    properties,
    recording,
    registering,
    relay,
    reports,
    scheduling,
    storing,
    summary,
    updating,
)
from pytest_circuittest.explain import compare_lines
from pytest_circuittest.fixtures import circuit_models, lab, make_lab
from pytest_circuittest.pool import close_pool, load_model
from pytest_circuittest.requests import MARKER, parametrize_lab
from pytest_circuittest.specs import SpecFile, collect_spec

__all__ = ["circuit_models", "lab", "make_lab"]


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    properties.offer_profile(early_config)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.addinivalue_line("markers", devices.MARKER)
    options.settings(config)
    storing.check(config)
    updating.check(config)
    reports.check_targets(config)
    config.pluginmanager.register(summary.collector(config), "circuittest-summary")
    scheduling.register(config)
    relay.register(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    close_pool(config)
    registering.forget(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SpecFile | None:
    return collect_spec(file_path, parent)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_lab(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    updating.deselect(config, items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    updating.write_summary(terminalreporter, config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    scheduling.leave_note(session)
    options.check_used(session.config)


@pytest.hookimpl(trylast=True)
def pytest_circuittest_load_model(config: pytest.Config, model: str, device: str, dtype: str) -> Any:
    trust = options.settings(config).trust
    return load_model(model, device, dtype, store=storing.store_of(config), trust=trust)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    devices.skip_without_gpu(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with recording.recording(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    return (yield from properties.judged(pyfuncitem))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, object, object]:
    with recording.in_fixture(fixturedef, request):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return (yield from recording.attach(item, call))


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    return compare_lines(op, left, right)

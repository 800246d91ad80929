"""What every test shares: Hypothesis profiles and one thread per process."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# Only the outermost conftest may ask for a plugin. Used by tests/plugin.
pytest_plugins = ["pytester"]

# Two cores and several workers: more threads only fight. Read by torch and OpenMP when they are first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests measure; those of the store name one of their own.
os.environ["CIRCUITTEST_STORE"] = "off"

settings.register_profile(
    "quick",
    max_examples=40,
    deadline=None,  # machines differ and are shared; time limits are pytest-timeout's business
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("full", parent=settings.get_profile("quick"), max_examples=400, derandomize=False)
settings.load_profile(os.environ.get("CIRCUITTEST_HYPOTHESIS", "quick"))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Claims about made-up labs are no claims of this run: they stay out of its table of claims."""
    from circuittest.stats.listening import silence

    with silence():
        return (yield)

"""circuittest: claims about a language model's circuits as tests.

Everything public is imported on first use, so that ``from circuittest import Lab`` in a test file costs nothing
until a circuit test runs.

Nothing here asserts, and commands import it before pytest starts, so: PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.errors import CircuittestError
    from circuittest.lab import Lab
    from circuittest.stats import Estimate, InvalidClaim, Undecided, Verdict
    from circuittest.units import Edge, Layout, Unit

    __version__: str

_HOMES = {
    "Circuit": "circuittest.circuit",
    "CircuittestError": "circuittest.errors",
    "Edge": "circuittest.units",
    "Estimate": "circuittest.stats",
    "InvalidClaim": "circuittest.stats",
    "Lab": "circuittest.lab",
    "Layout": "circuittest.units",
    "Undecided": "circuittest.stats",
    "Unit": "circuittest.units",
    "Verdict": "circuittest.stats",
}

__all__ = [
    "Circuit",
    "CircuittestError",
    "Edge",
    "Estimate",
    "InvalidClaim",
    "Lab",
    "Layout",
    "Undecided",
    "Unit",
    "Verdict",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("circuittest")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'circuittest' has no attribute {name!r}")
    globals()[name] = value  # the next access is a plain attribute
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

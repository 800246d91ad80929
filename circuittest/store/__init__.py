"""A content-addressed store of what was measured: safetensors and JSON, safe under concurrent writers.

Names are imported when they are first used: where the store lies is known without numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circuittest.store.entries import Damaged, Entry
    from circuittest.store.keys import key_of, versions
    from circuittest.store.store import CAP, Info, Store

_HOMES = {
    "CAP": "store",
    "Damaged": "entries",
    "Entry": "entries",
    "Info": "store",
    "Store": "store",
    "key_of": "keys",
    "versions": "keys",
}
__all__ = ["CAP", "Damaged", "Entry", "Info", "Store", "key_of", "versions"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

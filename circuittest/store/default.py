"""Which store is used where none is named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from circuittest.cache import cache_dir

if TYPE_CHECKING:
    from circuittest.store.store import Store

#: A path or URL, or this word for no store at all.
VARIABLE, OFF = "CIRCUITTEST_STORE", "off"


def default_root() -> str | None:
    """What CIRCUITTEST_STORE says; else the folder ``store`` of circuittest's cache, which all projects share."""
    named = os.environ.get(VARIABLE)
    if named == OFF:
        return None
    return named or str(cache_dir() / "store")


def default_store() -> Store | None:
    """The store of commands. Raises UsageError where CIRCUITTEST_STORE names what cannot be one."""
    from circuittest.store.store import Store

    root = default_root()
    return None if root is None else Store(root)

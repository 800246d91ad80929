"""Models: which architectures are known, how models are loaded, and where their units live.

Names are imported when they are first used: the adapters need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from circuittest.models.adapters import Adapter, adapters, register_adapter
    from circuittest.models.loaded import LoadedModel
    from circuittest.models.loading import from_module, load_model

_HOMES = {
    "Adapter": "adapters",
    "LoadedModel": "loaded",
    "adapters": "adapters",
    "from_module": "loading",
    "load_model": "loading",
    "register_adapter": "adapters",
}
__all__ = ["Adapter", "LoadedModel", "adapters", "from_module", "load_model", "register_adapter"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

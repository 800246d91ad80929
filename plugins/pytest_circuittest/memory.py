"""How many models a session keeps: a budget of bytes, `--circuit-memory`, beyond which the oldest are let go."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)

#: Of the machine's memory, and of a GPU's, the share that models may take where nothing else is said.
CPU_SHARE, GPU_SHARE = 0.5, 0.8


def bytes_of(model: Any) -> int:
    """What a model's parameters and buffers take; 0 for one that was not read yet, and for what is no model."""
    module = getattr(model, "__dict__", {}).get("module")
    if module is None or not hasattr(module, "parameters"):
        return 0
    tensors = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return sum(int(tensor.nbytes) for tensor in tensors.values())


def victims(sizes: Mapping[K, int], budget: int | None, *, keep: K | None = None, coming: int = 0) -> list[K]:
    """Which models to let go so that the rest, and one that is coming, fit.

    Parameters
    ----------
    sizes:
        Bytes of each, the least recently used first.
    budget:
        Bytes; None: no limit.
    keep:
        One that stays, whatever its size.
    coming:
        Bytes of the next, as far as they are known.
    """
    if budget is None:
        return []
    found: list[K] = []
    left = sum(sizes.values()) + coming
    for key, taken in sizes.items():
        if left <= budget:
            break
        if key != keep and taken:
            found.append(key)
            left -= taken
    return found


def budget_of(asked: str, device: str, environment: Mapping[str, str]) -> int | None:
    """Bytes that the models of one process may take.

    Parameters
    ----------
    asked:
        `--circuit-memory`: a size of all processes together, "none", or "auto": half of the machine's memory, or four
        fifths of one GPU's.
    device:
        Where models are.
    environment:
        Says how many workers of xdist share the memory.
    """
    from pytest_circuittest.devices import gpu_memory, size

    if asked == "none":
        return None
    workers = max(1, int(environment.get("PYTEST_XDIST_WORKER_COUNT") or 1))
    if asked != "auto":
        return size(asked) // workers
    gpus = gpu_memory() if device == "auto" or device.startswith("cuda") else []
    if gpus:
        index = int(device.partition(":")[2] or 0)
        sharing = -(-workers // len(gpus))
        return int(GPU_SHARE * gpus[min(index, len(gpus) - 1)]) // sharing
    whole = machine_memory()
    return None if whole is None else int(CPU_SHARE * whole) // workers


def machine_memory() -> int | None:
    """Bytes of memory of this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None

"""Where models run: `--circuit-device`, a GPU for each worker of xdist, and the `circuit_gpu` marker."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

MARKER = (
    "circuit_gpu(count=1, memory=0): skip the test unless there are so many GPUs, each with so much memory "
    "(bytes, or text such as '40GiB')"
)
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")
#: What Linux shows where there is a GPU: of NVIDIA, under Windows, of AMD.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)?", re.IGNORECASE)
_UNITS = {
    "b": 1,
    **{f"{letter}ib": 1 << (10 * power) for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}


def add_options(group: Any, parser: pytest.Parser) -> None:
    """Register `--circuit-device` and `--circuit-memory`, and their ini twins."""
    group.addoption(
        "--circuit-device",
        metavar="DEVICE",
        default=None,
        help="auto, cpu, cuda, cuda:1, mps; with workers of xdist, auto and cuda give each its own visible GPU",
    )
    group.addoption(
        "--circuit-memory",
        metavar="BYTES",
        default=None,
        help="what the models of the session may take, as 8GiB; beyond it the least recently used are let go. auto "
        "(default): half of the machine's memory, or four fifths of a GPU's; none: no limit",
    )
    parser.addini("circuit_device", "as --circuit-device", type="string", default="auto")
    parser.addini("circuit_memory", "as --circuit-memory", type="string", default="auto")


def check_memory(text: str) -> str:
    """The value of `--circuit-memory`. Raises pytest.UsageError."""
    if text not in ("auto", "none"):
        try:
            size(text)
        except ValueError as error:
            raise pytest.UsageError(f"--circuit-memory: {error}, auto or none") from None
    return text


def check_device(text: str) -> str:
    """The value of `--circuit-device`. Raises pytest.UsageError for what can be no device."""
    if not _DEVICE.fullmatch(text):
        raise pytest.UsageError(f"--circuit-device {text}: write auto, cpu, cuda, cuda:1 or mps")
    return text


def size(text: str | int) -> int:
    """Bytes of "8GiB", "500 MB" or 1024. Raises ValueError."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    found = _SIZE.fullmatch(str(text).strip())
    if found is None:
        raise ValueError(f"{text!r} is no size: write bytes, or 8GiB, 500MB")
    return int(float(found[1]) * _UNITS[(found[2] or "B").lower()])


def worker_of(environment: Mapping[str, str]) -> int | None:
    """The number of this worker of xdist, from 0; None outside of workers."""
    found = re.fullmatch(r"gw(\d+)", environment.get("PYTEST_XDIST_WORKER", ""))
    return int(found[1]) if found else None


def own_device(asked: str, worker: int | None, gpus: int) -> str:
    """The device of one process.

    Parameters
    ----------
    asked:
        What `--circuit-device` says.
    worker:
        Number of the worker of xdist; None without workers.
    gpus:
        How many GPUs torch sees: those of CUDA_VISIBLE_DEVICES, where the caller has set it.

    Returns
    -------
    str
        "auto" and "cuda" give each worker one of the visible GPUs, in turn; any other choice stands.
    """
    if asked not in ("auto", "cuda") or worker is None or gpus < 1:
        return asked
    return f"cuda:{worker % gpus}"


def place(asked: str) -> str:
    """`own_device` for this process."""
    worker = worker_of(os.environ)
    if worker is None or asked not in ("auto", "cuda"):
        return asked
    return own_device(asked, worker, len(gpu_memory()))


def gpu_memory() -> list[int]:
    """Bytes of each GPU that torch sees. Loads torch only where the system has some."""
    if sys.platform == "darwin" or (sys.platform == "linux" and not any(map(os.path.exists, _DRIVERS))):
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    return [int(torch.cuda.get_device_properties(i).total_memory) for i in range(torch.cuda.device_count())]


def lacking(marker: pytest.Mark, asked: str, gpus: Callable[[], list[int]], visible: str | None) -> str:
    """Why a test with the `circuit_gpu` marker cannot run here; "" where it can. Raises pytest.UsageError.

    Parameters
    ----------
    gpus:
        Bytes of each GPU; asked for only where the answer depends on it.
    visible:
        CUDA_VISIBLE_DEVICES, or None.
    """
    given = dict(marker.kwargs)
    count, memory = given.pop("count", 1), given.pop("memory", 0)
    try:
        wanted = size(memory)
    except ValueError as error:
        raise pytest.UsageError(f"circuit_gpu: memory {error}") from None
    if marker.args or given or not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise pytest.UsageError(f"write @pytest.mark.{MARKER.partition(':')[0]}")
    if asked in ("cpu", "mps"):
        return f"needs a GPU, and --circuit-device is {asked}"
    there = gpus()
    if len(there) < count:
        found = "no GPU" if not there else f"{len(there)} of {count} GPUs"
        told = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})"
        return f"needs {'a GPU' if count == 1 else f'{count} GPUs'}, and torch sees {found}{told}"
    large = sum(bytes_ >= wanted for bytes_ in there)
    if large < count:
        most = max(there) / (1 << 30)
        return f"needs a GPU with {wanted / (1 << 30):.3g} GiB, and the largest has {most:.3g} GiB"
    return ""


def skip_without_gpu(item: pytest.Item) -> None:
    """Skip a test that is marked with `circuit_gpu` where it cannot run. Other tests are not looked at."""
    marker = item.get_closest_marker("circuit_gpu")
    if marker is None:
        return
    from pytest_circuittest.options import settings

    reason = lacking(marker, settings(item.config).device, gpu_memory, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if reason:
        pytest.skip(reason)


def free(torch: Any) -> None:
    """Give freed memory of GPUs back, where any was used."""
    import gc

    gc.collect()
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()

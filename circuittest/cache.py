"""Where circuittest keeps what it can make again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_dir() -> Path:
    """CIRCUITTEST_CACHE, else a folder in the platform's cache directory."""
    if own := os.environ.get("CIRCUITTEST_CACHE"):
        return Path(own).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "circuittest"

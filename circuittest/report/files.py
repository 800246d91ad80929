"""Files of reports: written in one step, and never over a file that circuittest did not write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from circuittest.errors import UsageError


def check_free(path: str | Path, read: Callable[[Path], object], kind: str) -> None:
    """Raise UsageError where writing would overwrite a file that is none of ours.

    Parameters
    ----------
    read:
        Reads a file of ours, and raises UsageError for any other.
    kind:
        What our files are, in the words of the message: "file of verdict records".
    """
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"cannot write {path}", "it is a folder", "name a file")
    if not target.exists() or (target.is_file() and target.stat().st_size == 0):
        return
    try:
        read(target)
    except UsageError as error:
        raise UsageError(
            f"{path} is not overwritten", f"it is no {kind} ({error.why})", "choose another name"
        ) from error


def replace_file(path: str | Path, text: str) -> None:
    """Write a file in one step: a reader sees the old one or the new one. Raises UsageError."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)  # what `open` would have given; mkstemp gives 0600
            os.replace(name, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {path}", error.strerror or str(error)) from error

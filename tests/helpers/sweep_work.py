"""Work of a sweep without models, in a module that spawned processes can import."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from circuittest.errors import TaskError
from circuittest.sweep.items import Item, result_path, run_item


def write(one: Item, folder: str) -> dict[str, Any]:
    """A result that says who asked; one line a call in ``calls``, in the folder above."""
    with (Path(folder).parent / "calls").open("a") as file:
        file.write(f"{one.model}\n")
    if "dies" in one.model and calls(folder).count(one.model) <= (1 if "once" in one.model else 9):
        os.kill(os.getpid(), signal.SIGKILL)
    if "raises" in one.model:
        raise TaskError("no examples", "there are none", "write some")
    if "interrupted" in one.model:
        raise KeyboardInterrupt
    result = {"key": one.key, "model": one.model, "records": [], "circuit": None}
    path = result_path(Path(folder), one)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    return result


def die_in_the_middle(one: Item, folder: str) -> dict[str, Any]:
    """A real item, whose process is killed in the middle of the first call for a fine-tune."""
    marker = Path(folder).parent / "died"
    with (Path(folder).parent / "calls").open("a") as file:
        file.write(f"{one.model}\n")
    if "@" in one.model and not marker.exists():
        marker.touch()
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    return run_item(one, folder)


def calls(folder: str | Path) -> list[str]:
    """The models of all calls."""
    path = Path(folder).parent / "calls"
    return path.read_text().split() if path.exists() else []


def main(path: str, out: str, where: str) -> None:
    """A driver that is killed when it hears of the first result; `where` is "0", "2" (processes) or "ray"."""
    from circuittest.sweep import load_series, run

    def killed(one: Item, found: bool) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    how: dict[str, Any] = {"ray": "local"} if where == "ray" else {"workers": int(where)}
    run(load_series(path), out, device="cpu", work=write, done=killed, **how)


if __name__ == "__main__":
    main(*sys.argv[1:])

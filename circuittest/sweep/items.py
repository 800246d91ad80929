"""Work items: one spec on one model, a pure function of what its key stands for.

The key is a hash of the spec and every file that it names, of the model's files (or its name and commit on a hub), of
this package's sources, and of the libraries under it. The result is a JSON file named by the key, written in one step.
Claims and tasks that other packages bring are not part of the key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from circuittest.errors import LoadError


@dataclass(frozen=True)
class Item:
    """One piece of work; plain data, so that it travels to other processes and machines.

    Attributes
    ----------
    spec, place:
        Absolute path of the spec file, and what is loaded.
    model:
        What the model is called.
    key:
        See above.
    device, dtype, threads:
        How the model runs.
    store:
        Path or URL where tables are shared; None for none.
    roles:
        Roles that every head is scored for.
    resamples:
        How often the circuit is found again, on discovery examples that are drawn with replacement.
    """

    spec: str
    model: str
    place: str
    key: str
    device: str
    dtype: str
    threads: int
    store: str | None
    roles: tuple[str, ...] = ()
    resamples: int = 0

    def __str__(self) -> str:
        return f"{Path(self.spec).name} on {self.model}"


def item(
    spec: Path,
    model: str,
    place: str,
    *,
    device: str,
    dtype: str,
    threads: int,
    store: str | None,
    roles: tuple[str, ...] = (),
    resamples: int = 0,
) -> Item:
    """The item of a spec on a model, with its key. Raises LoadError for a model that is not there or not whole."""
    from circuittest.models.loading import device_called
    from circuittest.store.keys import key_of, versions

    kind = str(device_called(device))  # "auto" would be another on another machine, under the same key
    description = {
        "item": "sweep",
        "spec": spec.name,
        "files": files_of(spec),
        "model": model,
        "weights": weights(place),
        "how": [kind, dtype, threads],
        "asked": [list(roles), resamples],
        "code": sources(),
        "versions": {**versions(), "scipy": version("scipy")},
    }
    return Item(str(spec), model, place, key_of(description), kind, dtype, threads, store, roles, resamples)


def result_path(folder: Path, one: Item) -> Path:
    """Where the result of an item is."""
    return folder / f"{one.key}.json"


def read_result(path: Path) -> dict[str, Any] | None:
    """A result that is there and whole; None for one that is missing or torn, which is made anew."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(found, dict) and found.get("key") == path.stem and {"records", "circuit"} <= set(found)
    return found if whole else None


def run_item(one: Item, folder: str) -> dict[str, Any]:
    """Judge the claims of a spec on a model, and write what came out.

    Returns what `circuittest.sweep.judged.judged` does, as it is read from the file.
    """
    import torch

    from circuittest.report.files import replace_file
    from circuittest.sweep.judged import judged

    before = torch.get_num_threads()
    torch.set_num_threads(one.threads)
    try:
        result = judged(one)
    finally:
        torch.set_num_threads(before)
    text = json.dumps(result, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
    replace_file(result_path(Path(folder), one), text)
    found: dict[str, Any] = json.loads(text)
    return found


def files_of(spec: Path) -> dict[str, str]:
    """Hashes of a spec, its lock, and every file that its text names."""
    from circuittest.lock import lock_path
    from circuittest.spec.yaml import read_yaml

    found = {spec.name: _digest(spec)}
    if lock_path(spec).is_file():
        found["lock"] = _digest(lock_path(spec))
    for text in _texts(read_yaml(spec).data):
        name = os.path.expandvars(text)
        for known in (name, name.split("+")[0]):  # of a task's file with what is asked of it
            path = spec.parent / known
            if len(known) < 1000 and "\0" not in known and path.is_file():
                found[text] = _digest(path)
    return found


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


@cache
def weights(model: str) -> dict[str, str]:
    """What stands for a model's weights in a key: hashes of its files, or its commit on the hub."""
    from circuittest.models import hub
    from circuittest.models.loading import source

    place = source(model)
    folder = Path(place)
    if folder.is_dir():
        files = sorted(
            path for path in folder.iterdir() if path.suffix in (".json", ".jinja", ".model", ".txt")
        )
        tensors = sorted(folder.glob("*.safetensors"))
        if not tensors:
            why = "there are no safetensors in its folder"
            raise LoadError(f"{model} is not whole", why, "wait until it is written, or save it again")
        return {path.name: _digest(path) for path in (*files, *tensors)}
    snapshot = hub.snapshot(place, only_cached=hub.only_cached(place))
    if snapshot is None:
        why = (
            "the hub does not say which commit it is, so that results could be filed under another revision's"
        )
        raise LoadError(f"{model} cannot be swept by name", why, "download it, and name the folder")
    return {"hub": place, "commit": Path(snapshot).name}


@cache
def sources() -> str:
    """A hash of this package's Python files."""
    import circuittest

    root = Path(circuittest.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()} {_digest(path)} ".encode())
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

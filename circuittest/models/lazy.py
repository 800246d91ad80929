"""A model of which everything is known but the weights, which are read when something first needs them.

What a model's files give (its fingerprint, its layout) is remembered in the store under a hash of these files. A later
run of an unchanged suite finds its tables there, too, and never reads the weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from circuittest.errors import LoadError
from circuittest.models.adapters import adapters
from circuittest.models.loaded import LoadedModel
from circuittest.store import Entry, key_of, versions
from circuittest.units import Layout

if TYPE_CHECKING:
    from circuittest.store import Store

#: Files of a model's directory that say what it computes or which tokens it reads.
_SUFFIXES = {".json", ".safetensors", ".model", ".txt", ".jinja"}
#: Hashes of larger files are kept by place, size and times; and only of files that were not touched just now, for
#: clocks of file systems are coarse.
_LARGE, _SETTLED = 1 << 26, 2.0


class LazyModel(LoadedModel):
    """A `LoadedModel` whose module, adapter and tokenizer are read on their first use."""

    _later: Mapping[str, Callable[[], Any]]

    @classmethod
    def of(
        cls,
        known: Mapping[str, Any],
        *,
        load: Callable[[], LoadedModel],
        tokenizer: Callable[[], Any],
    ) -> LazyModel:
        """A model by what is `known` of it: name, fingerprint, layout, device, dtype, quantised, identity."""
        model = object.__new__(cls)
        model.__dict__.update(known)
        model.__dict__["_later"] = {"tokenizer": tokenizer, "module": load, "adapter": load}
        return model

    def __getattr__(self, name: str) -> Any:
        later = self.__dict__.get("_later", {})
        if name not in later:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        if name == "tokenizer":
            return self.__dict__.setdefault(name, later[name]())
        loaded = later[name]()
        if loaded.fingerprint != self.fingerprint:
            raise LoadError(
                f"the weights of {self.name} changed while they were in use",
                f"the fingerprint was {self.fingerprint[:12]} and is {loaded.fingerprint[:12]}",
                "run again",
            )
        for part in ("module", "adapter", "versions", "device"):
            self.__dict__[part] = getattr(loaded, part)
        self.__dict__.setdefault("tokenizer", loaded.tokenizer)
        return self.__dict__[name]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {'loaded' if self.in_memory else 'not loaded'})"

    @property
    def in_memory(self) -> bool:
        """Were the weights read?"""
        return "module" in self.__dict__


@dataclass(frozen=True)
class Known:
    """What is remembered of a model."""

    fingerprint: str
    layout: Layout
    dtype: str
    quantised: bool
    identity: str

    @classmethod
    def about(cls, model: LoadedModel) -> Known:
        """From a loaded model."""
        dtype = str(model.dtype).removeprefix("torch.")
        return cls(model.fingerprint, model.layout, dtype, model.quantised, model.identity or "")

    def pack(self) -> Entry:
        """As it is kept."""
        return Entry({}, {**asdict(self), "kind": "model"})

    @classmethod
    def unpack(cls, entry: Entry) -> Known:
        """From what is kept. Raises ValueError, KeyError or TypeError where it is something else."""
        told = {field.name: entry.meta[field.name] for field in fields(cls)}
        for name in ("fingerprint", "dtype", "identity"):
            if not isinstance(told[name], str) or not told[name]:
                raise ValueError(f"{name} is {told[name]!r}")
        if not isinstance(getattr(torch, told["dtype"], None), torch.dtype):
            raise ValueError(f"dtype is {told['dtype']!r}")
        return cls(**{**told, "layout": Layout(**told["layout"])})


def identified(model: LoadedModel) -> LoadedModel:
    """The model with its identity: for modules that nobody else had a hand in."""
    return replace(model, identity=identity_now(model))


def identity_now(model: LoadedModel) -> str:
    """The identity that a model has as its module is at this moment; see `LoadedModel.identity`."""
    config = model.module.config
    how = {
        name: str(getattr(config, name, None)) for name in ("_attn_implementation", "_experts_implementation")
    }
    return key_of({"fingerprint": model.fingerprint, "adapter": repr(model.adapter), **how})


def remembered(
    store: Store,
    description: Mapping[str, Any],
    *,
    name: str,
    device: torch.device,
    load: Callable[[], LoadedModel],
    tokenizer: Callable[[], Any],
) -> LoadedModel:
    """The model that a description stands for: unread, where the store knows it, else loaded now and remembered.

    Raises what `load` raises.
    """
    key = key_of({"kind": "model", **description, "versions": versions()})
    loaded: list[LoadedModel] = []

    def make() -> Known:
        loaded.append(load())
        return Known.about(loaded[0])

    known = store.once(key, make, pack=Known.pack, unpack=Known.unpack)
    if loaded:
        return loaded[0]
    told = {field.name: getattr(known, field.name) for field in fields(known)}
    told |= {"name": name, "device": device, "dtype": getattr(torch, known.dtype), "versions": ()}
    return LazyModel.of(told, load=load, tokenizer=tokenizer)


def files_of(folder: Path, store: Store) -> dict[str, Any] | None:
    """What a directory's files are, by their contents, with the adapter that would read them; None without a config.

    Files that cannot be read are left to the loader, which says what is the matter.
    """
    try:
        listed = sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES and file.is_file())
        contents = {file.name: _sha256(file, store) for file in listed}
        model_type = json.loads((folder / "config.json").read_bytes())["model_type"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {"files": contents, "adapter": repr(adapters().get(model_type))}


def _sha256(file: Path, store: Store) -> str:
    """Hash of a file's contents."""
    found = file.stat()
    settled = time.time() - max(found.st_mtime, found.st_ctime) > _SETTLED
    if found.st_size < _LARGE or not settled:
        return _hashed(file)
    place = [os.fspath(file.resolve()), found.st_dev, found.st_ino]
    times = [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    key = key_of({"kind": "file", "place": place, "times": times})
    return store.once(
        key,
        lambda: _hashed(file),
        pack=lambda digest: Entry({}, {"sha256": digest}),
        unpack=lambda entry: str(entry.meta["sha256"]),
    )


def _hashed(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()

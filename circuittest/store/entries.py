"""One entry as bytes: a safetensors file whose metadata holds JSON and a checksum over everything.

::

    8 bytes  length of the header, little-endian
    header   {"__metadata__": {"checksum", "format", "key", "meta"}, "<array>": {"dtype", "shape", "data_offsets"}, …}
    arrays   one after the other, in the order of their names

Any safetensors reader opens it. Reading here is strict: an entry that is cut short, was changed in one bit, or lies
under another key than its own is `Damaged`, and is measured again. No pickle anywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from circuittest.errors import StoreError
from circuittest.store.keys import FORMAT, canonical

_DTYPES = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I32": "<i4",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}
_MOST_HEADER = 1 << 28
_MOST_AXIS = 1 << 40
_CHUNK = 1 << 24

#: Arrays of more bytes than this stay in the file and are mapped, where there is a file.
MAPPED = 1 << 27


class Damaged(StoreError):
    """An entry that is not what was written."""


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class Entry:
    """Arrays by name, and what belongs to them in plain JSON types."""

    arrays: Mapping[str, NDArray[Any]]
    meta: Mapping[str, Any] = field(default_factory=dict)


def chunks(key: str, entry: Entry) -> Iterator[bytes | memoryview]:
    """The bytes of an entry, in pieces; equal entries are equal bytes.

    Raises
    ------
    StoreError
        For arrays of a type that safetensors has no name for, and for a `meta` that JSON cannot hold.
    """
    names = sorted(entry.arrays)
    arrays = [np.ascontiguousarray(entry.arrays[name]) for name in names]
    header: dict[str, Any] = {}
    start = 0
    for name, array in zip(names, arrays, strict=True):
        if name == "__metadata__" or array.dtype not in _NAMES:
            raise StoreError(f"the store cannot keep {name!r}", f"it is an array of {array.dtype}")
        # an array without axes becomes one of one entry under ascontiguousarray
        shape = list(np.shape(entry.arrays[name]))
        end = start + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": shape, "data_offsets": [start, end]}
        start = end
    try:
        meta = json.dumps(dict(entry.meta), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise StoreError("the store cannot keep what belongs to a table", str(error)) from error
    contents = {name: _digest(array) for name, array in zip(names, arrays, strict=True)}
    header["__metadata__"] = {
        "checksum": _checksum(key, meta, header, contents),
        "format": str(FORMAT),
        "key": key,
        "meta": meta,
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for array in arrays:
        yield array.reshape(-1).view(np.uint8).data


def read(file: BinaryIO, key: str, *, path: Path | None = None) -> Entry:
    """The entry that a file holds.

    Parameters
    ----------
    path:
        Where the file lies, if large arrays may be mapped from there.

    Raises
    ------
    Damaged
        Where it is not the whole entry of this key.
    OSError
        As reading raises it.
    """
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _MOST_HEADER):
        raise Damaged("an entry of the store is cut short", f"{size} bytes")
    header = _parsed(file.read(length))
    notes = header.pop("__metadata__", None)
    if not isinstance(notes, dict) or notes.get("format") != str(FORMAT) or notes.get("key") != key:
        raise Damaged("an entry of the store is another's", str(notes)[:80])
    arrays: dict[str, NDArray[Any]] = {}
    contents = {}
    start = 0
    for name in sorted(header):
        dtype, shape, end = _place(name, header[name], start, size - 8 - length)
        if path is not None and end - start > MAPPED:
            raw: NDArray[Any] = np.memmap(
                path, np.uint8, mode="r", offset=8 + length + start, shape=(end - start,)
            )
        else:
            raw = np.empty(end - start, dtype=np.uint8)
            file.seek(8 + length + start)
            if _fill(file, raw) != end - start:
                raise Damaged("an entry of the store is cut short", f"in {name!r}")
        contents[name] = _digest(raw)
        try:
            arrays[name] = raw.view(dtype).reshape(shape)
        except ValueError as error:  # no entries, along axes that are too long together
            raise Damaged("an entry of the store has a header that contradicts it", str(error)) from error
        start = end
    if start != size - 8 - length:
        raise Damaged("an entry of the store is longer than its arrays")
    meta = notes.get("meta")
    if not isinstance(meta, str) or notes.get("checksum") != _checksum(key, meta, header, contents):
        raise Damaged("an entry of the store was changed", "its checksum is another")
    found = _parsed(meta)
    return Entry(arrays, found)


def _parsed(text: bytes | str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged("an entry of the store has no header", str(error)) from error
    if not isinstance(found, dict):
        raise Damaged("an entry of the store has no header", f"it is a {type(found).__name__}")
    return found


def _place(name: str, info: Any, start: int, room: int) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Type, shape and end of an array that begins at `start`, checked."""
    if isinstance(info, dict) and set(info) == {"dtype", "shape", "data_offsets"}:
        code, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
        whole = isinstance(shape, list) and all(type(n) is int and 0 <= n <= _MOST_AXIS for n in shape)
        if whole and isinstance(code, str) and code in _DTYPES and len(shape) <= 8:
            dtype = np.dtype(_DTYPES[code])
            count = 1
            for n in shape:
                count *= n
            end = start + count * dtype.itemsize
            if offsets == [start, end] and end <= room:
                return dtype, tuple(shape), end
    raise Damaged("an entry of the store has a header that contradicts it", f"at {name[:40]!r}")


def _fill(file: BinaryIO, raw: NDArray[np.uint8]) -> int:
    view, got = raw.data, 0
    while got < len(raw):
        part = file.read(min(_CHUNK, len(raw) - got))
        if not part:
            break
        view[got : got + len(part)] = part
        got += len(part)
    return got


def _digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def _checksum(key: str, meta: str, header: Mapping[str, Any], contents: Mapping[str, str]) -> str:
    shapes = {name: [info["dtype"], info["shape"]] for name, info in header.items()}
    whole = canonical({"key": key, "meta": meta, "arrays": shapes, "contents": dict(contents)})
    return hashlib.sha256(whole.encode("ascii")).hexdigest()

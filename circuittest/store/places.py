"""Where entries lie: a directory of this machine, or whatever an fsspec URL names.

::

    ROOT/v1/ab/ab….safetensors   entries, by the first two digits of their keys
    ROOT/tmp/                    entries being written; each is renamed when it is whole
    ROOT/locks/                  one file for each key that is being computed

Nothing outside of these three folders is read, written or removed, and in them only names that have this form.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import unquote, urlsplit

from circuittest.errors import StoreError, UsageError
from circuittest.store.entries import Entry, chunks, read
from circuittest.store.keys import is_key

_VERSION, _SUFFIX = "v1", ".safetensors"
#: Protocols of places without folders, where making one could make a bucket that nobody asked for.
_FLAT = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "hf"})
#: Seconds after which what a killed process left behind is swept up.
_LEFT = 24 * 3600


@dataclass(frozen=True, order=True)
class Kept:
    """An entry that lies there: when it was last used (seconds), its key and its size in bytes."""

    used: float
    key: str
    size: int


class Place(Protocol):
    """What a store needs of the place where its entries lie. All methods may raise OSError."""

    def read(self, key: str) -> Entry | None:
        """The entry; None where there is none. Raises Damaged."""

    def write(self, key: str, entry: Entry) -> int:
        """Put an entry there, whole or not at all; its size in bytes."""

    def remove(self, key: str) -> None:
        """Take an entry away, where there is one."""

    def entries(self) -> Iterator[Kept]:
        """What lies there."""

    def alone(self, key: str, *, waiting: Any = None) -> Any:
        """A context in which nobody else computes this key; gives False where that cannot be had."""

    def sweep(self) -> None:
        """Take away what killed processes left."""


class Local:
    """A directory. It is made by the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.root / _VERSION / key[:2] / f"{key}{_SUFFIX}"

    def read(self, key: str) -> Entry | None:
        """The entry, marked as used just now; None where there is none."""
        path = self.path(key)
        try:
            with path.open("rb") as file:
                found = read(file, key, path=path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with suppress(OSError):  # a store that may only be read
            os.utime(path)
        return found

    def write(self, key: str, entry: Entry) -> int:
        """Write beside the final place and rename: no reader ever sees half an entry, whoever is killed when."""
        path, folder = self.path(key), self.root / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = folder / f"{key}.{os.getpid()}.{secrets.token_hex(4)}"
        size = 0
        try:
            # Not synchronised to the disk: after a loss of power the checksum tells a torn entry, and it is made again.
            with beside.open("xb") as file:
                for chunk in chunks(key, entry):
                    size += file.write(chunk)
            beside.replace(path)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
        return size

    def remove(self, key: str) -> None:
        """Take an entry away; one that another process has open stays readable for it."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self.path(key).unlink()

    def entries(self) -> Iterator[Kept]:
        """Every file that has an entry's name, in no order."""
        top = self.root / _VERSION
        for folder in _listed(top):
            for file in _listed(top / folder.name) if folder.is_dir(follow_symlinks=False) else ():
                key = file.name.removesuffix(_SUFFIX)
                if not (is_key(key) and file.name != key and key.startswith(folder.name)):
                    continue
                with suppress(FileNotFoundError):  # evicted meanwhile
                    found = file.stat(follow_symlinks=False)
                    yield Kept(found.st_mtime, key, found.st_size)

    @contextmanager
    def alone(self, key: str, *, waiting: Any = None) -> Iterator[bool]:
        """Hold the key's lock, waiting for whoever holds it. `waiting` is called once where that takes a while.

        It is a lock of the operating system, which falls when its process ends, however it ends: nothing has to expire.
        """
        from filelock import FileLock, Timeout

        folder = self.root / "locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / f"{key}.lock")
            try:
                lock.acquire(blocking=False)
            except Timeout:
                if waiting is not None:
                    waiting()
                lock.acquire(poll_interval=0.02)
        except (OSError, NotImplementedError):  # may only be read, or cannot be locked
            yield False
            return
        try:
            yield True
        finally:
            with suppress(OSError):
                lock.release()

    def sweep(self) -> None:
        """Remove half-written files and unused locks that are a day old."""
        old = time.time() - _LEFT
        for part in ("tmp", "locks"):
            for file in _listed(self.root / part):
                name = file.name.partition(".")[0]
                with suppress(OSError):
                    if is_key(name) and file.stat(follow_symlinks=False).st_mtime < old:
                        os.unlink(file.path)


class Remote:
    """A folder behind an fsspec URL. Writers are not kept from computing the same thing twice; results are the same."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise UsageError(
                f"a store at {url}", "fsspec is not installed", "run: pip install circuittest[store]"
            ) from None
        self._url = url
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:  # no such protocol, or one whose package is missing
            raise UsageError(
                f"a store at {url}", str(error), "install what serves such URLs, or name a directory"
            ) from None

        protocols = self._files.protocol
        self._flat = not _FLAT.isdisjoint([protocols] if isinstance(protocols, str) else protocols)

    def __str__(self) -> str:
        parts = urlsplit(self._url)  # without a user's name or password
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _path(self, key: str) -> str:
        return f"{self._root}/{_VERSION}/{key[:2]}/{key}{_SUFFIX}"

    def read(self, key: str) -> Entry | None:
        """The entry, or None."""
        import io

        try:
            with _as_oserror():
                content = self._files.cat_file(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return read(cast(BinaryIO, io.BytesIO(content)), key)

    def write(self, key: str, entry: Entry) -> int:
        """Write under another name, then move."""
        content = b"".join(bytes(chunk) for chunk in chunks(key, entry))
        beside = f"{self._root}/tmp/{key}.{os.getpid()}.{secrets.token_hex(4)}"
        path = self._path(key)
        with _as_oserror():
            try:
                if not self._flat:
                    self._files.makedirs(f"{self._root}/tmp", exist_ok=True)
                    self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(beside, content)
                self._files.mv(beside, path)
            except BaseException:
                with suppress(Exception):
                    self._files.rm_file(beside)
                raise
        return len(content)

    def remove(self, key: str) -> None:
        """Take an entry away."""
        with suppress(FileNotFoundError), _as_oserror():
            self._files.rm_file(self._path(key))

    def entries(self) -> Iterator[Kept]:
        """Every file that has an entry's name; used is when it was written, where the place tells."""
        with _as_oserror():
            try:
                found = self._files.find(f"{self._root}/{_VERSION}", detail=True)
            except FileNotFoundError:
                return
        for path, info in sorted(found.items()):
            key = path.rpartition("/")[2].removesuffix(_SUFFIX)
            if is_key(key) and path.endswith(_SUFFIX):
                yield Kept(_seconds(info), key, int(info.get("size") or 0))

    @contextmanager
    def alone(self, key: str, *, waiting: Any = None) -> Iterator[bool]:
        """No locks here."""
        yield False

    def sweep(self) -> None:
        """Nothing: lifetimes there are the bucket's own business."""


def place_of(root: str | os.PathLike[str]) -> Local | Remote:
    """A directory, or what a URL (``s3://…``, ``memory://…``, ``file:///…``) names.

    Raises
    ------
    UsageError
        Where a file lies at the path, or nothing here serves such a URL.
    """
    text = os.fspath(root)
    if "://" in text:
        parts = urlsplit(text)
        if not parts.scheme:
            raise UsageError(
                f"a store at {text}", "the URL names no protocol", "write file://, s3:// or a path"
            )
        if parts.scheme != "file":
            return Remote(text)
        text = unquote(parts.path)
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise UsageError(f"{text} cannot be the store", "there is a file of that name", "name a directory")
    return Local(path.absolute())


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _seconds(info: dict[str, Any]) -> float:
    for name in ("mtime", "LastModified", "last_modified", "modified", "created"):
        moment = info.get(name)
        if isinstance(moment, (int, float)):
            return float(moment)
        if isinstance(moment, datetime):
            return moment.timestamp()
    return 0.0


@contextmanager
def _as_oserror() -> Iterator[None]:
    """Every backend has errors of its own; here they are all trouble with a file."""
    try:
        yield
    except (OSError, StoreError):
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error

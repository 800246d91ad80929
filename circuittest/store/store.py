"""Store: what was measured, by a hash of everything that determined it.

A store makes runs faster and never wrong: whatever is the matter with it (full, read-only, gone, damaged), it is said
once in the log, and the measurement goes on without it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from circuittest.errors import StoreError, UsageError
from circuittest.store.entries import Damaged, Entry
from circuittest.store.keys import is_key
from circuittest.store.places import Kept, place_of

log = logging.getLogger(__name__)

#: Bytes that a directory may hold before the entries used longest ago are removed.
CAP = 8 << 30
_AFTER = 0.9  # of the cap: what is left after evicting, so that it is not for every entry

T = TypeVar("T")


@dataclass(frozen=True)
class Info:
    """What a store holds. `oldest` and `newest` are when entries were last used, in seconds since 1970."""

    root: str
    entries: int
    bytes: int
    cap: int | None
    oldest: float | None
    newest: float | None


class Store:
    """A content-addressed store in a directory or behind an fsspec URL; see docs/store.md.

    Any number of threads and processes may use one root at once.

    Parameters
    ----------
    root:
        A path, or a URL; made by the first write.
    cap:
        Bytes it may hold; None: no limit. Not applied to URLs. While several processes write, it may be exceeded
        until one of them looks at the sizes again.

    Attributes
    ----------
    reads, computed:
        How many entries were found here, and how many had to be computed, by this object.

    Raises
    ------
    UsageError
        For a root that cannot be a store, and a cap that is not positive.
    """

    def __init__(self, root: str | os.PathLike[str], *, cap: int | None = CAP) -> None:
        if cap is not None and cap < 1:
            raise UsageError(f"a store of {cap} bytes", "", "give a positive number of bytes, or None")
        self._place = place_of(root)
        self.cap = cap if hasattr(self._place, "root") else None
        self.reads = self.computed = 0
        self._told: set[str] = set()
        self._writes = True
        self._room: float | None = None  # bytes that may be written before looking at the sizes again
        self._held = threading.local()

    def __repr__(self) -> str:
        return f"Store({str(self._place)!r})"

    # Entries ----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        """The entry of a key; None where there is none, or only a damaged one, which is then removed."""
        _check(key)
        try:
            found = self._place.read(key)
        except Damaged as error:
            log.warning("%s; it is measured again (%s)", error.what, key[:12])
            with self._forgiving("remove a damaged entry from"):
                self._place.remove(key)
            return None
        except (OSError, MemoryError) as error:
            self._tell("read", error)
            return None
        if found is not None:
            self.reads += 1
        return found

    def put(self, key: str, arrays: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> bool:
        """Keep an entry, whole or not at all; False where it could not be kept.

        Raises
        ------
        StoreError
            For arrays whose type has no name in safetensors.
        """
        _check(key)
        size = sum(array.nbytes for array in arrays.values())
        if self.cap is not None and size > self.cap:
            self._tell("keep everything in", StoreError(f"{size} bytes are more than it may hold"))
            return False
        if not self._writes:
            return False
        try:
            size = self._place.write(key, Entry(arrays, meta or {}))
        except OSError as error:
            self._writes = False  # full, read-only or gone: trying again for every entry would help nobody
            self._tell("write to", error, "; results of this session are not kept")
            return False
        self._evict(key, size)
        return True

    def once(
        self,
        key: str,
        make: Callable[[], T],
        *,
        pack: Callable[[T], Entry | None],
        unpack: Callable[[Entry], T],
    ) -> T:
        """What is kept under a key; made and kept where there is none.

        Of several processes that ask at once, one makes it and the others wait and read. A process that is killed
        meanwhile holds up nobody: its lock falls with it. An entry that `unpack` refuses with ValueError, KeyError or
        TypeError is made again. What `make` raises passes through, and nothing is kept; nor is that for which `pack`
        gives None.
        """
        found = self._unpacked(key, unpack)
        if found is not None:
            return found[0]
        with self._alone(key) as alone:
            found = self._unpacked(key, unpack) if alone else None
            if found is not None:
                return found[0]
            made = make()
            self.computed += 1
            try:
                entry = pack(made)
                if entry is not None:
                    self.put(key, entry.arrays, entry.meta)
            except StoreError as error:
                self._tell("keep everything in", error)
            return made

    def _unpacked(self, key: str, unpack: Callable[[Entry], T]) -> tuple[T] | None:
        entry = self.get(key)
        if entry is None:
            return None
        try:
            return (unpack(entry),)
        except (ValueError, KeyError, TypeError) as error:
            self.reads -= 1
            log.warning("an entry of the store does not fit: %s; it is measured again (%s)", error, key[:12])
            return None

    @contextmanager
    def _alone(self, key: str) -> Iterator[bool]:
        held: set[str] = self._held.__dict__.setdefault("keys", set())
        if key in held:  # made of itself: whoever waited here would wait for ever
            yield False
            return
        held.add(key)
        try:
            with self._place.alone(key, waiting=lambda: self._waiting(key)) as alone:
                yield alone
        finally:
            held.discard(key)

    def _waiting(self, key: str) -> None:
        log.info("another process is computing what is asked for here; waiting for it (%s)", key[:12])

    # The whole --------------------------------------------------------------------------------------------------

    def info(self) -> Info:
        """Count what is there. Raises OSError where it cannot be listed."""
        found = sorted(self._place.entries())
        ends = (found[0].used, found[-1].used) if found else (None, None)
        return Info(str(self._place), len(found), sum(one.size for one in found), self.cap, *ends)

    def clear(self, *, older_than: float | None = None) -> tuple[int, int]:
        """Remove entries, or those not used for so many seconds; how many went, and their bytes.

        Raises OSError where that is not possible.
        """
        limit = None if older_than is None else time.time() - older_than
        gone = [one for one in self._place.entries() if limit is None or one.used < limit]
        for one in gone:
            self._place.remove(one.key)
        self._place.sweep()
        self._room = None
        return len(gone), sum(one.size for one in gone)

    def _evict(self, newest: str, size: int) -> None:
        """Keep within the cap: remove those used longest ago, never the one just written."""
        if self.cap is None:
            return
        if self._room is not None and size < self._room:
            self._room -= size
            return
        with self._forgiving("keep the size of"):
            self._place.sweep()
            kept = sorted(self._place.entries())
            total = sum(one.size for one in kept)
            if total > self.cap:
                for one in to_evict(kept, total - int(self.cap * _AFTER), newest):
                    self._place.remove(one.key)
                    total -= one.size
            self._room = max(0, self.cap - total) / 5

    @contextmanager
    def _forgiving(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._tell(what, error)

    def _tell(self, what: str, error: BaseException, more: str = "") -> None:
        """Say it once."""
        if what not in self._told:
            self._told.add(what)
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            log.warning("cannot %s the store %s: %s%s", what, self._place, reason, more)


def to_evict(kept: list[Kept], surplus: int, newest: str) -> list[Kept]:
    """The entries used longest ago that free so many bytes; `newest` is spared. Ties go by key."""
    chosen = []
    for one in sorted(kept):
        if surplus <= 0:
            break
        if one.key != newest:
            chosen.append(one)
            surplus -= one.size
    return chosen


def _check(key: str) -> None:
    if not is_key(key):
        raise UsageError(f"{key!r} is no key of a store", "", "make it with circuittest.store.key_of")

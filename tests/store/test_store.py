"""The store: hits, misses, eviction, and everything that can be the matter with a directory."""

from __future__ import annotations

import errno
import logging
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from circuittest.errors import UsageError
from circuittest.store import Entry, Store, key_of
from circuittest.store.places import Kept
from circuittest.store.store import to_evict

KEYS = [key_of({"n": n}) for n in range(20)]


def once(store, key, make):
    return store.once(
        key, make, pack=lambda x: Entry({"x": np.array(x)}), unpack=lambda entry: int(entry.arrays["x"])
    )


def fail():
    raise AssertionError("computed again")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def files(store):
    return sorted(
        path.relative_to(store._place.root) for path in store._place.root.rglob("*") if path.is_file()
    )


def test_nothing_is_made_before_the_first_write(store):
    assert store.get(KEYS[0]) is None
    assert not store._place.root.exists()
    assert (store.info().entries, store.info().bytes, store.info().oldest) == (0, 0, None)
    assert store.clear() == (0, 0)


def test_what_is_put_is_got(store):
    assert store.put(KEYS[0], {"a": np.arange(3.0)}, {"b": 1})
    again = Store(store._place.root).get(KEYS[0])
    assert again.arrays["a"].tolist() == [0.0, 1.0, 2.0]
    assert again.meta == {"b": 1}
    assert store.get(KEYS[1]) is None
    assert files(store) == [store._place.path(KEYS[0]).relative_to(store._place.root)]


@pytest.mark.parametrize("key", ["", "x", "../../etc/passwd", KEYS[0].upper(), KEYS[0][:-1]])
def test_only_keys_are_keys(store, key):
    with pytest.raises(UsageError, match="no key of a store"):
        store.get(key)
    with pytest.raises(UsageError, match="no key of a store"):
        store.put(key, {})


def test_once_makes_it_once(store):
    assert once(store, KEYS[0], lambda: 7) == 7
    assert once(store, KEYS[0], fail) == 7
    assert once(Store(store._place.root), KEYS[0], fail) == 7
    assert (store.reads, store.computed) == (1, 1)


def test_what_making_raises_passes_through_and_nothing_is_kept(store):
    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(store, KEYS[0], stopped)
    assert store.get(KEYS[0]) is None
    assert once(store, KEYS[0], lambda: 7) == 7


def test_an_entry_made_of_another_of_the_same_key_waits_for_nobody(store):
    assert once(store, KEYS[0], lambda: once(store, KEYS[0], lambda: 3) + 1) == 4


def test_what_cannot_be_kept_is_said_and_used(store, caplog):
    made = store.once(
        KEYS[0], lambda: "x", pack=lambda x: Entry({"x": np.array([x])}), unpack=lambda entry: "y"
    )
    assert made == "x"
    assert "cannot keep everything in the store" in caplog.text


# Damage


@pytest.mark.parametrize("how", ["torn", "changed", "empty", "another's", "no header"])
def test_a_damaged_entry_is_said_removed_and_made_again(store, how, caplog):
    once(store, KEYS[0], lambda: 7)
    path = store._place.path(KEYS[0])
    content = path.read_bytes()
    once(store, KEYS[1], lambda: 8)
    damaged = {
        "torn": content[: len(content) // 2],
        "changed": content[:-1] + bytes([content[-1] ^ 1]),
        "empty": b"",
        "another's": store._place.path(KEYS[1]).read_bytes(),
        "no header": b"not at all what is written here",
    }
    path.write_bytes(damaged[how])
    with caplog.at_level(logging.WARNING):
        assert store.get(KEYS[0]) is None
    assert "measured again" in caplog.text
    assert not path.exists()
    assert once(store, KEYS[0], lambda: 7) == 7
    assert path.read_bytes() == content


def test_an_entry_that_does_not_fit_is_made_again(store, caplog):
    store.put(KEYS[0], {"y": np.array(1)})
    assert once(store, KEYS[0], lambda: 7) == 7
    assert "does not fit" in caplog.text
    assert once(store, KEYS[0], fail) == 7


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_interrupt_while_writing_leaves_nothing_half_written(store, monkeypatch, at):
    from circuittest.store import places

    real = places.chunks

    def interrupted(key, entry):
        for number, chunk in enumerate(real(key, entry)):
            if number == at:
                raise KeyboardInterrupt
            yield chunk

    monkeypatch.setattr(places, "chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put(KEYS[0], {"a": np.zeros(9), "b": np.zeros(9)})
    monkeypatch.undo()
    assert files(store) == []
    assert store.get(KEYS[0]) is None


def test_an_interrupt_while_renaming_leaves_nothing(store, monkeypatch):
    def interrupted(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(store._place.root), "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put(KEYS[0], {"a": np.zeros(9)})
    assert files(store) == []


# Places that are no good


def broken(monkeypatch, code):
    def write(self, *args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("circuittest.store.places.Local.write", write)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT])
def test_a_store_that_cannot_be_written_to_is_said_once_and_measuring_goes_on(
    store, monkeypatch, caplog, code
):
    once(store, KEYS[0], lambda: 7)
    broken(monkeypatch, code)
    assert [once(store, key, lambda: 8) for key in KEYS[1:4]] == [8, 8, 8]
    assert once(store, KEYS[0], fail) == 7  # what is there is still read
    assert caplog.text.count("cannot write to the store") == 1
    assert os.strerror(code) in caplog.text
    assert "not kept" in caplog.text


def test_a_root_below_a_file(tmp_path, caplog):
    (tmp_path / "file").write_text("mine")
    store = Store(tmp_path / "file" / "store")
    assert once(store, KEYS[0], lambda: 7) == 7
    assert "cannot write to the store" in caplog.text
    assert (tmp_path / "file").read_text() == "mine"


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="there is a file of that name"):
        Store(tmp_path / "file")


def test_a_directory_that_may_only_be_read(store, monkeypatch, caplog):
    once(store, KEYS[0], lambda: 7)
    read_only = Store(store._place.root)

    def refused(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("mkdir", "replace", "unlink"):
        monkeypatch.setattr(type(store._place.root), name, refused)
    monkeypatch.setattr(os, "utime", refused)
    assert once(read_only, KEYS[0], fail) == 7
    assert once(read_only, KEYS[1], lambda: 8) == 8
    assert caplog.text.count("Permission denied") == 1


def test_a_root_that_vanishes(store, caplog):
    import shutil

    once(store, KEYS[0], lambda: 7)
    shutil.rmtree(store._place.root)
    assert once(store, KEYS[0], lambda: 7) == 7
    assert once(store, KEYS[0], fail) == 7
    assert caplog.text == ""


def test_an_entry_that_cannot_be_read_is_made_again(store, monkeypatch, caplog):
    once(store, KEYS[0], lambda: 7)

    def unreadable(self, key):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("circuittest.store.places.Local.read", unreadable)
    assert [once(store, KEYS[0], lambda: 7) for _ in range(3)] == [7, 7, 7]
    assert caplog.text.count("cannot read the store") == 1


# Size


def sized(store, key, when, n=100):
    store.put(key, {"a": np.zeros(n)})
    os.utime(store._place.path(key), (when, when))


def test_what_was_used_longest_ago_goes_first(tmp_path):
    store = Store(tmp_path, cap=5000)
    size = None
    for number in range(4):
        sized(store, KEYS[number], 1000 + number)
        size = size or store.info().bytes
    store.cap, store._room = 4 * size, None
    assert store.get(KEYS[0]) is not None  # now it was used last
    store.put(KEYS[4], {"a": np.zeros(100)})
    kept = {one.key for one in store._place.entries()}
    assert kept == {KEYS[0], KEYS[3], KEYS[4]}


def test_an_entry_larger_than_the_cap_is_not_kept(tmp_path, caplog):
    store = Store(tmp_path, cap=500)
    assert not store.put(KEYS[0], {"a": np.zeros(100)})
    assert store.info().entries == 0
    assert "more than it may hold" in caplog.text


def test_the_cap_holds_over_many_writes(tmp_path):
    store = Store(tmp_path, cap=20_000)
    for key in KEYS:
        store.put(key, {"a": np.zeros(300)})
        assert store.info().bytes <= 20_000
    assert store.info().entries >= 4


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100)), max_size=12),
    st.integers(0, 600),
    st.integers(0, 12),
)
def test_eviction_frees_enough_from_the_oldest_on_and_spares_the_newest(found, surplus, newest):
    kept = [Kept(float(used), f"{number:02d}", size) for number, (used, size) in enumerate(found)]
    gone = to_evict(kept, surplus, f"{newest:02d}")
    others = sorted(one for one in kept if one.key != f"{newest:02d}")
    assert gone == others[: len(gone)]
    freed = sum(one.size for one in gone)
    assert freed >= surplus or gone == others
    assert sum(one.size for one in gone[:-1]) < max(surplus, 1)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from(["put", "get", "clear"]), st.integers(0, 5)), max_size=12))
def test_a_store_is_a_dictionary(tmp_path_factory, steps):
    store, model = Store(tmp_path_factory.mktemp("store")), {}
    for step, number in steps:
        key = KEYS[number]
        if step == "put":
            store.put(key, {"a": np.array(number)}, {"n": number})
            model[key] = number
        elif step == "clear":
            store.clear()
            model.clear()
        found = store.get(key)
        assert (None if found is None else found.meta["n"]) == model.get(key)
    assert store.info().entries == len(model)


def test_clear_leaves_what_is_not_of_the_store(store):
    root = store._place.root
    once(store, KEYS[0], lambda: 7)
    others = [
        root / "notes.txt",
        root / "v1" / "mine.safetensors",
        root / "v1" / KEYS[0][:2] / "x.safetensors",
    ]
    others.append(root / "v1" / "zz" / f"{KEYS[0]}.safetensors")
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    assert store.clear()[0] == 1
    assert all(path.read_text() == "mine" for path in others)


def test_clear_takes_what_was_not_used_for_a_while(store):
    for number in range(3):
        once(store, KEYS[number], lambda: 7)
    path = store._place.path(KEYS[1])
    os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    size = path.stat().st_size
    assert store.clear(older_than=1800) == (1, size)
    assert {one.key for one in store._place.entries()} == {KEYS[0], KEYS[2]}
    assert store.clear() == (2, 2 * size)


def test_what_killed_processes_left_is_swept_up_after_a_day(store):
    once(store, KEYS[0], lambda: 7)
    tmp = store._place.root / "tmp"
    old, young, other = tmp / f"{KEYS[1]}.1.ab", tmp / f"{KEYS[2]}.1.ab", tmp / "mine"
    for path in (old, young, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (0, 0))
    store._place.sweep()
    assert sorted(tmp.iterdir()) == sorted([young, other])


@pytest.mark.parametrize("cap", [0, -1])
def test_a_cap_is_positive(tmp_path, cap):
    with pytest.raises(UsageError):
        Store(tmp_path, cap=cap)


def test_threads_of_one_process_make_it_once(store):
    made, start = [], threading.Barrier(4)

    def make():
        made.append(1)
        return 7

    def work():
        start.wait()
        assert once(store, KEYS[0], make) == 7

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]

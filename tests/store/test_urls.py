"""Stores behind fsspec URLs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.store import Entry, Store, key_of

KEY, OTHER = key_of({"n": 1}), key_of({"n": 2})


@pytest.fixture
def memory():
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    yield "memory://store/of/mine"
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def once(store, key, make):
    return store.once(
        key, make, pack=lambda x: Entry({"x": np.array(x)}), unpack=lambda entry: int(entry.arrays["x"])
    )


def test_what_is_put_is_got(memory):
    assert Store(memory).put(KEY, {"a": np.arange(3)}, {"b": 1})
    found = Store(memory).get(KEY)
    assert found.arrays["a"].tolist() == [0, 1, 2]
    assert found.meta == {"b": 1}
    assert Store(memory).get(OTHER) is None
    info = Store(memory).info()
    assert (info.entries, info.root, info.cap) == (1, "memory://store/of/mine", None)
    assert info.oldest > 0


def test_clear(memory):
    store = Store(memory)
    assert store.clear() == (0, 0)
    once(store, KEY, lambda: 7)
    assert store.clear(older_than=3600) == (0, 0)
    assert store.clear()[0] == 1
    assert store.get(KEY) is None


def test_a_damaged_entry_is_made_again(memory, caplog):
    import fsspec

    store = Store(memory)
    once(store, KEY, lambda: 7)
    files = fsspec.filesystem("memory")
    (path,) = files.find("/store/of/mine")
    files.pipe_file(path, files.cat_file(path)[:-3])
    assert once(store, KEY, lambda: 7) == 7
    assert "measured again" in caplog.text
    assert once(store, KEY, lambda: 8) == 7


@pytest.mark.parametrize("method", ["pipe_file", "mv"])
def test_a_place_that_fails_is_said_once(memory, monkeypatch, caplog, method):
    from fsspec.implementations.memory import MemoryFileSystem

    def broken(self, *args, **kwargs):
        raise RuntimeError("no credentials")  # what backends raise has no common base

    monkeypatch.setattr(MemoryFileSystem, method, broken)
    store = Store(memory)
    assert [once(store, key, lambda: 7) for key in (KEY, OTHER)] == [7, 7]
    assert (
        caplog.text.count("cannot write to the store memory://store/of/mine: RuntimeError: no credentials")
        == 1
    )
    assert store.info().entries == 0
    monkeypatch.undo()
    import fsspec

    assert fsspec.filesystem("memory").find("/store/of/mine") == []  # nothing half-written


def test_a_place_that_cannot_be_read_is_said_once(memory, monkeypatch, caplog):
    from fsspec.implementations.memory import MemoryFileSystem

    def broken(self, *args, **kwargs):
        raise RuntimeError("gone")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", broken)
    store = Store(memory)
    assert [once(store, key, lambda: 7) for key in (KEY, OTHER)] == [7, 7]
    assert caplog.text.count("cannot read the store") == 1


def test_a_file_url_is_a_directory(tmp_path):
    store = Store((tmp_path / "a b").as_uri())
    once(store, KEY, lambda: 7)
    assert (tmp_path / "a b" / "v1").is_dir()


def test_no_password_in_what_is_shown(memory, monkeypatch):
    store = Store(memory)
    store._place._url = "s3://user:secret@host/bucket"
    assert repr(store) == "Store('s3://host/bucket')"


@pytest.mark.parametrize("url", ["nonsense://x", "://"])
def test_unknown_protocols_are_refused(url):
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match="a store at"):
        Store(url)


def test_without_fsspec_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match=r"pip install circuittest\[store\]"):
        Store("memory://x")


def test_paths_import_no_fsspec_and_no_torch(tmp_path):
    code = (
        "import sys; from circuittest.store import Store, key_of; import numpy as np; "
        f"store = Store({str(tmp_path)!r}); key = key_of({{}}); store.put(key, {{'a': np.zeros(2)}}); store.get(key); "
        "print([name for name in ('fsspec', 'torch', 'safetensors') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

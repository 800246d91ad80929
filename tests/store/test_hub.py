"""Models from the hub: known by the files of the snapshot that transformers would read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from circuittest.models import loading
from circuittest.models.lazy import LazyModel
from circuittest.store import Store
from tests.helpers.tiny import build, save

COMMIT = "0" * 40


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache with one snapshot, and a hub that says which commit is the newest; None: it cannot be reached."""
    home = tmp_path / "cache" / "models--me--tiny"
    save(build("llama"), home / "snapshots" / COMMIT)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    newest = {"commit": None}

    def ask(url, **_):
        if newest["commit"] is None:
            raise OSError("Name or service not known")
        return SimpleNamespace(commit_hash=newest["commit"])

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", ask)
    return newest


def test_a_cached_snapshot_is_known(hub, tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    first = loading.load_model("me/tiny", store=store)
    assert not isinstance(first, LazyModel)
    monkeypatch.setattr(loading, "_read", lambda *args, **kwargs: pytest.fail("a model was read"))
    second = loading.load_model("me/tiny", store=store)
    assert (second.fingerprint, second.layout, second.name) == (first.fingerprint, first.layout, "me/tiny")
    assert second.tokenizer("w5 w7")["input_ids"] == [5, 7]
    assert not second.in_memory


def test_where_the_hub_has_a_newer_commit_it_is_loaded(hub, tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    loading.load_model("me/tiny", store=store)
    read = []

    def stop(*args, **kwargs):
        read.append(kwargs["only_cached"])
        raise RuntimeError("downloading")

    monkeypatch.setattr(loading, "_read", stop)
    hub["commit"] = COMMIT
    assert isinstance(loading.load_model("me/tiny", store=store), LazyModel)
    hub["commit"] = "1" * 40
    with pytest.raises(RuntimeError, match="downloading"):
        loading.load_model("me/tiny", store=store)
    assert read == [False]

"""``circuittest store``: what it shows and removes, and what it refuses."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from circuittest.cli import main
from circuittest.commands.store import age, size
from circuittest.store import Store, key_of


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("CIRCUITTEST_STORE", str(tmp_path / "store"))
    found = Store(tmp_path / "store")
    for n in range(3):
        found.put(key_of({"n": n}), {"a": np.zeros(100)})
    path = found._place.path(key_of({"n": 0}))
    os.utime(path, (path.stat().st_mtime - 86400 * 40,) * 2)
    return found


def as_json(capsys, *args):
    assert main(["store", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["store"]


def test_info(store, capsys):
    assert main(["store", "info"]) == 0
    text = capsys.readouterr().out
    assert str(store._place) in text
    assert "3 entries, 3." in text
    assert "of at most 8.0 GB" in text
    found = as_json(capsys, "info")
    assert (found["entries"], found["root"], found["cap"]) == (3, str(store._place), 8 << 30)
    assert found["bytes"] == store.info().bytes
    assert found["newest"] - found["oldest"] > 86400 * 39


def test_clear_what_is_old_then_all(store, capsys):
    removed = as_json(capsys, "clear", "--older-than", "30d")
    assert (removed["removed"]["entries"], removed["entries"]) == (1, 2)
    assert main(["store", "clear"]) == 0
    assert "removed 2 entries" in capsys.readouterr().out
    assert as_json(capsys, "info")["entries"] == 0


def test_another_store_by_path(store, tmp_path, capsys):
    assert as_json(capsys, "info", "--store", str(tmp_path / "other"))["entries"] == 0
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["info", "--older-than", "3d"], "--older-than goes with clear"),
        (["info", "--store", ""], "there is no store"),
        (["info", "--store", "nonsense://x"], "a store at nonsense://x"),
        (["info", "--store", __file__], "there is a file of that name"),
    ],
)
def test_bad_usage(store, capsys, args, message):
    assert main(["store", *args]) == 2
    assert message in capsys.readouterr().err


def test_without_a_store(capsys, monkeypatch):
    monkeypatch.setenv("CIRCUITTEST_STORE", "off")
    assert main(["store", "info"]) == 2
    assert "CIRCUITTEST_STORE is off" in capsys.readouterr().err


def test_a_place_that_cannot_be_listed(store, capsys, monkeypatch):
    def broken(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("circuittest.store.places.Local.entries", broken)
    assert main(["store", "info"]) == 2
    assert "cannot use the store" in capsys.readouterr().err


def test_ages():
    assert [age(text) for text in ("90s", "45m", "12h", "1.5d", "2w")] == [90, 2700, 43200, 129600, 1209600]


@pytest.mark.parametrize("text", ["", "3", "d", "-1d", "3 d", "3y", "١d"])
def test_no_ages(store, capsys, text):
    with pytest.raises(SystemExit) as stopped:
        main(["store", "clear", f"--older-than={text}"])
    assert stopped.value.code == 2
    assert store.info().entries == 3


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 kB"), (3 << 29, "1.5 GB"), (5 << 40, "5120.0 GB")],
)
def test_sizes(number, text):
    assert size(number) == text

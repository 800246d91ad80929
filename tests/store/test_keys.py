"""Keys tell apart whatever differs, and nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from circuittest.errors import UsageError
from circuittest.store import key_of, keys, versions

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_order_in_which_things_are_said_does_not_matter():
    assert key_of({"a": 1, "b": {"c": (1, 2), "d": None}}) == key_of({"b": {"d": None, "c": [1, 2]}, "a": 1})


@pytest.mark.parametrize(
    "other", [{"a": 1.0}, {"a": "1"}, {"a": [1]}, {"a": True}, {"b": 1}, {"a": 1, "b": None}]
)
def test_what_differs_has_another_key(other):
    assert key_of({"a": 1}) != key_of(other)


@given(st.dictionaries(st.text(), PLAIN, max_size=4), st.dictionaries(st.text(), PLAIN, max_size=4))
def test_equal_keys_are_equal_descriptions(one, other):
    assert keys.is_key(key_of(one))
    assert (key_of(one) == key_of(other)) == (repr(_sorted(one)) == repr(_sorted(other)))


def _sorted(value):
    if isinstance(value, dict):
        return [(name, _sorted(value[name])) for name in sorted(value)]
    return [_sorted(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "value", [{1: 2}, {"a": {1, 2}}, {"a": math.nan}, {"a": [math.inf]}, {"a": object()}]
)
def test_what_json_cannot_tell_apart_is_refused(value):
    with pytest.raises(UsageError):
        key_of(value)


def test_the_code_that_measures_is_part_of_every_key(tmp_path, monkeypatch):
    assert keys.is_key(versions()["code"])
    (tmp_path / "measure").mkdir()
    (tmp_path / "measure" / "nodes.py").write_text("x = 1\n")
    monkeypatch.setattr(keys, "_MAKERS", ("measure",))
    monkeypatch.setattr(keys.resources, "files", lambda package: tmp_path)
    one = keys._code()
    (tmp_path / "measure" / "nodes.py").write_text("x = 2\n")
    other = keys._code()
    assert other != one
    (tmp_path / "measure" / "inner").mkdir()
    (tmp_path / "measure" / "inner" / "more.py").write_text("y = 1\n")
    assert keys._code() not in (one, other)


def test_versions_name_the_libraries():
    assert set(versions()) == {"format", "code", "torch", "transformers", "numpy"}
    assert all(versions().values())

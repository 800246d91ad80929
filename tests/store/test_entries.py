"""Entries: what is written is read, in any safetensors reader; what is not what was written is refused."""

from __future__ import annotations

import io
import json
import random

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load

from circuittest.errors import StoreError
from circuittest.store import Damaged, Entry, key_of
from circuittest.store.entries import chunks, read

KEY, OTHER = key_of({"a": 1}), key_of({"a": 2})
TYPES = st.sampled_from([np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.float16])
ARRAYS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
    TYPES.flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    max_size=3,
)
META = st.dictionaries(
    st.text(max_size=8),
    st.integers() | st.text(max_size=8) | st.floats(allow_nan=False, allow_infinity=False),
)


def written(entry, key=KEY):
    return b"".join(bytes(chunk) for chunk in chunks(key, entry))


def back(content, key=KEY):
    return read(io.BytesIO(content), key)


@given(ARRAYS, META)
def test_what_is_written_is_read(arrays, meta):
    found = back(written(Entry(arrays, meta)))
    assert found.meta == meta
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()


def test_equal_entries_are_equal_bytes_and_any_reader_opens_them():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    one = written(Entry({"b": values.T, "a": values}, {"x": 1}))
    assert one == written(Entry({"a": values.copy(), "b": np.ascontiguousarray(values.T)}, {"x": 1}))
    found = load(one)
    assert np.array_equal(found["a"], values)
    assert np.array_equal(found["b"], values.T)


def test_arrays_that_are_read_can_be_written_to():
    found = back(written(Entry({"a": np.zeros(3)})))
    found.arrays["a"][0] = 1.0
    assert found.arrays["a"][0] == 1.0


@pytest.mark.parametrize("bad", [np.array(["x"]), np.array([object()]), np.zeros(2, dtype=np.complex64)])
def test_types_without_a_name_in_safetensors_are_refused(bad):
    with pytest.raises(StoreError, match="cannot keep 'a'"):
        written(Entry({"a": bad}))


@pytest.mark.parametrize("meta", [{"a": float("nan")}, {"a": object()}])
def test_meta_that_json_cannot_hold_is_refused(meta):
    with pytest.raises(StoreError, match="cannot keep what belongs to a table"):
        written(Entry({}, meta))


def test_an_entry_under_another_key_is_refused():
    with pytest.raises(Damaged, match="another's"):
        back(written(Entry({"a": np.zeros(2)})), OTHER)


@pytest.mark.parametrize("end", [b"\0", b"more"])
def test_an_entry_with_something_behind_it_is_refused(end):
    with pytest.raises(Damaged):
        back(written(Entry({"a": np.zeros(2)})) + end)


def test_every_shorter_entry_is_refused():
    whole = written(Entry({"a": np.arange(3.0)}, {"b": 1}))
    for length in range(len(whole)):
        with pytest.raises(Damaged):
            back(whole[:length])


def test_every_changed_byte_is_noticed_or_changes_nothing():
    entry = Entry({"a": np.arange(4.0), "b": np.array([True, False])}, {"kind": "scores", "n": 3})
    whole = bytearray(written(entry))
    rng = random.Random(0)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= rng.randrange(1, 256)
        refused_or_equal(bytes(changed), entry)


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 1000), pytest.param(2, 100_000, marks=pytest.mark.slow, id="full")]
)
def test_mutated_entries_are_refused_or_read_as_they_were(seed, count):
    entry = Entry(
        {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(5, dtype=np.int32)}, {"kind": "x", "list": [1, 2]}
    )
    whole = written(entry)
    rng = random.Random(seed)
    refused = sum(refused_or_equal(mutated(whole, rng), entry) for _ in range(count))
    assert refused > 0.9 * count


def mutated(whole, rng):
    """Bytes replaced, cut out, doubled, swapped, or a header that was edited by someone who knows the format."""
    content = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(content)), rng.randint(1, 40)
        how = rng.randrange(6)
        if how == 0:
            content[at : at + size] = rng.randbytes(size)
        elif how == 1:
            del content[at : at + size]
        elif how == 2:
            content[at:at] = content[at : at + size]
        elif how == 3:
            content[at:at] = rng.choice([b"[" * 5000, b"{", b'"', b"NaN", b"1e999", b"\xff\xfe", b"9" * 5000])
        elif how == 4:
            content[:8] = rng.choice([0, 1, 8, len(content), 2**40, 2**64 - 1]).to_bytes(8, "little")
        else:
            content = edited(content, rng)
        content = content or bytearray(b"\0")
    return bytes(content)


def edited(content, rng):
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
        name = rng.choice(sorted(header))
        part = rng.choice(sorted(header[name]))
        header[name][part] = rng.choice(
            [None, -1, [], [0, 0], [-1, 8], [2**70], "F64", "U8", {}, 1.5, [True], "x", [[1]]]
        )
    except (ValueError, RecursionError, TypeError, IndexError):
        return content
    text = json.dumps(header).encode()
    return bytearray(len(text).to_bytes(8, "little") + text + content[8 + length :])


def refused_or_equal(content, entry):
    """1 where the entry is refused; where it is read, it is what was written."""
    try:
        found = back(content)
    except Damaged:
        return 1
    assert found.meta == entry.meta
    assert found.arrays.keys() == entry.arrays.keys()
    assert all(np.array_equal(found.arrays[name], array) for name, array in entry.arrays.items())
    return 0

"""Files that people or accidents changed: read, or refused by an error of the documented classes; nothing else escapes.

250 of each kind in quick runs, 25,000 in full ones. Locks are also changed by somebody who knows
the checksum. Entries of the store are in tests/store/test_entries.py.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from circuittest.circuit import Circuit
from circuittest.errors import CircuitError, CircuittestError, SpecError
from circuittest.lock import Lock, _checksum
from circuittest.sweep import Series, load_series
from tests.spec.test_fuzz import GOOD, SNIPPETS, check, paths
from tests.test_lock import LAYOUT, lock

COUNTS = [250, pytest.param(25_000, marks=pytest.mark.slow, id="full")]
SERIES = """\
circuittest: 1
models: {small: [a@step1, a@step2], large: [b@step1]}
specs: [a.circuit.yaml]
times: {small: [1, 2], large: [1.5]}
half_life: 2.0
roles: [copy, induction]
resamples: 10
"""
VALUES: list[Any] = [None, True, 0, -1, 10**40, 1.5, -0.0, 1e308, "", "x", "L0.H9", "\ud800", [], {}, [[]], [1, "a"],
                     {"units": []}, "9" * 5000, [0] * 50]  # fmt: skip


def text_changed(text: str, rng: random.Random) -> bytes:
    """Bytes replaced, cut out, doubled, or snippets put in."""
    content = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(content) + 1), rng.randint(0, 12)
        how = rng.randrange(5)
        if how == 0:
            content[at : at + size] = rng.randbytes(size)
        elif how == 1:
            del content[at : at + size]
        elif how == 2:
            content[at:at] = content[at : at + size * 10]
        elif how == 3:
            content[at : at + size] = rng.choice(SNIPPETS).encode("utf-8", "surrogatepass")
        else:
            content[at:at] = rng.choice(
                [b"[" * 9000, b"{" * 60, b'{"a":' * 3000, b"NaN", b"1e999", b"9" * 5000]
            )
    return bytes(content)


def value_changed(data: Any, rng: random.Random) -> str:
    """One or two values of a tree replaced, or a key taken away."""
    for _ in range(rng.randint(1, 2)):
        *way, last = rng.choice(paths(data)[1:] or [("x",)])
        place = data
        for part in way:
            place = place[part]
        if isinstance(place, dict) and rng.random() < 0.2:
            del place[last]
        elif place:
            place[last] = copy.deepcopy(rng.choice(VALUES))
    return json.dumps(data)


def refused(use: Callable[[], object], known: type[CircuittestError]) -> bool:
    try:
        use()
    except known as error:
        assert str(error)  # noqa: PT017
        return True
    return False


@pytest.mark.parametrize("count", COUNTS)
def test_specs(tmp_path: Path, count: int) -> None:
    rng = random.Random(count)
    for _ in range(count):
        check(text_changed(GOOD, rng).decode("utf-8", "surrogateescape"), tmp_path)


@pytest.mark.parametrize("count", COUNTS)
def test_locks(tmp_path: Path, count: int) -> None:
    rng, path, whole = random.Random(count), tmp_path / "x.circuit.lock", lock().render()
    path.write_text(whole)
    as_it_was = Lock.load(path).digest
    seen = 0
    for place in range(count):
        if place % 2:
            path.write_bytes(text_changed(whole, rng))
        else:
            body = json.loads(value_changed({**json.loads(whole), "schema": None, "checksum": None}, rng))
            body = {key: value for key, value in body.items() if key not in ("schema", "checksum")}
            sums = {"schema": json.loads(whole)["schema"], "checksum": _checksum(body)}
            path.write_text(json.dumps({**body, **sums}))
        if refused(lambda: Lock.load(path), SpecError):
            seen += 1
        elif place % 2:
            assert Lock.load(path).digest == as_it_was
    assert seen > 0.4 * count


@pytest.mark.parametrize("count", COUNTS)
def test_circuit_files(tmp_path: Path, count: int) -> None:
    rng, path = random.Random(count), tmp_path / "c.json"
    Circuit.of(["L0.H1", "L1.MLP"], layout=LAYOUT, name="c", origin={"top": "20%"}).save(path)
    whole = path.read_text()
    seen = 0
    for place in range(count):
        if place % 2:
            path.write_bytes(text_changed(whole, rng))
        else:
            path.write_text(value_changed(json.loads(whole), rng))
        if refused(lambda: Circuit.load(path), CircuitError):
            seen += 1
        else:
            found = Circuit.load(path)
            if found.layout is not None:
                found.layout.check(found.units)
    assert seen > 0.3 * count


@pytest.mark.parametrize("count", COUNTS)
def test_series(tmp_path: Path, count: int) -> None:
    rng, path = random.Random(count), tmp_path / "series.yaml"
    (tmp_path / "a.circuit.yaml").touch()
    for _ in range(count):
        path.write_bytes(text_changed(SERIES, rng))
        try:
            found = load_series(path)
        except SpecError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            assert isinstance(found, Series)
            assert len(set(found.models)) == len(found.models) == sum(len(places) for _, places in found.runs)
            assert found.times is None or len(found.times) == len(found.models)

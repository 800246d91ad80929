"""Several processes on one store: each thing is made once, and a killed process holds up nobody."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from circuittest.store import Entry, Store, key_of

WORKER = """
import os, sys
import numpy as np
from circuittest.store import Entry, Store, key_of

store, made = Store(sys.argv[1]), sys.argv[2]
sys.stdin.readline()  # all begin together
for n in range(int(sys.argv[3])):
    def make():
        with open(made, "a") as file:
            file.write(f"{n}\\n")
        return np.full(1000, n)
    found = store.once(
        key_of({"n": n}), make, pack=lambda x: Entry({"x": x}), unpack=lambda entry: entry.arrays["x"]
    )
    if found.tolist() != [n] * 1000:
        sys.exit(3)
"""
WRITER = """
import sys
import numpy as np
from circuittest.store import Store, key_of

store = Store(sys.argv[1], cap=200_000)
for n in range(60):
    store.put(key_of({"n": n % 20}), {"x": np.full(2000, n % 20)})
    found = store.get(key_of({"n": (n * 7) % 20}))
    if found is not None and found.arrays["x"].tolist() != [(n * 7) % 20] * 2000:
        sys.exit(3)
"""
HOLDER = """
import sys
import numpy as np
from circuittest.store import Entry, Store, key_of

def make():
    print("making", flush=True)
    sys.stdin.readline()

Store(sys.argv[1]).once(key_of({"n": 0}), make, pack=lambda x: Entry({}), unpack=lambda entry: None)
"""


def start(code, *args):
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_each_thing_is_made_by_one_process(tmp_path):
    made = tmp_path / "made.txt"
    workers = [start(WORKER, tmp_path / "store", made, 12) for _ in range(3)]
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert sorted(map(int, made.read_text().split())) == list(range(12))


def test_writers_that_evict_each_other_never_read_half_an_entry(tmp_path):
    workers = [start(WRITER, tmp_path / "store") for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert list((tmp_path / "store" / "tmp").iterdir()) == []
    assert 0 < Store(tmp_path / "store").info().bytes < 400_000


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no such signal here")
def test_a_killed_process_holds_up_nobody_and_leaves_nothing(tmp_path):
    holder = start(HOLDER, tmp_path)
    assert holder.stdout.readline() == "making\n"
    store, key = Store(tmp_path), key_of({"n": 0})
    with store._place.alone(key, waiting=holder.kill) as alone:  # waits, for the process is killed only then
        assert alone
        assert holder.wait() == -signal.SIGKILL
    made = store.once(key, lambda: 7, pack=lambda x: Entry({"x": np.array(x)}), unpack=lambda entry: 0)
    assert made == 7
    assert store.info().entries == 1
    assert list((tmp_path / "tmp").iterdir()) == []

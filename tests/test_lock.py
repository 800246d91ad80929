"""Lock files: the same bytes for the same measurements, and a reason for every file that cannot be used."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.errors import SpecError, UsageError
from circuittest.lock import Lock, Locked, Outcomes, Ranking, lock_path, tokenizer_digest
from circuittest.units import Layout

LAYOUT = Layout(2, 2, 2)


def lock(estimate: float = 0.5) -> Lock:
    circuit = Circuit.of(["L0.H1"], layout=LAYOUT, origin={"prompts": ["a"]})
    rng = np.random.default_rng(0)
    outcomes = Outcomes(
        ("L0.H0", "L0.H1"),
        (("L0.H0",), ("L1.H0",)),
        {"argmax": np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1], [1, 0, 1.0]])},
        {"log_prob": rng.normal(size=(4, 3)) * 1e-7},
    )
    ranking = Ranking(("L0.H0", "L0.H1"), np.array([[True, False], [False, True]]), np.array([0.1, 1 / 3]))
    return Lock(
        model={"name": "base", "fingerprint": "f" * 64, "tokenizer": "t", "dtype": "float32"},
        layout=LAYOUT,
        spec={"task": "ioi", "task_options": {}, "circuit": {"top": "20%"}},
        discover=("a", "b"),
        evaluate=("c", "d", "e"),
        circuits={"circuit": Locked(circuit, outcomes, ranking), "none": Locked(Circuit(), missing="empty")},
        claims={"reuse": {"claim": "reuse", "estimate": estimate, "interval": [0.1, None], "invalid": ""}},
        made={"torch": "2"},
    )


def test_what_is_written_reads_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "x.circuit.lock"
    lock().save(path)
    again = Lock.load(path)
    assert again.render() == lock().render() == path.read_text()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    mine, theirs = lock().circuits["circuit"], again.of(Circuit.of(["L0.H1"]))
    assert theirs is not None
    assert theirs.circuit.origin == mine.circuit.origin
    assert np.array_equal(theirs.outcomes.graded["log_prob"], mine.outcomes.graded["log_prob"])
    assert np.array_equal(theirs.ranking.inside, mine.ranking.inside)
    assert theirs.outcomes.rows("argmax").tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 0.5, 1]]
    with pytest.raises(UsageError, match="holds no outcomes in logit_diff. It has argmax, log_prob"):
        theirs.outcomes.rows("logit_diff")
    assert again.of(Circuit.of(["L1.H1"])) is None
    assert again.circuits["none"].missing == "empty"


def change(**keys: Any) -> Any:
    return lambda data: {**data, **keys}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda text: text[: len(text) // 2], "torn"),
        (lambda text: "", "torn"),
        (lambda text: "<<<<<<< HEAD\n" + text, "torn"),
        (lambda text: text.replace('"base"', '"bass"'), "changed by hand"),
        (
            lambda text: text.replace("lock/2", "lock/1"),
            "another version: its schema is 'circuittest-lock/1'",
        ),
        (lambda text: "[]", "another version"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_do(spoil: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.circuit.lock"
    path.write_text(spoil(lock().render()))
    with pytest.raises(SpecError, match=words) as caught:
        Lock.load(path, name="x.circuit.lock")
    assert str(caught.value).startswith("x.circuit.lock: ")
    assert "--circuit-update=all" in str(caught.value)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body["circuits"]["circuit"]["outcomes"]["accuracies"].update(argmax=["01"]),
        lambda body: body["circuits"]["circuit"]["outcomes"]["graded"].update(log_prob=["nan"] * 4),
        lambda body: body["circuits"]["circuit"]["ranking"].update(members="L0.H0"),
        lambda body: body["circuits"]["circuit"]["circuit"].update(units=["L9.H0"]),
        lambda body: body.update(layout={}),
        lambda body: body.update(circuits=[]),
        lambda body: body["model"].pop("dtype"),
    ],
)
def test_a_right_checksum_on_nonsense_is_no_traceback(spoil: Any, tmp_path: Path) -> None:
    from circuittest.lock import _checksum

    data = json.loads(lock().render())
    body = {key: value for key, value in data.items() if key not in ("schema", "checksum")}
    spoil(body)
    path = tmp_path / "x.circuit.lock"
    path.write_text(json.dumps({"schema": data["schema"], "checksum": _checksum(body), **body}))
    with pytest.raises(SpecError, match="the lock is malformed"):
        Lock.load(path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        lock().save(tmp_path / "none" / "x.circuit.lock")
    with pytest.raises(SpecError, match="cannot be read"):
        Lock.load(tmp_path / "x.circuit.lock")


@pytest.mark.parametrize("there", [True, False])
def test_of_two_that_write_at_once_the_second_is_told(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.circuit.lock"
    if there:
        lock(0.1).save(path)
    before = path.read_bytes() if there else None
    told: list[str] = []

    def second() -> None:
        try:
            lock(0.9).save(path, over=before)
        except UsageError as error:
            told.append(str(error))

    other, replace = threading.Thread(target=second), os.replace

    def between(*places: Any) -> None:
        """The second one comes when the first has looked, and has not written yet."""
        monkeypatch.undo()
        other.start()
        other.join(0.2)
        replace(*places)

    monkeypatch.setattr("circuittest.lock.os.replace", between)
    lock(0.5).save(path, over=before)
    other.join()
    assert len(told) == 1
    assert "is not updated: another process wrote it while this one measured" in told[0]
    assert Lock.load(path).digest == lock(0.5).digest
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_where_nothing_can_be_held_a_lock_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "none"))
    lock().save(tmp_path / "x.circuit.lock", over=None)
    assert Lock.load(tmp_path / "x.circuit.lock").digest == lock().digest


def test_names_and_digests() -> None:
    assert lock_path("a/x.circuit.yaml") == Path("a/x.circuit.lock")
    vocabulary = {"a": 0, "b": 1}

    class Tokenizer:
        def get_vocab(self) -> dict[str, int]:
            return vocabulary

    first = tokenizer_digest(Tokenizer())
    vocabulary = {"b": 1, "a": 0}
    assert tokenizer_digest(Tokenizer()) == first
    vocabulary = {"b": 0, "a": 1}
    assert tokenizer_digest(Tokenizer()) != first
    assert tokenizer_digest(None) == ""


def test_mutated_files_are_refused_or_mean_what_they_say(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = lock().render().encode()
    path = tmp_path / "x.circuit.lock"
    for _ in range(300):
        spoiled = bytearray(text)
        start = int(rng.integers(len(text)))
        spoiled[start : start + int(rng.integers(0, 4))] = rng.bytes(int(rng.integers(0, 4)))
        path.write_bytes(spoiled)
        try:
            again = Lock.load(path)
        except SpecError:
            continue
        assert again.digest == lock().digest

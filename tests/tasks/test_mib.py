"""Data sets of MIB in the columns that they are published with, as JSON lines and as parquet; ARC as parquet."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from circuittest.errors import TaskError
from circuittest.tasks import as_task, prepare
from circuittest.tasks.files import read_task
from circuittest.tasks.mib import read_mib

from .toy_tokenizers import word_level

IOI = {
    "prompt": "When Mary and John went to the store, John gave a drink to",
    "template": "When {name_A} and {name_B} went to the {place}, {name_C} gave a {object} to",
    "metadata": {
        "indirect_object": "Mary",
        "subject": "John",
        "object": "drink",
        "place": "store",
        "random_c": "Ann",
    },
    "abc_counterfactual": {"prompt": "When Ann and Tom went to the store, Sue gave a drink to"},
    "s2_io_flip_counterfactual": {"prompt": "When Mary and John went to the store, Mary gave a drink to"},
}
COLORS = {
    "prompt": "A box is red. What color is a box?\nA. blue\nB. red\nAnswer:",
    "choices": {"label": ["A", "B"], "text": ["blue", "red"]},
    "answerKey": 1,
    "answerPosition_counterfactual": {
        "prompt": "A box is red. What color is a box?\nA. red\nB. blue\nAnswer:",
        "choices": {"label": ["A", "B"], "text": ["red", "blue"]},
        "answerKey": 0,
    },
    "symbol_counterfactual": {
        "prompt": "A box is red. What color is a box?\nQ. blue\nZ. red\nAnswer:",
        "choices": {"label": ["Q", "Z"], "text": ["blue", "red"]},
        "answerKey": 1,
    },
}
SUM = {
    "prompt": "The sum of 13 and 25 is ",
    "label": "38",
    "operator": "+",
    "random_counterfactual": {"prompt": "The sum of 40 and 31 is ", "label": "71"},
    "ones_carry_counterfactual": None,
}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_ioi() -> None:
    e = read_mib(IOI, "x:1")
    assert (e.answers, e.foils) == ((" Mary",), (" John",))
    assert e.counterfactual == IOI["s2_io_flip_counterfactual"]["prompt"]
    assert e.counterfactual_answers == (" John",)
    assert e.features == {"counterfactual": "s2_io_flip", "template": IOI["template"]}
    assert e.group == "John Mary"


def test_choices() -> None:
    e = read_mib(COLORS, "x:1")
    assert (e.answers, e.foils, e.counterfactual_answers) == ((" B",), (" A",), (" Z",))
    assert e.features == {"counterfactual": "symbol"}
    without = {key: value for key, value in COLORS.items() if key != "symbol_counterfactual"}
    assert read_mib(without, "x:1").counterfactual_answers == (" A",)


def test_sums_keep_their_trailing_space() -> None:
    e = read_mib(SUM, "x:1")
    assert (e.answers, e.foils, e.counterfactual_answers) == (("38",), ("71",), ("71",))
    assert e.features == {"counterfactual": "random", "operator": "+"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": 3}, r"x\.jsonl:2 has no prompt"),
        ({"metadata": {}}, r"x\.jsonl:2 has no answer"),
        ({"s2_io_flip_counterfactual": None}, r"x\.jsonl:2 has no counterfactual whose answer is known"),
        (
            {"metadata": {"indirect_object": "John", "subject": "John"}},
            r"x\.jsonl:2: prompt and s2_io_flip.*same answer",
        ),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read_task(write(tmp_path / "x.jsonl", [IOI, {**IOI, **change}]))


def test_a_file_of_them_is_a_task(tmp_path: Path) -> None:
    rows = [
        json.loads(json.dumps(IOI).replace("drink", thing)) for thing in ("drink", "ring", "snack", "ball")
    ]
    task = as_task(str(write(tmp_path / "ioi_test.jsonl", rows)))
    words = " ".join(row["prompt"] for row in rows)
    data = prepare(task, word_level(words), discover=2, evaluate=2)
    assert {item.features["counterfactual"] for item in data.evaluate} == {"s2_io_flip"}
    assert data.digest


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(
        pa.Table.from_pylist([SUM, SUM | {"prompt": "The sum of 1 and 2 is ", "label": "3"}]),
        tmp_path / "sum.parquet",
    )
    task = read_task(tmp_path / "sum.parquet")
    assert [e.answers for e in task.examples] == [("38",), ("3",)]
    assert task.place(1) == "sum.parquet:2"
    question = {
        "id": "q1",
        "question": "Why?",
        "choices": {"text": ["a", "b"], "label": ["A", "B"]},
        "answerKey": "B",
    }
    parquet.write_table(pa.Table.from_pylist([question] * 2500), tmp_path / "ARC-Easy.parquet")
    arc = read_task(tmp_path / "ARC-Easy.parquet")
    assert len(arc.questions) == 2500
    assert arc.questions[0].right == 1
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(TaskError, match="broken.parquet cannot be read as parquet"):
        read_task(tmp_path / "broken.parquet")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(TaskError, match=r"pyarrow is not installed.*circuittest\[parquet\]"):
        read_task(tmp_path / "x.parquet")

"""Tasks from files: what is read, and every mistake by its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from circuittest.errors import TaskError
from circuittest.tasks import as_task, prepare, read_task
from tests.tasks.toy_tokenizers import word_level

LINE = {
    "prompt": "The capital of France is",
    "answer": " Paris",
    "counterfactual": "The capital of Italy is",
    "counterfactual_answer": " Rome",
}


def write(path: Path, *lines: Any, encoding: str = "utf-8") -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_bytes("\n".join(texts).encode(encoding))
    return path


def test_json_lines(tmp_path: Path) -> None:
    other = {
        **LINE,
        "prompt": "La capitale du Pérou est",
        "foils": [" Rome", " Nice"],
        "features": {"long": True},
    }
    task = read_task(write(tmp_path / "capitals.jsonl", LINE, "", other))
    assert (task.name, len(task.examples)) == ("capitals.jsonl", 2)
    assert task.examples[0].answers == (" Paris",)
    assert task.examples[0].foils == (" Rome",)
    assert task.examples[1].foils == (" Rome", " Nice")
    assert task.examples[1].features == {"long": True}
    assert len(task.digest) == 16


def test_csv_keeps_spaces_splits_answers_and_makes_features_of_other_columns(tmp_path: Path) -> None:
    rows = (
        "prompt,answers,counterfactual,counterfactual_answer,continent",
        '"Well, France has", Paris| Lyon,"Well, Italy has", Rome,Europe',
    )
    (example,) = read_task(write(tmp_path / "c.csv", *rows)).examples
    assert example.prompt == "Well, France has"
    assert example.answers == (" Paris", " Lyon")
    assert example.features == {"continent": "Europe"}


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    assert len(read_task(write(tmp_path / "c.jsonl", LINE, encoding="utf-8-sig")).examples) == 1


def test_the_digest_follows_the_bytes_and_is_recorded(tmp_path: Path) -> None:
    tokenizer = word_level(" ".join(LINE.values()))
    path = str(write(tmp_path / "c.jsonl", LINE))
    first = prepare(path, tokenizer, discover=1, evaluate=0)
    second = read_task(write(tmp_path / "c.jsonl", {**LINE, "group": "g"}))
    assert first.digest == read_task(write(tmp_path / "c.jsonl", LINE)).digest != second.digest
    assert as_task(str(tmp_path / "c.jsonl")).name == "c.jsonl"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([LINE, {k: v for k, v in LINE.items() if k != "answer"}], r"c\.jsonl:2 lacks answers"),
        (
            [LINE, "", {**LINE, "anwser": " x"}],
            r"c\.jsonl:3 has an unknown key 'anwser'.*Did you mean 'answer'",
        ),
        ([LINE, "{"], r"c\.jsonl:2 is not JSON"),
        (["[1]"], r"c\.jsonl:1 is list"),
        (['{"prompt": "a", "prompt": "b"}'], r"c\.jsonl:1 is not JSON.*'prompt' is there twice"),
        ([{**LINE, "prompt": 3}], r"c\.jsonl:1: prompt is int"),
        ([{**LINE, "prompt": " "}], r"c\.jsonl:1: the prompt is empty"),
        ([{**LINE, "answer": ""}], r"c\.jsonl:1: the answer is empty"),
        ([{**LINE, "answer": []}], r"c\.jsonl:1: answers must be a text or a list"),
        ([{**LINE, "foil": " Paris"}], r"c\.jsonl:1: ' Paris' is both answer and foil"),
        ([{**LINE, "counterfactual_answer": " Paris", "foil": " Rome"}], r"c\.jsonl:1: .*the same answers"),
        (
            [LINE, {**LINE, "features": {"x": 1.5}}],
            r"c\.jsonl:2: features must map names to str, int or bool",
        ),
        ([LINE, {**LINE, "features": {"x": None}}], r"c\.jsonl:2: features"),
        ([], r"c\.jsonl holds no examples"),
        (["", " "], r"c\.jsonl holds no examples"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read_task(write(tmp_path / "c.jsonl", *lines))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["prompt,prompt", "a,b"], r"c\.csv:1 has a column 'prompt' twice"),
        (["prompt,answer", '"a\nb",c,d'], r"c\.csv:2 has 3 cells, the first line has 2"),
        (["prompt,answer", 'a,"b'], r"c\.csv:2 is not CSV"),
        (["prompt,answer,counterfactual", "a, b,c"], r"c\.csv:2 lacks counterfactual_answers"),
        (["prompt,answer"], r"c\.csv holds no examples"),
    ],
)
def test_mistakes_in_csv(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read_task(write(tmp_path / "c.csv", *lines))


def test_other_encodings_are_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with pytest.raises(TaskError, match=r"c\.jsonl:2 is not UTF-8"):
        read_task(write(path, LINE, {**LINE, "group": "é"}, encoding="latin-1"))
    with pytest.raises(TaskError, match=r"c\.jsonl:1 is UTF-16"):
        read_task(write(path, LINE, encoding="utf-16"))


def test_examples_that_a_tokenizer_cannot_use_are_named_with_their_line(tmp_path: Path) -> None:
    tokenizer = word_level(" ".join(LINE.values()))
    unknown = {
        **LINE,
        "prompt": "The capital of Italy is",
        "answer": " Roma",
        "counterfactual": "The capital of France is",
    }
    path = str(write(tmp_path / "c.jsonl", LINE, "", unknown))
    with pytest.raises(
        TaskError, match=r"1 usable.*2 were asked.*unknown-token 1; for instance c\.jsonl:3: .*<unk>"
    ):
        prepare(path, tokenizer, discover=1, evaluate=1)
    alone = str(write(tmp_path / "c.jsonl", "", unknown))
    with pytest.raises(TaskError, match=r"none of 1 examples.*for instance c\.jsonl:2: "):
        prepare(alone, tokenizer, discover=1, evaluate=1)


def test_one_prompt_with_two_answers_is_named_with_both_lines(tmp_path: Path) -> None:
    other = {**LINE, "answer": " Lyon"}
    with pytest.raises(TaskError, match=r"c\.jsonl:4 has the prompt of c\.jsonl:2 and other answers"):
        read_task(write(tmp_path / "c.jsonl", "", LINE, "", other))
    columns = "prompt,answer,counterfactual,counterfactual_answer"
    rows = ["A is, b,C is, d", "E is, f,C is, d", "A is, d,E is, f"]
    with pytest.raises(TaskError, match=r"c\.csv:4 has the prompt of c\.csv:2 and other answers"):
        read_task(write(tmp_path / "c.csv", columns, *rows))


@pytest.mark.parametrize("seed", range(4))  # in whatever order the lines are drawn
def test_repeated_prompts_are_left_out_counted_and_named_with_their_lines(tmp_path: Path, seed: int) -> None:
    tokenizer = word_level(" ".join(LINE.values()))
    path = str(write(tmp_path / "c.jsonl", "", LINE, "", {**LINE, "group": "again"}))
    with pytest.raises(
        TaskError,
        match=r"1 usable.*2 were asked.*duplicate 1; for instance c\.jsonl:4 has the prompt of c\.jsonl:2",
    ):
        prepare(path, tokenizer, discover=1, evaluate=1, seed=seed)
    assert prepare(path, tokenizer, discover=0, evaluate=1, seed=seed).dropped.get("duplicate", 0) == 0


def test_files_that_are_not_there_or_no_tasks(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"none\.jsonl cannot be read.*no such file"):
        as_task(str(tmp_path / "none.jsonl"))
    with pytest.raises(TaskError, match=r"none of \.jsonl, \.csv"):
        read_task(write(tmp_path / "c.txt", LINE))


def test_a_hundred_thousand_lines(tmp_path: Path) -> None:
    lines = [{**LINE, "prompt": f"The capital of country {i} is"} for i in range(100_000)]
    assert len(read_task(write(tmp_path / "c.jsonl", *lines)).examples) == 100_000

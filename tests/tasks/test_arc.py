"""ARC's files: letters and cloze, counterfactuals, and lines that cannot be read. The questions here are our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from circuittest.errors import TaskError
from circuittest.tasks import Task, as_task, get_task, prepare, read_task
from circuittest.tasks.arc import Arc, Question

from .toy_tokenizers import word_level

SAMPLE = [
    ("What do plants take in?", ["light", "sand", "glass", "steel"], 0),
    ("What do plants give off?", ["sand", "oxygen", "glass", "steel"], 1),
    ("What is a lever made of?", ["light", "oxygen", "steel"], 2),
    ("What is a window made of?", ["light", "sound", "sand", "glass"], 3),
    ("Why is it dark at night?", ["clouds", "the earth turns", "wind", "rain"], 1),
]


def line(stem: str, options: list[str], right: int, *, labels: str = "ABCD", **more: Any) -> dict[str, Any]:
    choices = [{"text": text, "label": label} for text, label in zip(options, labels, strict=False)]
    question = {"stem": stem, "choices": choices}
    return {"id": stem[:9] + options[0], "question": question, "answerKey": labels[right], **more}


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = [line(*one) for one in SAMPLE]
    lines[1] = line(*SAMPLE[1], labels="1234")
    return write(tmp_path / "ARC-Easy-Test.jsonl", lines)


def tokenizer() -> Any:
    texts = " ".join(f"{stem} {' '.join(options)}" for stem, options, _ in SAMPLE)
    return word_level(f"Question: Answer: A B C D A. B. C. D. {texts}")


def with_variant(path: Path, variant: str) -> Task:
    task = read_task(path)
    task.variant = variant
    return task


def test_letters(file: Path) -> None:
    data = prepare(str(file), tokenizer(), discover=2, evaluate=3)
    assert (data.task, data.variant, data.accuracy) == ("ARC-Easy-Test.jsonl", "letters", "candidates")
    assert data.chance == pytest.approx((4 / 4 + 1 / 3) / 5)
    assert data.digest
    items = sorted([*data.discover, *data.evaluate], key=lambda item: item.index)
    assert [item.index for item in items] == list(range(5))
    for item, (stem, options, right) in zip(items, SAMPLE, strict=True):
        e = item.example
        listed = [f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=False)]
        assert e.prompt.split("\n") == [f"Question: {stem}", *listed, "Answer:"]
        assert e.answers == (f" {'ABCD'[right]}",)
        assert len(e.foils) == len(options) - 1
        there = e.counterfactual.split("\n")[1:-1]
        at = "ABCD".index(e.counterfactual_answers[0].strip())
        assert at != right
        assert there[at][3:] == options[right], "the right text stands at the other letter"
        assert sorted(text[3:] for text in there) == sorted(options)
        assert item.features == {"form": "letters", "options": len(options), "answer": "ABCD"[right]}


def test_cloze_compares_with_a_question_of_equal_length(file: Path) -> None:
    data = prepare(with_variant(file, "cloze"), tokenizer(), discover=0, evaluate=5)
    found = {item.example.prompt: item for item in data.evaluate}
    right = {f"Question: {stem}\nAnswer:": f" {options[i]}" for stem, options, i in SAMPLE}
    assert set(found) == set(right)
    for prompt, item in found.items():
        assert item.example.answers == (right[prompt],)
        assert item.example.counterfactual_answers == (right[item.example.counterfactual],)
        assert len(item.prompt_ids) == len(item.counterfactual_ids)
        assert item.answer_ids != item.counterfactual_answer_ids
    whole = prepare(with_variant(file, "cloze"), tokenizer(), discover=0, evaluate=5, answers="whole")
    longest = next(item for item in whole.evaluate if "dark" in item.example.prompt)
    assert len(longest.answer_rest) == 2


def test_a_question_without_partner_is_left_out_and_counted() -> None:
    questions = [Question("What do plants take in?", ("light", "sand"), 0, "a")]
    questions += [Question("What do plants give off?", ("sand", "oxygen"), 1, "b")]
    questions += [Question("What is a lever made of?", ("light", "steel"), 1, "c")]
    task = Arc("mine", questions, variant="cloze")
    with pytest.raises(TaskError, match="2 usable distinct prompts.*3 were asked.*no-counterfactual 1"):
        prepare(task, tokenizer(), discover=0, evaluate=3)


def test_the_form_of_the_hub_is_the_same(file: Path, tmp_path: Path) -> None:
    lines = [
        {
            "id": stem[:9] + options[0],
            "question": stem,
            "choices": {"text": options, "label": list("ABCD"[: len(options)])},
            "answerKey": "ABCD"[right],
        }
        for stem, options, right in SAMPLE
    ]
    there = read_task(write(tmp_path / "x.jsonl", lines))
    assert list(there.stream(3)) == list(read_task(file).stream(3))


def test_the_seed_orders_and_nothing_else(file: Path) -> None:
    one, two = (list(read_task(file).stream(seed)) for seed in (0, 1))
    assert one != two
    assert sorted(map(repr, one)) == sorted(map(repr, two))
    assert [e.index for e in one] == [4, 3, 2, 0, 1], "the same on every machine"


GOOD = line(*SAMPLE[0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({**GOOD, "answerKey": "E"}, r"x\.jsonl:2: answerKey 'E' is none of the labels.*A, B, C, D"),
        ({k: v for k, v in GOOD.items() if k != "answerKey"}, r"x\.jsonl:2: answerKey None"),
        ({**GOOD, "question": " "}, r"x\.jsonl:2: the question has no stem"),
        ({**GOOD, "question": {"stem": "Why?"}}, r"x\.jsonl:2: choices must list 2 to 8"),
        ({**GOOD, "question": "Why?", "choices": {"text": ["a"], "label": []}}, r"x\.jsonl:2: choices"),
        (line("Why?", ["a"], 0), r"x\.jsonl:2: choices must list 2 to 8"),
        (line("Why?", ["a", ""], 0), r"x\.jsonl:2: an option lacks text"),
        (line("Why?", ["a", "a"], 0), r"x\.jsonl:2: two options have the text 'a'"),
        (line("Why?", ["a", "b"], 0, labels="AA"), r"x\.jsonl:2: two options have the label 'A'"),
        ([1], r"x\.jsonl:2 is list"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, wrong: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read_task(write(tmp_path / "x.jsonl", [GOOD, wrong]))


def test_names_and_other_files_say_what_to_do() -> None:
    with pytest.raises(TaskError, match="arc_easy is read from its published file.*ARC-Easy-Test.jsonl"):
        get_task("arc_easy")
    with pytest.raises(TaskError, match=r"none of .jsonl, .csv and .parquet.*JSON lines"):
        as_task("test.tsv")

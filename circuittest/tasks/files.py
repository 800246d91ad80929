"""Tasks from files: JSON lines, CSV or parquet, one example a line, or those of ARC and MIB.

Every mistake is named with its line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from circuittest.errors import TaskError
from circuittest.tasks.arc import Arc, is_question, read_question
from circuittest.tasks.base import Example, Task
from circuittest.tasks.mib import is_mib, read_mib
from circuittest.tasks.own import KEYS, ExampleTask, read_example

T = TypeVar("T")

SUFFIXES = (".jsonl", ".csv", ".parquet")
#: Refused with what to do, and not taken for the name of a task.
OTHER_SUFFIXES = (".json", ".tsv")
#: Between several answers (or foils) in one cell of a CSV file.
SEPARATOR = "|"


def is_file(name: str) -> bool:
    """Does a task's name mean a file?"""
    return name.lower().endswith((*SUFFIXES, *OTHER_SUFFIXES))


def read_task(path: str | Path, *, name: str | None = None) -> Task:
    """A task whose examples are the lines of a file.

    JSON lines (``.jsonl``): each line is an object with ``prompt``, ``answer`` or ``answers``, ``counterfactual``,
    ``counterfactual_answer(s)``, and perhaps ``foil(s)``, ``features`` (an object of texts, whole numbers and truth
    values) and ``group``. CSV: the first line names the columns; several answers in a cell stand apart by ``|``;
    columns of other names are features, as text. Spaces count: most tokenizers want an answer with its leading space.
    Parquet (``.parquet``): each row as a line of JSON lines; needs pyarrow.
    Lines whose first has a prompt and columns ``…_counterfactual`` are MIB's (`circuittest.tasks.mib`), with an
    ``answerKey`` ARC's (`circuittest.tasks.arc`).
    Empty lines are passed over. A file of text is UTF-8, with or without a byte order mark.

    The task is called what the file is called, and its digest is recorded with every result.

    Raises
    ------
    TaskError
        For a file that cannot be read or holds nothing, and for a wrong line, with its number: also one with the prompt
        of an earlier line and other answers. Repeated prompts with the same answers are left out later, and counted.
    """
    path = Path(path)
    if not path.name.lower().endswith(SUFFIXES):
        raise TaskError(
            f"{path.name} is no task",
            "its name ends in none of .jsonl, .csv and .parquet",
            "convert it to JSON lines, or use ExampleTask",
        )
    try:
        raw = path.read_bytes()
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise TaskError(f"the task {name or path} cannot be read", why, "give the path of a file") from error
    lines: Iterator[tuple[int, Any]]
    if path.suffix.lower() == ".parquet":
        from circuittest.tasks.parquet import parquet_rows

        lines = parquet_rows(path)
    else:
        read = _json_lines if path.suffix.lower() == ".jsonl" else _csv_lines
        lines = read(_decode(raw, path.name), path.name)
    first = next(lines, None)
    if first is None:
        raise TaskError(f"{path.name} holds no examples", "", "write one example a line")
    numbers: list[int] = []

    def every(make: Callable[[Any, str], T]) -> Iterator[T]:
        for number, given in chain([first], lines):
            numbers.append(number)
            yield make(given, f"{path.name}:{number}")

    digest = sha256(raw).hexdigest()[:16]
    task: Task
    if is_mib(first[1]):
        task = ExampleTask(path.name, list(every(read_mib)), digest=digest)
    elif is_question(first[1]):
        task = Arc(path.name, list(every(read_question)), digest=digest)
    else:
        examples = list(every(_example))
        _consistent(examples, numbers, path.name)
        task = ExampleTask(path.name, examples, digest=digest)
    task.lines = tuple(numbers)
    return task


def _decode(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        what = "UTF-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "not UTF-8"
        raise TaskError(f"{name}:{line} is {what}", str(error.reason), "save the file as UTF-8") from error


def _json_lines(text: str, name: str) -> Iterator[tuple[int, Any]]:
    # Not str.splitlines: a text may hold U+2028 and the like, which JSON allows inside a line.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line, object_pairs_hook=_no_repeats)
        except ValueError as error:
            raise TaskError(
                f"{name}:{number} is not JSON", str(error), "write one JSON object a line"
            ) from error


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in names if names.count(k) > 1)!r} is there twice")
    return found


def _csv_lines(text: str, name: str) -> Iterator[tuple[int, Any]]:
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        columns = next(reader, [])
        for wrong in (c for c in columns if columns.count(c) > 1 or not c.strip()):
            raise TaskError(f"{name}:1 has a column {wrong!r} twice or without a name", "", "rename it")
        before = reader.line_num
        for cells in reader:
            line, before = before + 1, reader.line_num
            if not any(cells):
                continue
            if len(cells) != len(columns):
                what = f"{name}:{line} has {len(cells)} cells, the first line has {len(columns)}"
                raise TaskError(what, "", 'put texts with a comma into quotes: "…, …"')
            yield line, _row(dict(zip(columns, cells, strict=True)))
    except csv.Error as error:
        raise TaskError(f"{name}:{reader.line_num} is not CSV", str(error), "check its quotes") from error


def _row(cells: Mapping[str, str]) -> dict[str, Any]:
    several = ("answers", "foils", "counterfactual_answers")
    known = {
        key: cell.split(SEPARATOR) if KEYS[key] in several else cell
        for key, cell in cells.items()
        if key in KEYS and key != "features" and cell
    }
    return {**known, "features": {key: cell for key, cell in cells.items() if key not in KEYS}}


def _consistent(examples: Sequence[Example], lines: Sequence[int], name: str) -> None:
    """Refuse one prompt with different answers: whichever of the two was kept would be chance."""
    first: dict[str, int] = {}
    for row, example in enumerate(examples):
        before = first.setdefault(example.prompt, row)
        if set(examples[before].answers) != set(example.answers):
            raise TaskError(
                f"{name}:{lines[row]} has the prompt of {name}:{lines[before]} and other answers",
                "each prompt is asked once, so one of the two would be lost",
                "give all answers that are right in one line, or leave one line out",
            )


def _example(given: Any, where: str) -> Example:
    example = read_example(given, where)
    for text, what in ((example.prompt, "prompt"), (example.counterfactual, "counterfactual")):
        if not text.strip():
            raise TaskError(f"{where}: the {what} is empty")
    for answers, what in (
        (example.answers, "answer"),
        (example.counterfactual_answers, "counterfactual answer"),
    ):
        if not all(text.strip() for text in answers):
            raise TaskError(f"{where}: the {what} is empty")
    if both := sorted(set(example.answers) & set(example.foils)):
        raise TaskError(f"{where}: {both[0]!r} is both answer and foil", "no model could be right")
    if set(example.answers) == set(example.counterfactual_answers):
        raise TaskError(
            f"{where}: prompt and counterfactual have the same answers",
            "attribution compares two prompts that should be answered differently",
        )
    return example

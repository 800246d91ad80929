"""Which tasks there are: those of this package, and those that entry points bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from circuittest.errors import TaskError, UsageError, did_you_mean
from circuittest.tasks.base import Task
from circuittest.tasks.names import is_path, split_name

GROUP = "circuittest.tasks"
BUILT_IN = {
    "ioi": "IOI",
    "sva": "SVA",
    "gendered_pronoun": "GenderedPronoun",
    "greater_than": "GreaterThan",
    "induction": "Induction",
    "facts": "Facts",
    "addition": "Addition",
    "boolean": "Boolean",
    "copy_colors": "CopyColors",
    "year_order": "YearOrder",
    "sports_understanding": "SportsUnderstanding",
    "factual_recall": "FactualRecall",
    "digit_addition": "DigitAddition",
}


#: Tasks of this process: name → what an entry point would name.
_OWN: dict[str, object] = {}


def register_task(name: str, task: object) -> None:
    """Make a task known in this process: a Task subclass, a Task or a function that returns one.

    Raises UsageError for a name that is taken, or that says how a task is asked (`circuittest.tasks.names`).
    """
    if name in list_tasks():
        raise UsageError(f"there is a task {name!r} already", "", "choose another name")
    if not name or "+" in name or is_path(name):
        raise UsageError(f"{name!r} cannot name a task", "'+' and the endings of files mean something else")
    _OWN[name] = task


def unregister_task(name: str) -> None:
    """Forget a task of `register_task`."""
    _OWN.pop(name, None)


def list_tasks() -> list[str]:
    """Names of all tasks: the built-in ones first, then those of installed packages, without importing
    these, and those of this process.
    """
    own = [*entry_points(group=GROUP).names, *_OWN]
    return [*BUILT_IN, *sorted({name for name in own if name not in BUILT_IN})]


def get_task(name: str, **options: Any) -> Task:
    """The task called ``name``; ``options`` (``pool``, ``variant``) go to its constructor.

    A package adds tasks with an entry point of the group ``circuittest.tasks`` that names a Task subclass,
    a Task or a function that returns one. Raises TaskError for an unknown name or an entry point that is
    not a task.
    """
    if name in BUILT_IN:
        task: Task = getattr(import_module(f"circuittest.tasks.{name}"), BUILT_IN[name])(**options)
        return task
    if name in _OWN:
        return _from_plugin(name, _OWN[name], options)
    for point in entry_points(group=GROUP, name=name):
        return _from_plugin(name, point.load(), options)
    if name in ("arc_easy", "arc_challenge"):
        file = "ARC-Easy-Test.jsonl" if name == "arc_easy" else "ARC-Challenge-Test.jsonl"
        raise TaskError(
            f"{name} is read from its published file",
            "this package holds no questions of it",
            f"download the file (https://allenai.org/data/arc) and give its path as the task, as {file}",
        )
    known = list_tasks()
    raise TaskError(f"there is no task {name!r}", do=did_you_mean(name, known))


def as_task(given: Task | str | Sequence[Mapping[str, Any]]) -> Task:
    """A task from a task, its name, the path of a file (``.jsonl``, ``.csv``), or a list of examples.

    Name and path may say how it is asked, as ``ioi+4shots+chat`` (`circuittest.tasks.names`).
    """
    from circuittest.tasks.files import is_file, read_task

    if isinstance(given, Task):
        return given
    if isinstance(given, str):
        base, how = split_name(given) if "+" in given and given not in list_tasks() else (given, {})
        found = read_task(base) if is_file(base) else get_task(base)
        if not how:
            return found
        from circuittest.tasks.frame import Posed

        return Posed(found, **how)
    from circuittest.tasks.own import ExampleTask

    return ExampleTask("examples", given)


def _from_plugin(name: str, loaded: object, options: dict[str, Any]) -> Task:
    if isinstance(loaded, Task):
        if options:
            raise TaskError(
                f"task {name!r} is a ready-made object and takes no options", do="leave out pool and variant"
            )
        return loaded
    made = loaded(**options) if callable(loaded) else None
    if not isinstance(made, Task):
        raise TaskError(
            f"what is registered as {name!r} in {GROUP!r} is no task",
            why=f"it gave {type(loaded if made is None else made).__name__}",
            do="point it at a subclass of circuittest.tasks.Task, at an instance, or at a function that returns one",
        )
    return made

"""What can be wrong with a spec before any model is there: environment variables, tasks and features by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from circuittest.errors import TaskError, UsageError
from circuittest.spec.yaml import Document, Path_

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Examples that are asked which features a task has.
ASKED = 64


def interpolated(document: Document) -> Document:
    """``${NAME}`` of paths replaced by environment variables: of models, circuit files, baselines and texts.

    A task's file is no such path: its name is in records and locks.

    Raises
    ------
    SpecError
        A variable is not set or its name is none, or it stands anywhere else.
    """

    def changed(value: Any, path: Path_) -> Any:
        if isinstance(value, dict):
            return {key: changed(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [changed(inner, (*path, i)) for i, inner in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        if not _may_vary(path) or "/" not in value:
            why = "only paths of models, circuit files, baselines and texts may vary from machine to machine"
            raise document.error(path, f"{value!r} is no path", why, "write it out")
        return _VARIABLE.sub(lambda found: _of(document, path, found[1]), value)

    return replace(document, data=changed(document.data, ()))


def _may_vary(path: Path_) -> bool:
    if path[:1] == ("model",) or path == ("circuit", "file"):
        return True
    return path[:1] == ("claims",) and len(path) == 4 and path[3] in ("baseline", "text")


def _of(document: Document, path: Path_, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise document.error(path, f"${{{name}}} names no environment variable", "", "write ${NAME}")
    if name not in os.environ:
        near = [known for known in os.environ if known.lower() == name.lower()]
        do = f"did you mean {near[0]!r}?" if near else "set it"
        raise document.error(path, f"the environment variable {name} is not set", "", do)
    return os.environ[name]


def check_task(document: Document, task: str, folder: Path) -> None:
    """Refuse a task that no package brings, and a file that is not there. Raises SpecError."""
    from circuittest.tasks.catalog import BUILT_IN, get_task, list_tasks
    from circuittest.tasks.names import is_path

    if task in BUILT_IN:
        return  # installed packages are not asked: that would cost each file of a suite
    key: Path_ = ("task", "name") if isinstance(document.data["task"], dict) else ("task",)
    try:
        base = _base(task)
        if is_path(base):
            if not (folder / base).is_file():
                do = "check the path: it is looked for beside the spec"
                raise document.error(key, f"there is no file {base!r}", "", do)
        elif base not in BUILT_IN and base not in list_tasks():
            get_task(base)  # says what there is
    except TaskError as error:
        raise document.error(key, error.what, error.why, error.do) from None


#: Options of claims that name tasks.
TASKS = {
    "reuse": "overlap",
    "selective": "against",
    "specificity": "against",
    "specificity_matrix": "tasks",
    "transfer": "to",
}


def check_named_tasks(document: Document, path: Path_, claim: str, options: Mapping[str, Any]) -> None:
    """Refuse a task that no package brings where an option of a claim names it. Raises SpecError."""
    from circuittest.tasks.catalog import BUILT_IN, get_task, list_tasks
    from circuittest.tasks.names import is_path

    option = TASKS.get(claim, "")
    given = options.get(option)
    names = {(*path, option, i): one for i, one in enumerate(given)} if isinstance(given, list) else {}
    names = {(*path, option): given} if isinstance(given, str) else names
    for place, name in names.items():
        try:
            base = _base(name)
            if base not in BUILT_IN and not is_path(base) and base not in list_tasks():
                get_task(base)  # says what there is
        except TaskError as error:
            raise document.error(place, error.what, error.why, error.do) from None


def check_given(document: Document, path: Path_, what: str, but: Iterable[str] = ()) -> None:
    """Refuse keys without a value: what is empty by a slip would be the default without a word. Raises SpecError."""
    found = document.data
    for part in path:
        found = found[part]
    for key, value in found.items():
        if value is None and key not in but:
            do = "give it a value, or remove the key"
            raise document.error((*path, key), f"{key!r} of {what} is empty", "", do)


def check_partitions(
    document: Document, path: Path_, given: Any, examples: Callable[[], list[Any] | None]
) -> None:
    """Refuse a partition that cannot be read, or that names a feature which examples lack. Raises SpecError."""
    from circuittest.tasks.partitions import Partition

    texts = {(*path, i): one for i, one in enumerate(given)} if isinstance(given, list) else {path: given}
    for place, text in texts.items():
        if not isinstance(text, str):
            continue
        try:
            partition = Partition.parse(text)
            if (found := examples()) is not None:
                partition.labels(found)
        except (UsageError, TaskError) as error:
            raise document.error(place, error.what, error.why, error.do) from None


def examples_of(task: str, folder: Path) -> list[Any] | None:
    """The first examples of a task as text; None where only a package of another author could give them."""
    from circuittest.tasks.catalog import BUILT_IN, as_task
    from circuittest.tasks.names import is_path

    base = _base(task)
    if base not in BUILT_IN and not is_path(base):
        return None
    try:
        return list(islice(as_task(str(folder / base) if is_path(base) else base).stream(), ASKED))
    except TaskError:
        return None  # told where the lab prepares the task


def _base(task: str) -> str:
    """The name or path without how the task is asked. Raises TaskError."""
    from circuittest.tasks.catalog import list_tasks
    from circuittest.tasks.names import split_name

    return split_name(task)[0] if "+" in task and task not in list_tasks() else task


def remembered(make: Callable[[], Any]) -> Callable[[], Any]:
    """A function that makes something once."""
    made: dict[str, Any] = {}

    def get() -> Any:
        if "it" not in made:
            made["it"] = make()
        return made["it"]

    return get


def partitions(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a claim that are partitions."""
    return {name: value for name, value in options.items() if name == "partition"}

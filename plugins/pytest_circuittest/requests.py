"""Which lab a test asks for: the nearest ``circuit`` marker, else the ini."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pytest

from pytest_circuittest.options import Settings, settings

MARKER = (
    "circuit(model, task, discover, evaluate, seed, prefix, accuracy, metric, answers, headroom): the model (or a "
    "list of models) and the task that the `lab` fixture measures"
)
_OPTIONS = ("discover", "evaluate", "seed", "prefix", "accuracy", "metric", "answers", "headroom")


@dataclass(frozen=True)
class LabRequest:
    """A model, a task and the options of a lab; equal requests share one lab in a session."""

    model: str
    task: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The model as ids show it: a path by its last part."""
        return short_name(self.model)

    @property
    def id(self) -> str:
        """As in ``test_x[zoo:gqa-ioi]``."""
        return f"{self.name}-{Path(self.task).name}"


def short_name(model: str) -> str:
    """A model's name for ids and records: nothing of where a file or folder lies."""
    path = Path(model)
    local = model.startswith((".", "/", "~")) or path.is_absolute() or path.exists()
    return path.expanduser().resolve().name if local else model


def parametrize_lab(metafunc: pytest.Metafunc) -> None:
    """Give a test that uses our `lab` fixture one lab for each model of its marker."""
    if not _uses_our_lab(metafunc):
        return
    requests = requests_of(metafunc.definition, settings(metafunc.config))
    ids = [request.id for request in requests]
    metafunc.parametrize("lab", requests, ids=ids, indirect=True, scope="session")


def requests_of(item: pytest.Item, chosen: Settings) -> list[LabRequest]:
    """The labs that the nearest marker of a test asks for. Raises pytest.UsageError."""
    marker = item.get_closest_marker("circuit")
    given: dict[str, Any] = {} if marker is None else dict(marker.kwargs)
    if marker is not None and marker.args:
        raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.circuit(model=…, task=…), by name")
    for key in given:
        if key not in ("model", "task", *_OPTIONS):
            close = get_close_matches(key, ("model", "task", *_OPTIONS), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are model, task, {', '.join(_OPTIONS)}"
            raise pytest.UsageError(f"{item.nodeid}: the circuit marker has no {key!r}; {hint}")
        if key in _OPTIONS and not isinstance(given[key], (str, int, float)):
            raise pytest.UsageError(
                f"{item.nodeid}: {key} of the circuit marker is {given[key]!r}, no text or number"
            )
    named = given.pop("model", None) or chosen.model
    task = given.pop("task", None) or chosen.task
    models = [named] if isinstance(named, str) else list(named)
    if not all(isinstance(model, str) for model in models) or not isinstance(task, str):
        raise pytest.UsageError(
            f"{item.nodeid}: model and task of the circuit marker are names; use make_lab for objects"
        )
    if not task or not any((*models, chosen.replacements.one)):
        missing = "task" if not task else "model"
        raise pytest.UsageError(
            f"{item.nodeid} uses `lab` and says no {missing}: mark it with @pytest.mark.circuit(model=…, task=…), "
            f"or set circuit_model and circuit_task in the ini file"
        )
    if len(set(models)) < len(models):
        raise pytest.UsageError(f"{item.nodeid}: the circuit marker names a model twice")
    return [request(chosen, model, _beside(item.path.parent, task), given) for model in models]


def request(
    chosen: Settings, model: str, task: str, options: Mapping[str, Any], *, folder: Path | None = None
) -> LabRequest:
    """A request with `--circuit-model` applied. Raises pytest.UsageError.

    Parameters
    ----------
    folder:
        Where a spec lies: models that are written as ``./…`` or ``../…`` and tasks from files are looked for beside
        it. What `--circuit-model` says is relative to the working directory.
    """
    if folder is not None:
        task = _beside(folder, task)
    replaced = chosen.replacements.apply(model) if model else chosen.replacements.one
    if replaced == model and folder is not None and model.startswith(("./", "../")):
        replaced = str(folder / model)
    # A default that is written out asks for the same lab as one that is not.
    defaults = _defaults()
    told = {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}
    made = LabRequest(replaced or model, task, tuple(sorted(told.items())))
    return chosen.requests.setdefault(made, made)


def _beside(folder: Path, task: str) -> str:
    """A task's name as it is; the path of a task's file, which lies beside what names it."""
    from circuittest.tasks.names import is_path

    return str(folder / task) if is_path(task) else task


def _defaults() -> dict[str, Any]:
    from inspect import signature

    from circuittest.lab import Lab

    return {name: one.default for name, one in signature(Lab).parameters.items()}


def _uses_our_lab(metafunc: pytest.Metafunc) -> bool:
    if "lab" not in metafunc.fixturenames:
        return False
    for marker in metafunc.definition.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs.get("argnames", "")
        if "lab" in (names.replace(",", " ").split() if isinstance(names, str) else names):
            return False
    # No public way says which fixture a name stands for. Ours counts where it is used as it is or wrapped by one of the
    # same name.
    found = metafunc._arg2fixturedefs.get("lab", ())
    ours = [definition.func.__module__ == "pytest_circuittest.fixtures" for definition in found]
    return any(ours) and (ours[-1] or "lab" in found[-1].argnames)

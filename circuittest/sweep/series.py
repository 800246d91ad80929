"""The file of a series: which models, in which order, are judged by which specs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from circuittest.find.roles.functions import USUAL
from circuittest.find.roles.kinds import Role
from circuittest.spec.messages import validate
from circuittest.spec.schema import Word
from circuittest.spec.yaml import Document, read_yaml

_STEP = re.compile(r"(?:step[-_]?|checkpoint-)(\d+)$")


_Models = Annotated[list[Word], Field(min_length=1)]
_Times = list[int | float]


class SeriesModel(BaseModel):
    """The top level of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    circuittest: Literal[1]
    models: _Models | Annotated[dict[Word, _Models], Field(min_length=1)]
    specs: Annotated[list[Word], Field(min_length=1)]
    times: _Times | dict[Word, _Times] | None = None
    half_life: Annotated[float, Field(gt=0)] | None = None
    roles: list[Role] | None = None
    least: Annotated[float, Field(gt=0, le=1)] = 0.4
    resamples: Annotated[int, Field(ge=0, le=1000)] = 100
    average_from: int | float | None = None


@dataclass(frozen=True)
class Series:
    """What the file says.

    Attributes
    ----------
    path:
        The file.
    models:
        What the models are called, run by run in the order of training: as written, or the last part of an absolute
        path.
    places:
        What is loaded: a zoo name or hub id as written, or the absolute path of a folder.
    specs:
        Files of claims; each is judged on every model.
    runs:
        Name of each run of training and the places of its models: one run without a name where the file lists models,
        or those that it names. Checkpoints are compared within a run.
    times:
        When each model was taken, ascending in each run; None where neither the file nor all names (``…step800``,
        ``checkpoint-800``) say it.
    half_life:
        Of similarities that are smoothed in time, in the unit of `times`; by default the median spacing of the run.
    roles, least:
        Roles that heads are scored for, and the mean score from which on a head has one.
    resamples:
        How often each circuit is found again on resampled examples.
    average_from:
        The time from which on checkpoints count for a run's mean over models of several sizes; None: all count.
    """

    path: Path
    models: tuple[str, ...]
    places: tuple[str, ...]
    specs: tuple[Path, ...]
    times: tuple[float, ...] | None
    half_life: float | None
    runs: tuple[tuple[str, range], ...] = ()
    roles: tuple[str, ...] = ()
    least: float = 0.4
    resamples: int = 0
    average_from: float | None = None


def load_series(path: str | Path) -> Series:
    """Read and check a series file.

    Models that begin with ``./`` or ``../`` and specs are looked for beside the file.

    Raises
    ------
    SpecError
        With file, line and column.
    """
    document = read_yaml(path, what="the series")
    if not isinstance(document.data, dict):
        raise document.error((), "a series is a mapping", "", "begin with 'circuittest: 1'")
    file = validate(SeriesModel, document, (), "the series")
    beside = Path(path).resolve().parent
    named = file.models if isinstance(file.models, dict) else {"": file.models}
    where = {run: ("models", run) if isinstance(file.models, dict) else ("models",) for run in named}
    models: list[str] = []
    for run, listed in named.items():
        for index, model in enumerate(map(_called, listed)):
            if model in models:
                what = f"there are two models called {model!r}"
                raise document.error((*where[run], index), what, "", "remove one, or rename its folder")
            models.append(model)
    specs = _specs(file.specs, beside, document)
    runs, times, first = [], list[float](), 0
    for run, listed in named.items():
        runs.append((run, range(first, first + len(listed))))
        first += len(listed)
        times += _times(file, run, listed, where[run], document)
    timed = len(times) == len(models)
    if file.average_from is not None and not timed:
        what = "average_from needs the times of all models"
        raise document.error(("average_from",), what, "not all are known", "give times, or remove it")
    return Series(
        Path(path),
        tuple(models),
        tuple(_place(model, beside) for listed in named.values() for model in listed),
        specs,
        tuple(times) if timed else None,
        file.half_life,
        tuple(runs),
        USUAL if file.roles is None else tuple(dict.fromkeys(file.roles)),
        file.least,
        file.resamples,
        file.average_from,
    )


def _specs(names: list[str], beside: Path, document: Document) -> tuple[Path, ...]:
    specs = tuple(beside / name for name in names)
    for index, spec in enumerate(specs):
        if not _is_file(spec):
            what = f"there is no file {names[index]!r} beside the series"
            raise document.error(("specs", index), what, "", "check the path")
        if spec.name in [one.name for one in specs[:index]]:
            what = f"there are two specs called {spec.name!r}"
            raise document.error(("specs", index), what, "", "remove one, or rename it")
    return specs


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no name of a file, being too long
        return False


def _times(
    file: SeriesModel, run: str, models: list[str], where: tuple[str, ...], document: Document
) -> list[float]:
    """When the models of a run were taken; [] where nothing says it."""
    if isinstance(file.times, dict) != bool(run) and file.times is not None:
        what = "times are given as models are"
        raise document.error(("times",), what, "", "list them for a list, and by run for runs")
    if isinstance(file.times, dict) and (unknown := sorted(set(file.times) - set(file.models))):
        raise document.error(
            ("times", unknown[0]), f"there is no run {unknown[0]!r}", "", "check the name", key=True
        )
    given = file.times.get(run) if isinstance(file.times, dict) else file.times
    place = where if given is None else ("times", *where[1:])
    found = _steps(models) if given is None else list(map(float, given))
    if given is not None and len(given) != len(models):
        what = f"there are {len(given)} times for {len(models)} models"
        raise document.error(place, what, "", "give one of each model")
    if any(a >= b for a, b in pairwise(found)):
        what = "the models are not in the order of their times"
        raise document.error(place, what, "", "list the earliest first")
    return found


def _place(model: str, beside: Path) -> str:
    if model.startswith("~"):
        return str(Path(model).expanduser())
    return str((beside / model).resolve()) if model.startswith(("./", "../")) else model


def _called(model: str) -> str:
    """Records hold no path of a machine."""
    return Path(model).name if model.startswith("~") or Path(model).is_absolute() else model


def _steps(models: list[str]) -> list[float]:
    found = [_STEP.search(model.rstrip("/")) for model in models]
    return [float(one[1]) for one in found if one] if all(found) else []

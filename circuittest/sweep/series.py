"""The file of a series: which models, in which order, are judged by which specs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from circuittest.spec.messages import validate
from circuittest.spec.schema import Word
from circuittest.spec.yaml import read_yaml

_STEP = re.compile(r"(?:step[-_]?|checkpoint-)(\d+)$")


class SeriesModel(BaseModel):
    """The top level of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    circuittest: Literal[1]
    models: Annotated[list[Word], Field(min_length=1)]
    specs: Annotated[list[Word], Field(min_length=1)]
    times: list[int | float] | None = None
    half_life: Annotated[float, Field(gt=0)] | None = None


@dataclass(frozen=True)
class Series:
    """What the file says.

    Attributes
    ----------
    path:
        The file.
    models:
        What the models are called, in the order of training: as written, or the last part of an absolute path.
    places:
        What is loaded: a zoo name or hub id as written, or the absolute path of a folder.
    specs:
        Files of claims; each is judged on every model.
    times:
        When each model was taken, ascending; None where neither the file nor all names (``…step800``,
        ``checkpoint-800``) say it.
    half_life:
        Of similarities that are smoothed in time, in the unit of `times`; by default the median spacing.
    """

    path: Path
    models: tuple[str, ...]
    places: tuple[str, ...]
    specs: tuple[Path, ...]
    times: tuple[float, ...] | None
    half_life: float | None


def load_series(path: str | Path) -> Series:
    """Read and check a series file.

    Models that begin with ``./`` or ``../`` and specs are looked for beside the file.

    Raises
    ------
    SpecError
        With file, line and column.
    """
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        raise document.error((), "a series is a mapping", "", "begin with 'circuittest: 1'")
    file = validate(SeriesModel, document, (), "the series")
    beside = Path(path).resolve().parent
    places = [_place(model, beside) for model in file.models]
    models = [_called(model) for model in file.models]
    for index, model in enumerate(models):
        if model in models[:index]:
            what = f"there are two models called {model!r}"
            raise document.error(("models", index), what, "", "remove one, or rename its folder")
    specs = tuple(beside / name for name in file.specs)
    names = [spec.name for spec in specs]
    for index, spec in enumerate(specs):
        if not spec.is_file():
            what = f"there is no file {file.specs[index]!r} beside the series"
            raise document.error(("specs", index), what, "", "check the path")
        if spec.name in names[:index]:
            what = f"there are two specs called {spec.name!r}"
            raise document.error(("specs", index), what, "", "remove one, or rename it")
    times = _steps(file.models) if file.times is None else tuple(map(float, file.times))
    if file.times is not None and len(file.times) != len(file.models):
        what = f"there are {len(file.times)} times for {len(file.models)} models"
        raise document.error(("times",), what, "", "give one of each model")
    if times is not None and any(a >= b for a, b in pairwise(times)):
        what = "the models are not in the order of their times"
        raise document.error(
            ("models" if file.times is None else "times",), what, "", "list the earliest first"
        )
    return Series(Path(path), tuple(models), tuple(places), specs, times, file.half_life)


def _place(model: str, beside: Path) -> str:
    if model.startswith("~"):
        return str(Path(model).expanduser())
    return str((beside / model).resolve()) if model.startswith(("./", "../")) else model


def _called(model: str) -> str:
    """Records hold no path of a machine."""
    return Path(model).name if model.startswith("~") or Path(model).is_absolute() else model


def _steps(models: list[str]) -> tuple[float, ...] | None:
    found = [_STEP.search(model.rstrip("/")) for model in models]
    return tuple(float(one[1]) for one in found if one) if all(found) else None

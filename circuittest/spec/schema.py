"""What a spec file may hold, and what `load_spec` makes of it.

The models of the file level are pydantic models that forbid extra keys and convert nothing (a string is no number).
The options of a claim are not written down here: they are read off the signature of the registered claim function, so
that a new claim needs no change in this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from circuittest.circuit import Circuit
from circuittest.claims import RESERVED
from circuittest.claims.groups import Group
from circuittest.claims.ranges import Seed
from circuittest.lock import Lock
from circuittest.tasks.names import posed_name

Comparison = Literal[">=", ">", "<=", "<", "is"]

#: How a threshold may be called, and the comparison it asks for.
THRESHOLDS: Mapping[str, Comparison] = {
    "min": ">=",
    "above": ">",
    "max": "<=",
    "below": "<",
    "is": "is",
}
Word = Annotated[str, StringConstraints(min_length=1, pattern=r"^\S(.*\S)?$")]
Count = Annotated[int, Field(ge=1)]
#: Above 0 %, for what is a share of something must hold something.
_BELOW_100 = r"0?[1-9](\.[0-9]+)?|[1-9][0-9](\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*"
Percent = Annotated[str, StringConstraints(pattern=rf"^(100(\.0+)?|{_BELOW_100})%$")]
Ids = Annotated[list[str], Field(min_length=1)]

_CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TaskModel(BaseModel):
    """``task: {name: ioi, discover: 200, …}``; a bare name is the same with the defaults of the lab."""

    model_config = _CONFIG

    name: Word
    discover: Count | None = None
    evaluate: Count | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    prefix: Word | None = None
    accuracy: Literal["argmax", "candidates"] | None = None
    metric: Literal["log_prob", "logit_diff", "prob_diff", "kl"] | None = None
    answers: Literal["first", "whole"] | None = None
    variant: Word | None = None
    shots: Count | None = None
    chat: bool | None = None

    def options(self) -> dict[str, Any]:
        """The keyword options of the lab that the file sets."""
        return self.model_dump(exclude={"name", "variant", "shots", "chat"}, exclude_none=True)

    def posed(self) -> str:
        """The task's name with its variant, solved examples in front, and chat (`circuittest.tasks.names`)."""
        return posed_name(self.name, variant=self.variant, shots=self.shots or 0, chat=bool(self.chat))


class FoundCircuit(BaseModel):
    """``circuit: {method: eap, universe: heads, top: 20%, at: 95}``: found on the discovery examples."""

    model_config = _CONFIG

    method: Literal["eap", "eap-ig", "exact"] = "eap"
    universe: Word | Ids = "heads"
    top: Percent = "20%"
    at: Annotated[int, Field(ge=1, le=100)] = 95
    score: Literal["edge-abs-sum", "edge-sum", "node"] = "edge-abs-sum"
    level: Literal["units", "edges"] | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    baseline: Literal["counterfactual", "zero", "mean"] | None = None
    dtype: Literal["bfloat16", "float16", "float32"] | None = None


class MinimalCircuit(BaseModel):
    """``circuit: {method: minimal, faithfulness: 0.8, cap: 5%}``: the fewest edges that do so much of the behaviour."""

    model_config = _CONFIG

    method: Literal["minimal"]
    faithfulness: Annotated[float, Field(gt=0, lt=1)] = 0.8
    cap: Percent = "5%"
    level: Literal["units", "edges"] = "units"
    steps: Annotated[int, Field(ge=1)] | None = None
    metric: Literal["logit_diff", "log_prob", "prob_diff", "accuracy"] | None = None


class FileCircuit(BaseModel):
    """``circuit: {file: ioi.circuit.json}``, beside the spec."""

    model_config = _CONFIG

    file: Word


class UnitsCircuit(BaseModel):
    """``circuit: {units: [L2.H1, L3.MLP]}``; ids of edges are allowed, too."""

    model_config = _CONFIG

    units: Ids


class FileModel(BaseModel):
    """The top level of a spec file. The parts that need messages of their own are checked by `load_spec`."""

    model_config = _CONFIG

    circuittest: Literal[1]
    model: Word | Annotated[list[Word], Field(min_length=1)]
    task: Word | dict[str, Any]
    circuit: dict[str, Any] | Literal["rediscover"] | None = None
    correction: Literal["holm"] | None = None
    groups: dict[str, Ids] = Field(default_factory=dict)
    claims: Annotated[list[dict[str, Any]], Field(min_length=1)]


class ClaimModel(BaseModel):
    """What every claim may say beside its own options: a threshold or the name of an outcome, the group it is about,
    its id, and the reason why it is skipped, or why it is expected to be refuted.
    """

    model_config = _CONFIG

    min: float | None = None
    above: float | None = None
    max: float | None = None
    below: float | None = None
    is_: Word | None = Field(None, alias="is")
    of: Word | None = None
    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$")] | None = None
    xfail: Word | None = None
    skip: Word | None = None


@dataclass(frozen=True)
class ClaimSpec:
    """One claim of a spec: what is measured, on what, and the threshold it must meet.

    Attributes
    ----------
    id:
        Unique in its file: ``necessity``, ``necessity[name_movers]``, or what the file says.
    claim, options:
        The registered claim and the options of its function that the file sets; groups that they name are `Group`s.
    op, threshold:
        The comparison; with the op "is" the threshold is the name of an outcome. Both None for a claim that brings its
        own rule.
    of:
        The group it is about, or None for the circuit of the file.
    line, column:
        Where the claim's name stands.
    index:
        Its position in ``claims``.
    xfail, skip:
        Why it is expected to be refuted, or is not measured; "" where it is an ordinary claim.
    """

    id: str
    claim: str
    options: Mapping[str, Any]
    op: Comparison | None
    threshold: float | str | None
    of: str | None = None
    line: int = 1
    column: int = 1
    index: int = 0
    xfail: str = ""
    skip: str = ""


@dataclass(frozen=True)
class Spec:
    """A checked spec file.

    Attributes
    ----------
    path:
        The file; relative circuit files were resolved beside it.
    models:
        One or more, as written.
    task, task_options:
        Name, and the keyword options of `Lab` that the file sets (discover, evaluate, seed, …).
    circuit:
        Options of `Lab.shared` or `Lab.minimal` (a mapping; `circuittest.find.recipe.propose`), a `Circuit` (from a
        file or ids), or None where every claim names a group.
    groups:
        Circuits by name.
    claims:
        In the order of the file.
    correction:
        "holm": the claims of the file are judged together (`circuittest.spec.correction`); None: each by itself.
    lock:
        What lies beside the file as ``x.circuit.lock``, or None. Claims then judge the locked circuit.
    rediscover:
        ``circuit: rediscover``: find the locked circuit's like on the model at hand, and judge that one.
    places:
        (line, column) of what can still be wrong once a model is there: ``model``, ``task``, ``circuit``, and
        ``circuit:ID``, ``GROUP:ID`` or ``INDEX.OPTION:ID`` for unit ids.
    """

    path: Path
    file: str
    models: tuple[str, ...]
    task: str
    task_options: Mapping[str, Any]
    circuit: Circuit | Mapping[str, Any] | None
    groups: Mapping[str, Circuit]
    claims: tuple[ClaimSpec, ...]
    correction: Literal["holm"] | None = None
    lock: Lock | None = None
    rediscover: bool = False
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@cache
def options_model(name: str, function: Callable[..., Any]) -> type[ClaimModel]:
    """The pydantic model of one claim's keys: those of `ClaimModel` and the keyword options of its function.

    `function` is called as ``function(lab, circuit, *, option: type = default, …)`` (see `ClaimKind`); options without
    annotation accept anything, those without default are required.
    """
    parameters = inspect.signature(function).parameters.values()
    options = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in RESERVED]
    types = _types(function, [p.name for p in options])
    fields: dict[str, Any] = {}
    for option in options:
        default = ... if option.default is option.empty else option.default
        hint = types.get(option.name, Any)
        if _is_group(hint):
            hint = Word | Ids | (None if default is None else Word)
        if option.name == "seed" and hint is int:
            hint = Seed
        fields[option.name] = (hint, Field(default, alias=spelled(option.name)))
    return create_model(f"{name} claim", __base__=ClaimModel, **fields)


def spelled(option: str) -> str:
    """How files write an option: without the underscore that keeps it from being a word of Python (``from_``)."""
    return option.rstrip("_")


@cache
def group_options(function: Callable[..., Any]) -> tuple[str, ...]:
    """The options of a claim function that name groups of units."""
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return tuple(name for name, hint in _types(function, names).items() if _is_group(hint))


def _is_group(hint: Any) -> bool:
    return hint is Group or Group in get_args(hint)


def takes(function: Callable[..., Any], option: str) -> bool:
    """Does a claim function have this option?"""
    return option in inspect.signature(function).parameters


def compares(function: Callable[..., Any]) -> bool:
    """Does a claim function compare with a lock? It says so by the option ``baseline: str = "lock"``."""
    option = inspect.signature(function).parameters.get("baseline")
    return option is not None and option.default == "lock"


def _types(function: Callable[..., Any], names: list[str]) -> dict[str, Any]:
    """The option types alone: lab and circuit may be annotated with names that are imported for type checkers only."""

    class Shim:
        pass

    raw = {name: hint for name, hint in getattr(function, "__annotations__", {}).items() if name in names}
    Shim.__annotations__ = raw
    return get_type_hints(Shim, globalns=getattr(function, "__globals__", {}), include_extras=True)

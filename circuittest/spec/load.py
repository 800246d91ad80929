"""Reading a spec file: every mistake is a `SpecError` with file, line and column, and no code of the file runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuittest.circuit import Circuit
from circuittest.claims.groups import Group, referenced, split
from circuittest.errors import CircuittestError, SpecError, UnitError, UsageError, did_you_mean
from circuittest.lock import Lock, lock_path
from circuittest.spec.known import (
    check_given,
    check_named_tasks,
    check_partitions,
    check_task,
    examples_of,
    interpolated,
    partitions,
    remembered,
)
from circuittest.spec.lock import asked
from circuittest.spec.messages import validate
from circuittest.spec.schema import (
    THRESHOLDS,
    ClaimModel,
    ClaimSpec,
    FileCircuit,
    FileModel,
    FoundCircuit,
    MinimalCircuit,
    Spec,
    TaskModel,
    UnitsCircuit,
    group_options,
    options_model,
    spelled,
    takes,
)
from circuittest.spec.yaml import Document, Path_, read_yaml
from circuittest.stats.labels import known
from circuittest.units import parse

if TYPE_CHECKING:
    from circuittest.claims import ClaimKind

_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LOOKS_LIKE_ID = re.compile(r"L\d|embed|logits")


def load_spec(path: str | Path, *, name: str | None = None, locked: bool = True) -> Spec:
    """Read and check a spec file, and the lock beside it.

    Parameters
    ----------
    path:
        The file.
    name:
        What messages call it; the path by default.
    locked:
        False: as if there were no lock, to write one.

    Raises
    ------
    SpecError
        With file, line and column. Whether the model has the units that the file names is not known here (see
        `circuittest.spec.judge`).
    """
    document = interpolated(read_yaml(path, name=name))
    if not isinstance(document.data, dict):
        raise document.error((), "a spec is a mapping", "", "begin with 'circuittest: 1'")
    if "circuittest" not in document.data:
        raise document.error(
            (), "the key 'circuittest' is missing", "it says the version", "begin with 'circuittest: 1'"
        )
    if (found := document.data["circuittest"]) != 1 or isinstance(found, bool):
        what, why = f"'circuittest' is {found!r}", "this release reads version 1"
        raise document.error(("circuittest",), what, why, "write 'circuittest: 1'")
    file = validate(FileModel, document, (), "the spec")
    check_given(document, (), "the spec")
    models = (file.model,) if isinstance(file.model, str) else tuple(file.model)
    for index, model in enumerate(models):
        if model in models[:index]:
            raise document.error(("model", index), f"the model {model!r} is listed twice", "", "remove one")
    task, task_options = _task(document)
    check_task(document, task, Path(path).parent)
    examples = remembered(lambda: examples_of(task, Path(path).parent))
    groups = {group: _group(document, group) for group in file.groups}
    lock = _lock(document, Path(path)) if locked else None
    rediscover = file.circuit == "rediscover"
    if rediscover:
        circuit: Circuit | Mapping[str, Any] | None = _recipe(document, Path(path), lock)
    else:
        circuit = None if file.circuit is None else _circuit(document, Path(path).parent)
    claims: list[ClaimSpec] = []
    for index in range(len(file.claims)):
        claims.append(_claim(document, index, groups, circuit is not None, claims))
        for name, given in partitions(claims[-1].options).items():
            check_partitions(document, ("claims", index, claims[-1].claim, name), given, examples)
    spec = Spec(
        path=Path(path),
        file=document.file,
        models=models,
        task=task,
        task_options=task_options,
        circuit=circuit,
        groups=groups,
        claims=tuple(claims),
        correction=file.correction,
        lock=lock,
        rediscover=rediscover,
        places=_places(document, groups),
    )
    if lock is not None:
        _belongs(document, spec, lock)
    return spec


def _lock(document: Document, path: Path) -> Lock | None:
    """The lock beside a spec, if there is one."""
    there = lock_path(path)
    return Lock.load(there, name=lock_path(document.file).as_posix()) if there.exists() else None


def _recipe(document: Document, path: Path, lock: Lock | None) -> Mapping[str, Any]:
    """How the locked circuit was found."""
    if lock is None:
        try:
            lock = Lock.load(lock_path(path), name=lock_path(document.file).as_posix())
        except SpecError as error:
            what, do = (
                "there is no lock to find the circuit's like by",
                "say how it is found: {top: 20%, at: 95}",
            )
            raise document.error(("circuit",), what, error.what, do) from None
    recipe = lock.spec.get("circuit")
    if not isinstance(recipe, Mapping):
        why = "the lock's circuit was given by its members"
        raise document.error(("circuit",), "the circuit cannot be found again", why, "remove 'rediscover'")
    return recipe


def _belongs(document: Document, spec: Spec, lock: Lock) -> None:
    """Refuse a lock that was made for something else than the file says."""
    if len(spec.models) > 1:
        what, why = f"the spec names {len(spec.models)} models", "its lock is of one"
        raise document.error(("model",), what, why, "write a spec for each, or remove the lock")
    now, then = asked(spec), lock.spec
    for key, place in (("task", "task"), ("task_options", "task"), ("circuit", "circuit")):
        if now[key] != then.get(key):
            what = f"the {place} is not the one of the lock"
            why = f"the lock was made for {then.get(key)!r:.120}, and the file says {now[key]!r:.120}"
            do = "write the lock again on the base model, with --circuit-update=all, or take the change back"
            raise document.error((place,) if place in document.data else (), what, why, do)


def _task(document: Document) -> tuple[str, Mapping[str, Any]]:
    if isinstance(document.data["task"], str):
        return document.data["task"], {}
    task = validate(TaskModel, document, ("task",), "task")
    check_given(document, ("task",), "task")
    return task.posed(), task.options()


def _group(document: Document, group: str) -> Circuit:
    path: Path_ = ("groups", group)
    if not _GROUP.fullmatch(group):
        why = "it appears in ids"
        raise document.error(
            path, f"{group!r} cannot name a group", why, "use letters, digits, _ and -", key=True
        )
    if group in ("embed", "logits"):
        raise document.error(
            path, f"{group!r} cannot name a group", "it is a unit", "use another name", key=True
        )
    return _members(document, path, name=group)


def _members(document: Document, path: Path_, *, name: str) -> Circuit:
    """The circuit of a list of ids; the place of a wrong one is known."""
    ids: Any = document.data
    for part in path:
        ids = ids[part]
    for index, text in enumerate(ids):
        try:
            parse(text)
        except UnitError as error:
            raise document.error((*path, index), error.what, error.why, error.do) from None
        if text in ids[:index]:
            raise document.error((*path, index), f"{text} is listed twice", "", "remove one")
    return Circuit.of(ids, name=name)


def _circuit(document: Document, folder: Path) -> Circuit | Mapping[str, Any]:
    keys = set(document.data["circuit"])
    if "file" in keys:
        given = validate(FileCircuit, document, ("circuit",), "circuit (of a file)")
        try:
            return Circuit.load(folder / given.file)
        except CircuittestError as error:
            text = "there is no such file" if isinstance(error.__cause__, FileNotFoundError) else error.why
            why = (
                f"{text}; it is looked for beside the spec" if isinstance(error.__cause__, OSError) else text
            )
            raise document.error(
                ("circuit", "file"), f"the circuit file {given.file!r} cannot be used", why
            ) from None
    if "units" in keys:
        validate(UnitsCircuit, document, ("circuit",), "circuit (of units)")
        return _members(document, ("circuit", "units"), name="circuit")
    if not keys:
        do = "write {top: 20%, at: 95}, {method: minimal}, {file: …} or {units: […]}"
        raise document.error(("circuit",), "the circuit is empty", "", do)
    minimal = document.data["circuit"].get("method") == "minimal"
    kind, what = (MinimalCircuit, "circuit (minimal)") if minimal else (FoundCircuit, "circuit")
    found = validate(kind, document, ("circuit",), what)
    check_given(document, ("circuit",), what)
    _check_used(document)
    return found.model_dump(exclude_none=True)


def _check_used(document: Document) -> None:
    """Refuse what would be read and then have no part in how the circuit is found."""
    given = document.data["circuit"]
    method, level = given.get("method", "eap"), given.get("level", "units")
    unused = {
        "steps": method not in ("eap-ig", "minimal") and "only the path of eap-ig has steps",
        "score": (method == "exact" and "exact patching measures every unit itself")
        or (level == "edges" and "edges are ranked by their own scores"),
    }
    for key, why in unused.items():
        if why and key in given:
            raise document.error(
                ("circuit", key), f"{key!r} of circuit has no use here", why, "remove it", key=True
            )


def _claim(
    document: Document, index: int, groups: Mapping[str, Circuit], has_circuit: bool, earlier: list[ClaimSpec]
) -> ClaimSpec:
    from circuittest.claims import claim_kind

    entry = document.data["claims"][index]
    if len(entry) != 1:
        what = f"a claim is one key, not {len(entry)}" if entry else "a claim is missing here"
        do = "write one claim per item, as '- necessity: {min: 0.3}'"
        raise document.error(("claims", index), what, "indent what belongs to it" if entry else "", do)
    (claim,) = entry
    path: Path_ = ("claims", index, claim)
    line, column = document.place(path, key=True)
    try:
        kind = claim_kind(claim)
    except UsageError as error:
        raise document.error(path, error.what, error.why, error.do, key=True) from None
    label = f"the claim {claim}"
    if not isinstance(entry[claim], dict):
        do = f"write '- {claim}: {{min: 0.3}}'"
        raise document.error(path, f"{label} is given no mapping", "a claim has at least a threshold", do)
    options = validate(options_model(claim, kind.function), document, path, label)
    check_given(document, path, label, but=THRESHOLDS)
    op, threshold = _threshold(document, path, label, options, kind)
    if options.of is not None and options.of not in groups:
        do = did_you_mean(options.of, groups) if groups else "add it under 'groups'"
        raise document.error((*path, "of"), f"no group {options.of!r}", "", do)
    if not kind.takes_circuit and options.of is not None:
        why = "it is about the task as a whole"
        raise document.error((*path, "of"), f"{label} takes no circuit", why, "remove 'of'", key=True)
    if kind.takes_circuit and options.of is None and not has_circuit:
        do = "add 'circuit' to the spec, or 'of' to the claim"
        raise document.error(path, f"{label} is about no circuit", "the spec gives none", do, key=True)
    own = options.model_dump(include=options.model_fields_set - set(ClaimModel.model_fields))
    named = [options.of] if options.of else []
    for name in group_options(kind.function):
        if own.get(name) is not None:
            named += [own[name]] if isinstance(own[name], str) else []
            own[name] = _reference(document, (*path, spelled(name)), own[name], groups)
    check_named_tasks(document, path, claim, own)
    chosen = options.id or (f"{claim}[{','.join(named)}]" if named else claim)
    for other in earlier:
        if other.id == chosen:
            at: Path_ = (*path, "id") if options.id else path
            why = f"the claim in line {other.line} has it already"
            raise document.error(
                at,
                f"the id {chosen!r} is taken",
                why,
                "give this claim an 'id' of its own",
                key=not options.id,
            )
    if options.xfail and options.skip:
        why = "a claim that is not measured is not refuted"
        raise document.error((*path, "skip"), f"{label} has 'xfail' and 'skip'", why, "keep one", key=True)
    why_not = {"xfail": options.xfail or "", "skip": options.skip or ""}
    return ClaimSpec(chosen, claim, own, op, threshold, options.of, line, column, index, **why_not)


def _reference(document: Document, path: Path_, given: Any, groups: Mapping[str, Circuit]) -> Group:
    """The group that an option names; the place of a wrong id is known."""
    many = isinstance(given, list)
    try:
        for index, text in enumerate(given if many else ()):
            path = (*path[:4], index)
            referenced([text], {})
        return referenced(given, groups)
    except (UnitError, UsageError) as error:
        text = given[path[4]] if many else given
        bare, _ = split(text)
        if bare not in groups and not _LOOKS_LIKE_ID.match(text):
            known = did_you_mean(bare, groups) if groups else "add it under 'groups', or list unit ids"
            raise document.error(path, f"no group {bare!r}", "it is no unit id either", known) from None
        raise document.error(path, error.what, error.why, error.do) from None


def _threshold(
    document: Document, path: Path_, label: str, options: ClaimModel, kind: ClaimKind
) -> tuple[Any, float | str | None]:
    given = [key for key in THRESHOLDS if ("is_" if key == "is" else key) in options.model_fields_set]
    names = "min (≥), above (>), max (≤) or below (<)"
    if kind.labels:
        names += f", or 'is' with one of {', '.join(kind.labels)}"
    if not given:
        if takes(kind.function, "margin") and not kind.labels:
            margin = float(options.model_dump()["margin"])
            _check_limits(document, (*path, "margin"), label, margin, options, kind)
            return "<=", margin
        raise document.error(path, f"{label} has no threshold", "", f"add one of {names}", key=True)
    if len(given) > 1:
        second = max(given, key=lambda key: document.place((*path, key), key=True))
        why = f"it says {' and '.join(repr(key) for key in given)}"
        do = "keep one; make it two claims where both matter"
        raise document.error((*path, second), f"{label} has {len(given)} thresholds", why, do, key=True)
    (key,) = given
    value = options.is_ if key == "is" else getattr(options, key)
    if value is None:
        do = "give it a name" if key == "is" else "give it a number"
        raise document.error((*path, key), f"{key!r} of {label} is empty", "", do)
    if key == "is":
        try:
            return "is", known(label, value, kind.labels)
        except UsageError as error:
            raise document.error((*path, key), error.what, error.why, error.do) from None
    _check_limits(document, (*path, key), label, float(value), options, kind)
    most = options.model_dump().get("margin")
    if key in ("max", "below") and isinstance(most, float) and float(value) > most:
        what, why = (
            f"{key!r} of {label} is {value:g} and its margin {most:g}",
            "the margin is what may change",
        )
        raise document.error((*path, key), what, why, f"remove {key!r}, or write the margin that is meant")
    return THRESHOLDS[key], float(value)


def _check_limits(
    document: Document, path: Path_, label: str, value: float, options: ClaimModel, kind: ClaimKind
) -> None:
    """Refuse a threshold that no estimate could reach, or fail to reach."""
    low, high = kind.limits(
        options.model_dump(include=options.model_fields_set - set(ClaimModel.model_fields))
    )
    if low <= value <= high:
        return
    lies = f"between {low:g} and {high:g}" if low > -inf and high < inf else f"at {low:g} or above"
    lies = lies if low > -inf else f"at {high:g} or below"
    do = (
        f"write {value / 100:g} for {value:g} %"
        if high <= 1 < value <= 100
        else "write a number that can be reached"
    )
    raise document.error(path, f"{str(path[-1])!r} of {label} is {value:g}", f"its estimate lies {lies}", do)


def _places(document: Document, groups: Mapping[str, Circuit]) -> dict[str, tuple[int, int]]:
    places = {key: document.place((key,)) for key in ("model", "task", "circuit") if key in document.data}
    if isinstance(document.data["task"], dict):
        places["task"] = document.place(("task", "name"))
    circuit = document.data.get("circuit") or {}
    circuit = circuit if isinstance(circuit, dict) else {}
    for index, text in enumerate(circuit.get("units", ())):
        places[f"circuit:{text}"] = document.place(("circuit", "units", index))
    if "file" in circuit:
        places["circuit"] = document.place(("circuit", "file"))
    for group in groups:
        for index, text in enumerate(document.data["groups"][group]):
            places[f"{group}:{text}"] = document.place(("groups", group, index))
    for number, entry in enumerate(document.data["claims"]):
        for claim, options in entry.items():
            for option, value in options.items():
                at = ("claims", number, claim, option)
                if isinstance(value, str):
                    places[f"{number}.{option}:{value}"] = document.place(at)
                for index, text in enumerate(value if isinstance(value, list) else ()):
                    places[f"{number}.{option}:{text}"] = document.place((*at, index))
    return places

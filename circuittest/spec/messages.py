"""What pydantic found, in the words of this project."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from circuittest.errors import SpecError, did_you_mean
from circuittest.spec.yaml import Document, Path_

_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?")
_SUCH = {"int_type": "0", "float_type": "0.3"}
#: Keys whose value is a percentage.
_SHARES = ("top", "cap")
M = TypeVar("M", bound=BaseModel)

_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}


def validate(model: type[M], document: Document, path: Path_, what: str) -> M:
    """The value at a path as a model.

    Parameters
    ----------
    what:
        What the mapping is called in messages ("task", "claim necessity").

    Raises
    ------
    SpecError
        The first mistake in the order of the file, at its place.
    """
    value = _at(document.data, path)
    try:
        # Through JSON: strict there still takes a list for a tuple or a set, and turns no text into a number.
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise _first(error, model, document, path, what) from None


def _first(
    error: ValidationError, model: type[BaseModel], document: Document, path: Path_, what: str
) -> SpecError:
    found = error.errors(include_url=False)

    def rank(one: Mapping[str, Any]) -> tuple[Any, ...]:
        # A key that does not exist explains more than what is missing because of it; then the order of the file; and
        # where a value may be one thing or another, the mistake deepest inside it.
        where = _inner(document, path, one["loc"])
        return one["type"] != "extra_forbidden", document.place(where[: len(path) + 1]), -len(where)

    found.sort(key=rank)
    first = found[0]
    kind, where, inner = first["type"], _inner(document, path, first["loc"]), first.get("ctx", {})
    if kind == "extra_forbidden":
        name = str(first["loc"][-1])
        known = sorted(field.alias or name for name, field in model.model_fields.items())
        return document.error(
            where, f"unknown key {name!r} in {what}", "", did_you_mean(name, known), key=True
        )
    if kind == "missing":
        name = str(first["loc"][-1])
        return document.error(where, f"the key {name!r} is missing in {what}", "", f"add {name!r}")
    key = where[-1] if len(where) > len(path) else what
    shown = f"{key!r} of {what}" if len(where) > len(path) else what
    if len(where) - len(path) > 1:
        shown = f"{'.'.join(str(part) for part in where[len(path) :])!r} of {what}"
    value = _at(document.data, where)
    alternatives = [e for e in found if _inner(document, path, e["loc"]) == where]
    return document.error(
        where, f"{shown} is {_show(value)}", _either(_wanted(alternatives)), _remedy(kind, inner, value, key)
    )


def _inner(document: Document, path: Path_, loc: Iterable[str | int]) -> Path_:
    """The place in the file that a location of pydantic means: names of alternatives are no part of it."""
    for part in loc:
        if (*path, part) in document.places:
            path = (*path, part)
    return path


def _wanted(errors: Iterable[Mapping[str, Any]]) -> list[str]:
    texts: list[str] = []
    for error in errors:
        kind, inner = error["type"], error.get("ctx", {})
        if kind == "literal_error":
            text = f"it is one of {inner['expected']}"
        elif kind.removesuffix("_type") in _WANTED:
            text = f"it must be {_WANTED[kind.removesuffix('_type')]}"
        elif kind in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
            text = error["msg"].replace("Input should be", "it must be")
        elif kind == "too_short":
            text = "it is empty"
        elif kind in ("string_pattern_mismatch", "string_too_short"):
            text = f"it must look like {_example(inner)}"
        else:
            text = error["msg"][0].lower() + error["msg"][1:]
        if text not in texts:
            texts.append(text)
    return texts


def _either(texts: list[str]) -> str:
    start = "it must be "
    rest = [
        text.removeprefix(start) if all(t.startswith(start) for t in texts) else text for text in texts[1:]
    ]
    return " or ".join([*texts[:1], *rest])


def _example(inner: Mapping[str, Any]) -> str:
    pattern = str(inner.get("pattern", ""))
    if "%" in pattern:
        return "20%, and be at most 100%"
    return "a word of letters, digits, _, . and -" if "A-Z" in pattern else "a word"


def _remedy(kind: str, inner: Mapping[str, Any], value: Any, key: object) -> str:
    if kind == "string_type" and key in _SHARES and isinstance(value, (int, float)) and 0 < value <= 100:
        return f"write {value:g}%"
    if kind == "literal_error" and isinstance(value, str):
        known = [word.strip("' ") for word in str(inner["expected"]).replace(" or ", ", ").split(",")]
        close = did_you_mean(value, known)
        return close if close.startswith("did") else ""
    if value is None:
        return "give it a value, or remove the key"
    if kind in ("float_type", "int_type") and isinstance(value, str):
        quoted = _NUMBER.fullmatch(value.strip()) is not None
        return "write the number without quotes" if quoted else f"write a number, such as {_SUCH[kind]}"
    return ""


def _show(value: Any) -> str:
    if value is None:
        return "empty"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _at(data: Any, path: Path_) -> Any:
    for part in path:
        data = data[part]
    return data

"""The JSON Schema of spec files, from which editors complete and check while one types.

Made of the same models and claim signatures that `load_spec` checks with, so that the two cannot drift apart. It knows
what a file may hold, not what a model has: unit ids, groups that a claim names and combinations are `load_spec`'s.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from circuittest.claims import ClaimKind, claim_kinds
from circuittest.spec.schema import (
    THRESHOLDS,
    FileCircuit,
    FileModel,
    FoundCircuit,
    MinimalCircuit,
    TaskModel,
    UnitsCircuit,
    options_model,
    takes,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_GROUP = r"^[A-Za-z_][A-Za-z0-9_-]*$"


def json_schema() -> dict[str, Any]:
    """The schema of ``*.circuit.yaml``, every registered claim included (those of installed packages, too)."""
    schema = _of(FileModel)
    parts: dict[str, Any] = schema["properties"]
    parts["task"] = {"anyOf": [_word(parts["task"]), _of(TaskModel)]}
    found = [_of(FoundCircuit), _of(MinimalCircuit), _of(FileCircuit), _of(UnitsCircuit)]
    parts["circuit"] = {"anyOf": [*found, {"const": "rediscover"}]}
    parts["groups"]["propertyNames"] = {"pattern": _GROUP}
    parts["claims"]["items"] = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {name: _claim(kind) for name, kind in claim_kinds().items()},
    }
    return {"$schema": DIALECT, **schema, "title": "A circuittest spec"}


def _claim(kind: ClaimKind) -> dict[str, Any]:
    schema = _of(options_model(kind.name, kind.function))
    schema["description"] = kind.summary
    if not kind.takes_circuit:
        del schema["properties"]["of"]
    thresholds = {key: op for key, op in THRESHOLDS.items() if op != "is" or kind.labels}
    for key, op in thresholds.items():
        values = {"enum": list(kind.labels)} if op == "is" else {"type": "number"}
        schema["properties"][key] = {**values, "description": f"the estimate {op} this"}
    if not kind.labels:
        del schema["properties"]["is"]
    if kind.labels or not takes(kind.function, "margin"):
        schema["oneOf"] = [{"required": [key]} for key in thresholds]
    return schema


def _of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    schema.pop("title", None)
    for part in schema.get("properties", {}).values():
        part.pop("title", None)
        if "anyOf" in part:  # a key that is there has a value
            choices = [choice for choice in part["anyOf"] if choice.get("type") != "null"]
            part["anyOf"] = choices
            if len(choices) == 1:
                part.pop("anyOf")
                part |= choices[0]
        if part.get("default", "") is None:
            part.pop("default")
    return schema


def _word(part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(choice for choice in part["anyOf"] if choice.get("type") == "string")
    return found

"""The verdict record: what one claim came to, in plain JSON types, stable and the same bytes for the same inputs."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from circuittest.errors import UsageError
from circuittest.report.files import check_free, replace_file

SCHEMA = "circuittest/1"
_PACKAGES = ("circuittest", "torch", "transformers", "numpy", "scipy")
_RUN_CHOICES = ("device", "dtype", "threads")

Record = dict[str, Any]


def record(measured: Any, *, id: str, outcome: str) -> Record:
    """The record of a verdict, or of an estimate that was never judged (verdict "measured").

    Parameters
    ----------
    measured:
        A `Verdict` or an `Estimate`.
    id:
        ``nodeid`` of a spec's item, or ``nodeid::claim#k``.
    outcome:
        What became of the test: "passed", "failed", "skipped", "xfailed", "xpassed" or "error"; "fixture" for a verdict
        that belongs to no single test.

    Returns
    -------
    dict
        Plain JSON types. An undefined or infinite number is None.

    Raises
    ------
    UsageError
        `choices` or `details` hold something that is no plain data.
    """
    judged = hasattr(measured, "threshold")
    estimate = measured.estimate if judged else measured
    invalid = bool(estimate.invalid)
    interval = None if invalid else estimate.interval
    driven = getattr(measured, "driven", None) or {}
    verdict = measured.outcome if judged else ("invalid" if invalid else "measured")
    return {
        "id": id,
        "claim": estimate.claim,
        "model": estimate.model,
        "fingerprint": estimate.fingerprint,
        "task": estimate.task,
        "circuit": _circuit(estimate.circuit),
        "examples": plain(estimate.examples, "examples"),
        "estimate": plain(estimate.value, "estimate"),
        "interval": plain(interval, "interval"),
        "censored": estimate.censored,
        "confidence": float(estimate.confidence),
        "p_value": plain(measured.p_value, "p_value") if judged else None,
        "threshold": {"op": measured.op, "value": plain(measured.threshold, "threshold")} if judged else None,
        "margin": plain(estimate.margin, "margin"),
        "verdict": verdict,
        "label": estimate.label,
        "reason": measured.reason if judged else estimate.invalid or estimate.undecided,
        "outcome": outcome,
        "n_examples": int(estimate.n_examples),
        "n_controls": None if estimate.n_controls is None else int(estimate.n_controls),
        "choices": plain(estimate.choices, "choices"),
        "details": plain({**estimate.details, **({"driven_by": driven} if driven else {})}, "details"),
    }


def plain(value: Any, where: str = "value") -> Any:
    """Plain JSON types for mappings, sequences, arrays and numbers; numbers that are not finite become None."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner, f"{where}.{key}") for key, inner in value.items()}
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return plain(value.tolist(), where)
    if isinstance(value, (list, tuple)):
        return [plain(inner, where) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(inner, where) for inner in value)
    if type(value).__module__ == "circuittest.units":
        return str(value)
    kind = type(value).__name__
    raise UsageError(
        f"{where} of an estimate holds a {kind}", "records are plain data", "store numbers, text and lists"
    )


def environment(records: Iterable[Record] = ()) -> dict[str, Any]:
    """Versions, and the devices, number types and thread counts that the records name; no host, path or time."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    chosen = [record["choices"] for record in records]
    for key in _RUN_CHOICES:
        found[key] = sorted({choices[key] for choices in chosen if choices.get(key) is not None}, key=str)
    return found


def document(records: Iterable[Record]) -> dict[str, Any]:
    """The whole file: schema, environment, and the records sorted by id."""
    listed = sorted(records, key=lambda record: record["id"])
    return {"schema": SCHEMA, "environment": environment(listed), "claims": listed}


def render(records: Iterable[Record]) -> str:
    """The text of the file: sorted keys, no NaN, one newline at the end."""
    return json.dumps(document(records), indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def write_records(path: str | Path, records: Iterable[Record]) -> None:
    """Write the file in one step (a reader sees the old one or the new one). Raises UsageError; see `check_ours`."""
    check_ours(path)
    replace_file(path, render(records))


def read_records(path: str | Path) -> dict[str, Any]:
    """Read a file of records. Raises UsageError when it is none."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        if not text.strip():
            raise UsageError(
                f"{path} holds no verdict records", "it is empty", "write it with --circuit-json"
            )
        data = json.loads(text)
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error)) from error
    except ValueError as error:
        raise UsageError(f"{path} holds no verdict records", f"it is not JSON ({error})") from error
    if not isinstance(data, dict) or not str(data.get("schema", "")).startswith("circuittest/"):
        raise UsageError(f"{path} holds no verdict records", "its 'schema' is not circuittest/…")
    return data


def check_ours(path: str | Path) -> None:
    """Raise UsageError where writing would overwrite a file that holds no verdict records."""
    check_free(path, read_records, "file of verdict records")


def _circuit(circuit: Any) -> dict[str, Any] | None:
    if circuit is None:
        return None
    return {
        "name": str(getattr(circuit, "name", "circuit")),
        "units": [str(unit) for unit in getattr(circuit, "units", ())],
        "edges": [str(edge) for edge in getattr(circuit, "edges", ())],
    }

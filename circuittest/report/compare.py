"""Two files of records side by side: which claims are new or gone, whose verdict changed, whose estimate moved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from circuittest.errors import UsageError
from circuittest.report.records import SCHEMA, Record, read_records

#: From good to bad. "measured" is no verdict: nobody judged the estimate.
_RANKS = {"supported": 0, "undecided": 1, "invalid": 2, "refuted": 3}
_FIELDS = (
    "id",
    "claim",
    "model",
    "task",
    "verdict",
    "estimate",
    "interval",
    "threshold",
    "label",
    "censored",
)

Way = Literal["worse", "better", "other"]


def read_claims(path: str | Path) -> dict[str, Record]:
    """Id → record of a file that `--circuit-json` wrote. Raises UsageError where it is none."""
    data = read_records(path)
    if data["schema"] != SCHEMA:
        raise UsageError(f"{path} cannot be compared", f"its schema is {data['schema']}, not {SCHEMA}")
    listed = data.get("claims")
    if not isinstance(listed, list) or not all(map(_whole, listed)):
        raise UsageError(
            f"{path} holds no verdict records", "its 'claims' are not records", "write it with --circuit-json"
        )
    found = {record["id"]: record for record in listed}
    if len(found) < len(listed):
        raise UsageError(f"{path} cannot be compared", "an id is there twice")
    return found


def compare(before: Mapping[str, Record], after: Mapping[str, Record]) -> dict[str, list[dict[str, Any]]]:
    """What differs, sorted by id.

    Returns
    -------
    dict
        ``new`` and ``gone``: id and verdict. ``verdict``: from, to, and which way (worse, better; other where one side
        was never judged, or where another outcome's name holds). ``moved``: each estimate lies outside the other's
        interval. ``asked``: another threshold, so that the verdicts answer different questions.
    """
    both = sorted(set(before) & set(after))
    pairs = [(before[name], after[name]) for name in both]
    return {
        "new": [_named(after[name]) for name in sorted(set(after) - set(before))],
        "gone": [_named(before[name]) for name in sorted(set(before) - set(after))],
        "verdict": [
            {"id": old["id"], "from": _verdict(old), "to": _verdict(new), "way": _way(old, new)}
            for old, new in pairs
            if _verdict(old) != _verdict(new)
        ],
        "moved": [
            {
                "id": old["id"],
                "from": {"estimate": old["estimate"], "interval": old["interval"]},
                "to": {"estimate": new["estimate"], "interval": new["interval"]},
            }
            for old, new in pairs
            if _outside(new["estimate"], old["interval"]) and _outside(old["estimate"], new["interval"])
        ],
        "asked": [
            {"id": old["id"], "from": old["threshold"], "to": new["threshold"]}
            for old, new in pairs
            if old["threshold"] != new["threshold"]
        ],
    }


def got_worse(found: Mapping[str, list[dict[str, Any]]]) -> bool:
    """Did a verdict get worse?"""
    return any(change["way"] == "worse" for change in found["verdict"])


def _whole(record: Any) -> bool:
    """Is this a record, as far as a comparison needs it?"""
    if not isinstance(record, dict) or not all(field in record for field in _FIELDS):
        return False
    interval, estimate = record["interval"], record["estimate"]
    ends = [] if interval is None else interval
    numbers = [estimate, *ends] if isinstance(ends, list) else ["no interval"]
    return (
        isinstance(record["id"], str)
        and isinstance(record["verdict"], str)
        and len(numbers) in (1, 3)
        and all(
            value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
            for value in numbers
        )
        and (
            record["threshold"] is None
            or (isinstance(record["threshold"], dict) and {"op", "value"} <= set(record["threshold"]))
        )
    )


def _named(record: Record) -> dict[str, Any]:
    return {"id": record["id"], "verdict": _verdict(record)}


def _verdict(record: Record) -> str:
    return f"{record['verdict']} ({record['label']})" if record["label"] else str(record["verdict"])


def _way(old: Record, new: Record) -> Way:
    ranks = _RANKS.get(old["verdict"]), _RANKS.get(new["verdict"])
    if ranks[0] is None or ranks[1] is None or ranks[0] == ranks[1]:
        return "other"
    return "worse" if ranks[1] > ranks[0] else "better"


def _outside(value: float | None, interval: list[float | None] | None) -> bool:
    """Is a value outside an interval? An end that is None is open; without value or interval nothing is outside."""
    if value is None or interval is None:
        return False
    low, high = interval
    return (low is not None and value < low) or (high is not None and value > high)

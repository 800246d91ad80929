"""What came out of a series, spec by spec: verdicts, sizes, similarities, and since when a claim holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from circuittest.find.series import holds_from, smoothed, smoothed_in_time
from circuittest.find.shared import overlap
from circuittest.sweep.series import Series

_UNDEFINED: dict[str, float | None] = {"jaccard": None, "chance": None}


def summary(series: Series, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry a spec, in plain JSON types.

    Returns
    -------
    list
        Of mappings ``spec``; ``rows``, one a model: ``model``, ``time``, ``accuracy``, ``absent``, ``size`` (members:
        units or edges), ``units`` (that they touch), ``share``, ``to_final``, ``to_final_chance``, ``to_previous``,
        ``chance``, ``smoothed``, ``smoothed_in_time``, ``verdicts``; ``present_from``, the model from which the
        behaviour is there and stays; ``holds_from`` (claim → model, or None).

        What needs a circuit is None where the behaviour is absent, where the circuit is empty on either side, and where
        the spec gives one circuit for all models, whose overlaps say nothing. The final circuit is that of the last
        model: where it has none, ``to_final`` is None everywhere.
    """
    found = []
    for number, spec in enumerate(series.specs):
        first = number * len(series.models)
        part = results[first : first + len(series.models)]
        found.append({"spec": spec.name, **_spec(series, part)})
    return found


def _spec(series: Series, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    circuits = [one["circuit"] for one in results]
    neighbours = [_similarity(circuits[i - 1], one) if i else _UNDEFINED for i, one in enumerate(circuits)]
    values = [one["jaccard"] for one in neighbours]
    means, in_time = smoothed(values), _in_time(series, values)
    rows = []
    claims: dict[str, list[bool | None]] = {}
    for i, one in enumerate(results):
        circuit, to_final = circuits[i], _similarity(circuits[i], circuits[-1])
        verdicts = {}
        for record in one["records"]:
            name = record["id"].split("::", 1)[1].removesuffix(f"[{one['model']}]")
            verdicts[name] = {
                key: record[key] for key in ("verdict", "label", "estimate", "interval", "reason")
            }
            claims.setdefault(name, []).append(record["verdict"] == "supported")
        rows.append(
            {
                "model": one["model"],
                "time": None if series.times is None else series.times[i],
                "accuracy": one["accuracy"],
                "absent": one["absent"],
                "size": None if circuit is None else len(circuit["members"]),
                "units": None if circuit is None else len(circuit["units"]),
                "share": None if circuit is None else len(circuit["members"]) / circuit["possible"],
                "to_final": to_final["jaccard"],
                "to_final_chance": to_final["chance"],
                "to_previous": values[i],
                "chance": neighbours[i]["chance"],
                "smoothed": means[i],
                "smoothed_in_time": None if in_time is None else in_time[i],
                "verdicts": verdicts,
            }
        )
    present = holds_from([not one["absent"] for one in results])
    since = {name: holds_from(held) for name, held in claims.items()}
    return {
        "rows": rows,
        "present_from": _named(series, present),
        "holds_from": {name: _named(series, at) for name, at in since.items()},
    }


def _named(series: Series, at: int | None) -> str | None:
    return None if at is None else series.models[at]


def _has(circuit: dict[str, Any] | None) -> bool:
    return circuit is not None and bool(circuit["members"])


def _similarity(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, float | None]:
    if a is None or b is None or not (_has(a) and _has(b)) or a["given"] or a["possible"] != b["possible"]:
        return _UNDEFINED
    return overlap(a["members"], b["members"], a["possible"])


def _in_time(series: Series, values: list[float | None]) -> list[float | None] | None:
    if series.times is None or len(series.times) < 2:
        return None
    spacing = [b - a for a, b in pairwise(series.times)]
    return smoothed_in_time(values, series.times, series.half_life or float(median(spacing)))

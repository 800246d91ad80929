"""What came out of a series, spec by spec and run by run: verdicts, circuits, roles, and since when something holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from circuittest.find.series import holds_from, smoothed, smoothed_in_time
from circuittest.find.shared import overlap
from circuittest.sweep.resampled import alike, bands, same_and_apart
from circuittest.sweep.roles import role_curves
from circuittest.sweep.scale import against_parameters
from circuittest.sweep.series import Series

_UNDEFINED: dict[str, float | None] = {"jaccard": None, "chance": None}
#: Sizes of a circuit, as rows have them.
SIZES = ("edges", "edges_share", "nodes", "nodes_share")

Result = Mapping[str, Any]


def summary(series: Series, results: Sequence[Result]) -> list[dict[str, Any]]:
    """One entry for each run of each spec, in plain JSON types.

    Returns
    -------
    list
        Of mappings:

        - ``spec``, ``run`` ("" where the series lists models);
        - ``rows``, one a model: ``model``, ``time``, ``parameters``, ``accuracy``, ``absent``, ``behaviour``; ``size``
          (members: units or edges), ``units`` (that they touch), ``share``, and `SIZES` (numbers, and shares of all
          there are); ``to_final``, ``to_previous`` (Jaccard index) with ``…_chance`` (of ``to_previous``: ``chance``)
          and ``…_band`` (the middle 95 % over resampled examples); ``same`` and ``apart``
          (`circuittest.sweep.resampled.same_and_apart`, with the model before); ``smoothed``, ``smoothed_in_time`` and
          their bands; ``verdicts``;
        - ``appears_at`` and ``present_from``, the models at which the behaviour is there first, and from which it
          stays; ``holds_from`` (claim → model, or None);
        - ``roles`` (`circuittest.sweep.roles.role_curves`).

        What needs a circuit is None where the behaviour is absent, where the circuit is empty on either side, where two
        models are not of one architecture, and where the spec gives one circuit for all models, whose overlaps say
        nothing. The final circuit is that of the run's last model: where it has none, ``to_final`` is None everywhere.
    """
    return [
        {
            "spec": spec.name,
            "run": run,
            **_run(
                [series.models[i] for i in places],
                None if series.times is None else [series.times[i] for i in places],
                [results[number * len(series.models) + i] for i in places],
                series,
            ),
        }
        for number, spec in enumerate(series.specs)
        for run, places in series.runs
    ]


def scales(series: Series, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sizes and estimates against the logarithm of parameters, over models of several sizes.

    A point is a model of the list or, where the series has runs, the mean over the checkpoints of a run at which the
    quantity is defined (from ``average_from`` on).

    Parameters
    ----------
    found:
        What `summary` gave.

    Returns
    -------
    list
        For each spec and quantity (`SIZES`, and the estimate of every claim by its name): ``spec``, ``quantity``, and
        what `circuittest.sweep.scale.against_parameters` says. Nothing where all models have as many parameters.
    """
    scales = []
    for spec in series.specs:
        entries = [one for one in found if one["spec"] == spec.name]
        if len({row["parameters"] for entry in entries for row in entry["rows"]}) < 2:
            continue
        claims = dict.fromkeys(name for entry in entries for name in entry["holds_from"])
        for quantity in (*SIZES, *claims):
            points = [point for entry in entries for point in _points(series, entry, quantity)]
            if any(point["value"] is not None for point in points):
                scales.append({"spec": spec.name, "quantity": quantity, **against_parameters(points)})
    return scales


def _points(series: Series, entry: Mapping[str, Any], quantity: str) -> list[dict[str, Any]]:
    since = series.average_from
    rows = [row for row in entry["rows"] if since is None or row["time"] >= since]
    points = [
        {"model": row["model"], "parameters": row["parameters"], "value": _value(row, quantity)}
        for row in rows
    ]
    if not entry["run"]:
        return points
    sizes = {point["parameters"] for point in points}
    values = [point["value"] for point in points if point["value"] is not None]
    size = next(iter(sizes)) if len(sizes) == 1 else None
    return [{"model": entry["run"], "parameters": size, "value": fmean(values) if values else None}]


def _value(row: Mapping[str, Any], quantity: str) -> float | None:
    found: float | None = (
        row[quantity] if quantity in SIZES else row["verdicts"].get(quantity, {}).get("estimate")
    )
    return found


def _run(
    names: Sequence[str], times: Sequence[float] | None, results: Sequence[Result], series: Series
) -> dict[str, Any]:
    circuits = [one["circuit"] for one in results]
    final = [_similarity(one, circuits[-1]) for one in circuits]
    neighbours = [_UNDEFINED, *(_similarity(a, b) for a, b in pairwise(circuits))]
    samples = [_samples(one) for one in circuits]
    drawn = [[], *(alike(a, b) if _comparable(a, b) else [] for a, b in pairwise(samples))]
    drawn_final = [alike(one, samples[-1]) if _comparable(one, samples[-1]) else [] for one in samples]
    both = [(None, None), *(_same(a, b) for a, b in pairwise(samples))]
    values = [one["jaccard"] for one in neighbours]
    columns: dict[str, Sequence[Any]] = {
        "to_final": [one["jaccard"] for one in final],
        "to_final_chance": [one["chance"] for one in final],
        "to_final_band": bands(drawn_final),
        "to_previous": values,
        "chance": [one["chance"] for one in neighbours],
        "to_previous_band": bands(drawn),
        "same": [same for same, _ in both],
        "apart": [apart for _, apart in both],
        "smoothed": smoothed(values),
        "smoothed_band": _over_samples(drawn, smoothed),
        "smoothed_in_time": [None] * len(names),
        "smoothed_in_time_band": [None] * len(names),
    }
    if times is not None and len(times) > 1:
        half_life = series.half_life or float(median(b - a for a, b in pairwise(times)))
        in_time = lambda values: smoothed_in_time(values, times, half_life)
        columns["smoothed_in_time"] = in_time(values)
        columns["smoothed_in_time_band"] = _over_samples(drawn, in_time)
    rows = []
    claims: dict[str, list[bool | None]] = {}
    for i, one in enumerate(results):
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
                "time": None if times is None else times[i],
                **{key: one[key] for key in ("parameters", "accuracy", "absent", "behaviour")},
                **_sizes(one["circuit"]),
                **{
                    name: list(v) if isinstance(v := column[i], tuple) else v
                    for name, column in columns.items()
                },
                "verdicts": verdicts,
            }
        )
    there = [not one["absent"] for one in results]
    return {
        "rows": rows,
        "appears_at": names[there.index(True)] if any(there) else None,
        "present_from": _named(names, holds_from(there)),
        "holds_from": {name: _named(names, holds_from(held)) for name, held in claims.items()},
        "roles": role_curves(names, results, series.least),
    }


def _named(names: Sequence[str], at: int | None) -> str | None:
    return None if at is None else names[at]


def _sizes(circuit: dict[str, Any] | None) -> dict[str, Any]:
    if circuit is None:
        return dict.fromkeys(("size", "units", "share", *SIZES))
    parts = {name: (circuit[name], circuit[f"of_{name}"]) for name in ("edges", "nodes")}
    return {
        "size": len(circuit["members"]),
        "units": len(circuit["units"]),
        "share": len(circuit["members"]) / circuit["possible"],
        **{name: number for name, (number, _) in parts.items()},
        **{f"{name}_share": None if n is None else n / of for name, (n, of) in parts.items()},
    }


def _comparable(a: dict[str, Any] | None, b: dict[str, Any] | None) -> bool:
    """Are both of one architecture, chosen among the same members, in the model itself?"""
    if a is None or b is None or a["given"] or b["given"]:
        return False
    return bool(a["possible"] == b["possible"] and a["layout"] == b["layout"])


def _similarity(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, float | None]:
    if a is None or b is None or not (_comparable(a, b) and a["members"] and b["members"]):
        return _UNDEFINED
    return overlap(a["members"], b["members"], a["possible"])


def _samples(circuit: dict[str, Any] | None) -> dict[str, Any] | None:
    """The resampled circuits, with what says whether they can be compared; None where there are none."""
    if circuit is None or not circuit["resampled"] or not circuit["resampled"]["sets"]:
        return None
    return {**circuit["resampled"], **{key: circuit[key] for key in ("possible", "layout", "given")}}


def _same(a: dict[str, Any] | None, b: dict[str, Any] | None) -> tuple[float | None, float | None]:
    return same_and_apart(a, b) if _comparable(a, b) else (None, None)


def _over_samples(
    drawn: Sequence[Sequence[float | None]],
    smooth: Callable[[list[float | None]], list[float | None]],
) -> list[Any]:
    """Bands of what smoothing makes of each sample's similarities."""
    draws = max(map(len, drawn))
    each = [smooth([one[draw] if one else None for one in drawn]) for draw in range(draws)]
    return bands([[values[place] for values in each] for place in range(len(drawn))])

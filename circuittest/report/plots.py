"""What can be drawn of one claim: read off its details, whatever claim it is, and left out where they are not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from circuittest.errors import UnitError
from circuittest.report import changes, svg
from circuittest.report.plot import MOST_COLUMNS, MOST_MATRIX, Plot, is_number
from circuittest.units import Unit


def plots(record: Mapping[str, Any]) -> list[Plot]:
    """All plots that a record's details allow, in the order of what they say about the estimate."""
    details = record["details"]
    return [plot for make in _MAKERS for plot in make(record, details)]


def unit_map(
    title: str, caption: str, scores: Mapping[str, float], members: Sequence[str] = ()
) -> Plot | None:
    """Layers × heads (KV groups, experts, …), with frames about the members; None where there is nothing to draw."""
    cells = {}
    for name, value in scores.items():
        try:
            unit = Unit.parse(name)
        except UnitError:
            return None  # groups of heads: no unit of its own
        if unit.layer is not None and is_number(value):
            cells[unit] = float(value)
    inside = {unit for unit in cells if str(unit) in set(members)}
    columns = sorted({_column(unit) for unit in cells})
    if not cells or len(columns) > MOST_COLUMNS:
        return None
    layers = sorted({unit.layer for unit in cells if unit.layer is not None})
    by_place = {(unit.layer, _column(unit)): unit for unit in cells}
    places = [[by_place.get((layer, column)) for column in columns] for layer in layers]
    drawn = svg.grid(
        title,
        [f"L{layer}" for layer in layers],
        [name for _, _, name in columns],
        [[None if unit is None else cells[unit] for unit in row] for row in places],
        marked=[(i, j) for i, row in enumerate(places) for j, unit in enumerate(row) if unit in inside],
    )
    ordered = sorted(cells, key=lambda unit: (-abs(cells[unit]), str(unit)))
    rows = tuple((str(u), svg.number(cells[u]), "yes" if u in inside else "no") for u in ordered)
    return Plot(drawn, caption, ("unit", "value", "in the circuit"), rows)


def _unit_scores(record: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[Plot]:
    members = (record["circuit"] or {}).get("units", [])
    told = {
        "scores": "Mean attribution of each unit on the discovery examples.",
        "effects": "What each unit does by itself, on the discovery examples.",
        "frequency": "Share of the evaluation examples whose own circuit holds the unit.",
    }
    for key, caption in told.items():
        scores = details.get(key)
        if isinstance(scores, dict) and scores and all(map(is_number, scores.values())):
            plot = unit_map(f"{key} of units by layer", caption, scores, members)
            if plot is not None:
                yield plot


def _controls(record: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[Plot]:
    """Of necessity (accuracies) and graded necessity (the metric)."""
    for key, unit in (("acc", "accuracy"), ("m", str(record["choices"].get("metric") or "metric"))):
        dots = details.get(f"{key}_controls")
        marks = [
            (name, details.get(f"{key}_{field}"))
            for name, field in (("circuit ablated", "circuit"), ("nothing ablated", "base"))
        ]
        yield from _strip(
            dots,
            marks,
            unit,
            "control",
            "The dots are random sets of as many units, ablated in the circuit's place. A necessary circuit lies left "
            "of them.",
        )


def _effects(record: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[Plot]:
    """Of closure: each measure, alone and with the complement removed."""
    removed = details.get("with_complement_removed")
    for where, more in (
        (details, ""),
        (removed if isinstance(removed, dict) else {}, ", complement removed"),
    ):
        for measure, part in where.items():
            if isinstance(part, dict) and is_number(part.get("effect")):
                yield from _strip(
                    part.get("controls"),
                    [("the set", part["effect"])],
                    f"damage in {measure}{more}",
                    "control",
                    f"Damage of the set in {measure}{more}, among that of random sets of as many units.",
                )


def _selective(record: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[Plot]:
    damage, controls = details.get("damage"), details.get("damage_controls")
    if isinstance(damage, dict) and isinstance(controls, dict):
        for task, dots in controls.items():
            yield from _strip(
                dots,
                [("this part", damage.get(task))],
                f"damage on {task}",
                "control",
                f"Damage of this part of the circuits on {task}, among that of random sets outside both.",
            )


def _strip(dots: Any, marks: Sequence[tuple[str, Any]], unit: str, row: str, caption: str) -> Iterator[Plot]:
    named = [(name, float(value)) for name, value in marks if is_number(value)]
    if not (isinstance(dots, list) and dots and named and all(map(is_number, dots))):
        return
    title = f"{unit}: " + ", ".join(f"{name} {svg.number(value)}" for name, value in named)
    title += f"; {len(dots)} {row}s from {svg.number(min(dots))} to {svg.number(max(dots))}"
    rows = [(name, svg.number(value)) for name, value in named]
    rows += [(f"{row} {i + 1}", svg.number(value)) for i, value in enumerate(dots)]
    yield Plot(svg.strip(title, dots, named, unit), caption, ("set", unit), tuple(rows))


def _reuse(record: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[Plot]:
    points = _points(details.get("curve"))
    if len(points) < 2:
        return
    at = _percent(record["choices"].get("at"))
    at = at if at is not None and points[0][0] <= at <= points[-1][0] else None
    chance = details.get("chance")
    level = float(chance) if is_number(chance) else None
    told = (
        ""
        if level is None
        else f" The line across is what random circuits of the same size reach ({svg.number(level)})."
    )
    told += (
        ""
        if at is None
        else f" The upright line is the P that the circuit was found with ({svg.number(at)} %)."
    )
    drawn = svg.curve(
        "reuse by the share of examples that a unit must serve",
        points,
        across="P: in at least this % of the examples",
        up="reuse",
        level=level,
        at=at,
        whole=True,
    )
    rows = tuple((svg.number(x), svg.number(y)) for x, y in points)
    yield Plot(
        drawn, f"Share of each example's circuit that the shared one holds.{told}", ("P", "reuse"), rows
    )


def _damage(record: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[Plot]:
    """Of concentration: the order found, and random orders where they were measured."""
    points = _points(details.get("damage"))
    if "units_to" not in details or len(points) < 2:
        return
    asked = record["choices"].get("damage")
    level = float(asked) if is_number(asked) else None
    random = _random_orders(details.get("random_orders"), [x for x, _ in points])
    band = [(x, min(ys), sum(ys) / len(ys), max(ys)) for x, ys in random]
    drawn = svg.curve(
        "damage by the number of units ablated"
        + (f", beside {len(random[0][1])} random orders" if random else ""),
        [(0.0, 0.0), *points],
        across="units ablated, the most important first",
        up="share of the damage",
        level=level,
        whole=True,
        band=[(0.0, 0.0, 0.0, 0.0), *band] if band else [],
    )
    told = "" if level is None else f" The line across is the share that was asked for ({svg.number(level)})."
    told += (
        f" The band holds {len(random[0][1])} random orders from the least damage to the most; the dotted line is "
        "their mean."
        if random
        else ""
    )
    columns = ("units", "damage", *(("random: least", "mean", "most") if random else ()))
    ends = [tuple(map(svg.number, numbers[1:])) for numbers in band] or [()] * len(points)
    rows = tuple((svg.number(x), svg.number(y), *more) for (x, y), more in zip(points, ends, strict=True))
    yield Plot(drawn, f"Share of all heads' damage that the first units do.{told}", columns, rows)


def _random_orders(found: Any, sizes: Sequence[float]) -> list[tuple[float, list[float]]]:
    """Size → the damage of every random order, where that is there for each of the sizes; none otherwise."""
    damage = found.get("damage") if isinstance(found, dict) else None
    if not isinstance(damage, dict):
        return []
    rows = [damage.get(str(int(size))) for size in sizes]
    if not all(isinstance(row, list) and row and all(map(is_number, row)) for row in rows):
        return []
    return [(size, [float(y) for y in row]) for size, row in zip(sizes, rows, strict=True) if row]


def _cross_task(record: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[Plot]:
    drops = details.get("drops")
    if not isinstance(drops, dict) or not 2 <= len(drops) <= MOST_MATRIX:
        return
    tasks = list(drops)
    if not all(isinstance(row, dict) and set(row) == set(tasks) for row in drops.values()):
        return
    cells = [[_value(drops[a][b]) for b in tasks] for a in tasks]
    drawn = svg.grid(
        "accuracy lost on each task under the circuit of each", tasks, tasks, cells, written=True
    )
    caption = "Accuracy lost on the task of the row when the circuit of the column's task is ablated."
    yield Plot(drawn, caption, ("on", *tasks), _rows(tasks, cells))


def _similarity(record: Mapping[str, Any], details: Mapping[str, Any]) -> Iterator[Plot]:
    names, matrix = details.get("subtasks"), details.get("similarity")
    if not (isinstance(names, list) and isinstance(matrix, list) and 2 <= len(names) <= MOST_MATRIX):
        return
    if any(not isinstance(row, list) or len(row) != len(names) for row in [matrix, *matrix]):
        return
    names = [str(name) for name in names]
    families = _families(details.get("families"), names)
    order = [name for family in families for name in family] or names
    at = [names.index(name) for name in order]
    cells = [[_value(matrix[i][j]) for j in at] for i in at]
    frames, first = [], 0
    for family in families:
        frames.append((first, len(family)))
        first += len(family)
    short = [name if len(name) <= 18 else f"{name[:17]}…" for name in order]
    drawn = svg.grid(
        "similarity of the circuits of subtasks", short, short, cells, frames=frames, written=True
    )
    caption = "Similarity of the circuits of the subtasks, corrected for noise."
    caption += " Frames hold families." if families else ""
    yield Plot(drawn, caption, ("subtask", *order), _rows(order, cells))


_MAKERS = (
    _controls,
    _effects,
    _selective,
    _reuse,
    _damage,
    _cross_task,
    _similarity,
    changes.minimality,
    changes.sufficiency,
    changes.specificity,
    changes.drift,
    _unit_scores,
)


def _families(found: Any, names: Sequence[str]) -> list[list[str]]:
    """The subtasks of each family, where these put each name into one; none otherwise."""
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        return []
    parts = [one.get("subtasks") for one in found]
    named = [[str(name) for name in part] for part in parts if isinstance(part, list)]
    return named if sorted(name for part in named for name in part) == sorted(names) else []


def _percent(found: Any) -> float | None:
    """ "95%" and 95 are 95; None for counts and what is no number."""
    try:
        return float(str(found).removesuffix("%")) if str(found).endswith("%") or is_number(found) else None
    except ValueError:
        return None


def _value(cell: Any) -> float | None:
    found = cell.get("value") if isinstance(cell, dict) else cell
    return float(found) if is_number(found) else None


def _points(found: Any) -> list[tuple[float, float]]:
    """Of a mapping of numbers, whose keys JSON has made text, to numbers; empty for anything else."""
    if not isinstance(found, dict) or not all(map(is_number, found.values())):
        return []
    try:
        return sorted((float(key), float(value)) for key, value in found.items())
    except ValueError:
        return []


def _rows(names: Sequence[str], cells: Sequence[Sequence[float | None]]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (name, *("undefined" if value is None else svg.number(value) for value in row))
        for name, row in zip(names, cells, strict=True)
    )


def _column(unit: Unit) -> tuple[int, int, str]:
    """Order and heading of a unit's column."""
    order = ("head", "kv", "expert", "neuron", "attn", "mlp").index(unit.kind)
    return order, unit.index or 0, str(unit).partition(".")[2]

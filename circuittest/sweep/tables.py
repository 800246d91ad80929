"""A series' figures as tables and sentences, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MARKS = {"supported": "yes", "refuted": "no", "undecided": "?", "invalid": "–"}
#: What stands for nothing.
NONE = "–"
#: So many losses of each role are told.
LOSSES = 5


@dataclass(frozen=True)
class Table:
    """One table: what it shows, its columns, and its rows, whose first cell is their heading."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(entry: Mapping[str, Any]) -> list[Table]:
    """The tables of one run of one spec; those of which there is nothing are left out."""
    return [*_checkpoints(entry), *_similarities(entry), *_roles(entry)]


def scale_table(scales: Sequence[Mapping[str, Any]]) -> Table:
    """Quantities against the number of parameters."""
    columns = ("quantity", "models", "for ten times the parameters", "r", "rank r", "p", "")
    rows = tuple(
        (
            one["quantity"],
            str(len(one["points"])),
            number(one["slope"], "{:+.3g}"),
            number(one["r"], "{:.2f}"),
            number(one["rank_r"], "{:.2f}"),
            number(one["p"], "{:.2g}"),
            one["undefined"],
        )
        for one in scales
    )
    return Table(f"{scales[0]['spec']}: against the logarithm of parameters", columns, rows)


def sentences(entry: Mapping[str, Any]) -> list[str]:
    """Since when the behaviour, the claims and the roles are there, and who took over a role."""
    present, first = entry["present_from"], entry["appears_at"]
    said = [f"the behaviour is there from {present} on" if present else "the behaviour is absent at the end"]
    if first and first != present:
        said[0] += f"; it is there first at {first}"
    said += [
        f"{name} holds from {model} on" if model else f"{name} does not hold at the end"
        for name, model in entry["holds_from"].items()
    ]
    for kind, role in entry["roles"].items():
        said += [f"{kind}: {one}" for one in _since(role)]
        said += [f"{kind}: {loss(one)}" for one in role["lost"][:LOSSES]]
        if len(role["lost"]) > LOSSES:
            said.append(f"{kind}: lost more often, {len(role['lost'])} times in all (in the JSON)")
    said += [f"{row['model']}: {row['absent']}" for row in entry["rows"] if row["absent"]]
    return said


def loss(one: Mapping[str, Any]) -> str:
    """A head that lost a role, and who has it now."""
    text = f"{one['head']} lost it at {one['at']} ({one['before']:.2f} → {one['after']:.2f})"
    if one["taken_over_by"]:
        others = [f"{o['head']} ({o['before']:.2f} → {o['after']:.2f})" for o in one["taken_over_by"]]
        return f"{text}; {_listed(others)} took over"
    if one["kept_by"]:
        return f"{text}; {_listed(one['kept_by'])} had it and still {'has' if len(one['kept_by']) == 1 else 'have'} it"
    if one["next"]:
        return f"{text}; no head has it until {_listed(one['next']['heads'])} at {one['next']['model']}"
    return f"{text}; no head took over"


def number(value: float | None, form: str) -> str:
    """A number, or a dash where it is undefined."""
    return NONE if value is None else form.format(value).replace("-", "−")


def _checkpoints(entry: Mapping[str, Any]) -> list[Table]:
    rows = entry["rows"]
    sizes = {"size": "{}", "share": "{:.1%}"}
    if any(row["edges"] is not None for row in rows):
        sizes = {"edges": "{}", "edges_share": "{:.1%}", "nodes": "{}", "nodes_share": "{:.1%}"}
    heads = {"edges_share": "share", "nodes_share": "share"}
    forms = {
        **sizes,
        "to_final": "{:.2f}",
        "to_previous": "{:.2f}",
        "chance": "{:.2f}",
        "smoothed": "{:.2f}",
    }
    heads |= {"to_final": "final", "to_previous": "previous"}
    claims = list(entry["holds_from"])
    columns = ("model", "accuracy", *(heads.get(key, key) for key in forms), *claims)
    cells = tuple(
        (
            row["model"],
            f"{row['accuracy']:.2f}",
            *(number(row[key], form) for key, form in forms.items()),
            *(_verdict(row["verdicts"].get(name)) for name in claims),
        )
        for row in rows
    )
    return [Table("Checkpoints", columns, cells)]


def _similarities(entry: Mapping[str, Any]) -> list[Table]:
    rows = entry["rows"]
    if not any(row["to_previous_band"] for row in rows):
        return []
    columns = ("model", "previous", "same", "apart", "smoothed", "final")
    cells = tuple(
        (
            row["model"],
            _banded(row, "to_previous"),
            number(row["same"], "{:.2f}"),
            number(row["apart"], "{:.2f}"),
            _banded(row, "smoothed"),
            _banded(row, "to_final"),
        )
        for row in rows
    )
    return [Table("Similarity of circuits, and [95 % of resampled examples]", columns, cells)]


def _banded(row: Mapping[str, Any], name: str) -> str:
    band = row[f"{name}_band"]
    value = number(row[name], "{:.2f}")
    return value if band is None else f"{value} [{band[0]:.2f}, {band[1]:.2f}]"


def _roles(entry: Mapping[str, Any]) -> list[Table]:
    roles = entry["roles"]
    if not roles:
        return []
    cells = []
    for place, row in enumerate(entry["rows"]):
        curve = [role["curve"][place] for role in roles.values()]
        cells.append((row["model"], *map(_role, curve)))
    title = "Roles: summed scores of the circuit's heads (how many heads of the model have it)"
    return [Table(title, ("model", *roles), tuple(cells))]


def _role(one: Mapping[str, Any]) -> str:
    if one["all"] is None:
        return NONE
    return f"{number(one['in_circuit'], '{:.2f}')} ({len(one['heads'])})"


def _since(role: Mapping[str, Any]) -> Iterable[str]:
    reasons = dict.fromkeys(one["undefined"] for one in role["curve"] if one["undefined"])
    if reasons:
        yield f"undefined where {_listed(list(reasons))}"
    if role["appears_at"] is None:
        if not reasons:
            yield "no head has it"
    elif role["stays_from"] is None:
        yield f"a head has it first at {role['appears_at']}, none at the end"
    else:
        later = f", and always from {role['stays_from']} on"
        yield f"a head has it first at {role['appears_at']}" + (
            later if role["stays_from"] != role["appears_at"] else ", and always from there on"
        )


def _verdict(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ""
    mark = _MARKS.get(one["verdict"], one["verdict"])
    return mark if one["estimate"] is None else f"{mark} {one['estimate']:.2f}"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:4]) + ([f"{len(names) - 4} more"] if len(names) > 4 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

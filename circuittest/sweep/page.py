"""A series as one page of HTML: its tables and sentences, and its curves over the checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from circuittest.report.files import replace_file
from circuittest.report.page import check_page, figure, framed
from circuittest.report.plot import Plot
from circuittest.report.svg import number
from circuittest.sweep.lines import Line, lines, scatter
from circuittest.sweep.tables import Table, scale_table, sentences, tables

Entry = Mapping[str, Any]


def write_page(path: str | Path, found: Sequence[Entry], scales: Sequence[Mapping[str, Any]]) -> None:
    """Write the page in one step. Raises UsageError where the file is none of ours, or cannot be written."""
    check_page(path)
    replace_file(path, page(found, scales))


def page(found: Sequence[Entry], scales: Sequence[Mapping[str, Any]]) -> str:
    """The whole page. `found` and `scales` are what `circuittest.sweep.summary` gave; the same give the same bytes."""
    body = ["<h1>Circuits over a series of models</h1>"]
    for entry in found:
        body += [f"<h2>{escape(title(entry))}</h2>", *(_table(one) for one in tables(entry))]
        body.append("<ul>" + "".join(f"<li>{escape(one)}</li>" for one in sentences(entry)) + "</ul>")
        body.append(f'<div class="plots">{"".join(map(figure, curves(entry)))}</div>')
    for spec in dict.fromkeys(one["spec"] for one in scales):
        mine = [one for one in scales if one["spec"] == spec]
        body += ["<h2>Models of several sizes</h2>", _table(scale_table(mine))]
        drawn = [_scatter(one) for one in mine if len(one["points"]) > 1]
        body.append(f'<div class="plots">{"".join(map(figure, drawn))}</div>')
    return framed("Circuits over a series of models", "series", body)


def title(entry: Entry) -> str:
    """The spec, and the run where it has a name."""
    return f"{entry['spec']}, {entry['run']}" if entry["run"] else str(entry["spec"])


def curves(entry: Entry) -> list[Plot]:
    """Drawings of behaviour, similarity, sizes and roles; those of which there is nothing are left out."""
    rows = entry["rows"]
    names = [str(row["model"]) for row in rows]
    if len(rows) < 2:
        return []
    column = lambda key: [row[key] for row in rows]
    drawn = [
        _drawn("Behaviour", "accuracy", names, [Line("accuracy", column("accuracy"))]),
        _drawn(
            "Similarity of each circuit to the one before",
            "Jaccard index",
            names,
            [
                Line("to the one before", column("to_previous"), column("to_previous_band")),
                Line("smoothed", column("smoothed")),
                Line("of the same model", column("same")),
                Line("by chance", column("chance")),
            ],
        ),
        _drawn(
            "Similarity of each circuit to the last",
            "Jaccard index",
            names,
            [
                Line("to the last", column("to_final"), column("to_final_band")),
                Line("by chance", column("to_final_chance")),
            ],
        ),
        _drawn(
            "Sizes of the circuit as shares of the model",
            "share",
            names,
            [Line("edges", column("edges_share")), Line("nodes", column("nodes_share"))],
        ),
        _drawn(
            "Roles: summed scores of the circuit's heads",
            "sum of scores",
            names,
            [
                Line(kind, [one["in_circuit"] for one in role["curve"]])
                for kind, role in entry["roles"].items()
            ],
        ),
        _drawn(
            "Roles: summed scores of all heads",
            "sum of scores",
            names,
            [Line(kind, [one["all"] for one in role["curve"]]) for kind, role in entry["roles"].items()],
        ),
    ]
    return [plot for plot in drawn if plot is not None]


def _drawn(caption: str, up: str, names: Sequence[str], found: Sequence[Line]) -> Plot | None:
    there = [line for line in found if any(value is not None for value in line.values)]
    if not there:
        return None
    cells = tuple(
        (name, *("–" if line.values[place] is None else number(line.values[place] or 0.0) for line in there))
        for place, name in enumerate(names)
    )
    return Plot(
        lines(caption, names, there, up=up), f"{caption}.", ("model", *(one.name for one in there)), cells
    )


def _scatter(one: Mapping[str, Any]) -> Plot:
    points = [(float(p["parameters"]), float(p["value"])) for p in one["points"]]
    caption = f"{one['quantity']} against parameters"
    cells = tuple((p["model"], f"{p['parameters']:,}", number(p["value"])) for p in one["points"])
    return Plot(
        scatter(caption, points, up=one["quantity"]), f"{caption}.", ("model", "parameters", "value"), cells
    )


def _table(one: Table) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in one.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in one.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(one.title)}"><table>'
        f"<caption>{escape(one.title)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )

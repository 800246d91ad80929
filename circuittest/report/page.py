"""The records of a session as one page of HTML that needs nothing else: no network, no script."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from circuittest.errors import UsageError
from circuittest.report import svg
from circuittest.report.against import against
from circuittest.report.bars import axis
from circuittest.report.changes import across_models
from circuittest.report.files import check_free, replace_file
from circuittest.report.plot import Plot
from circuittest.report.plots import plots, unit_map
from circuittest.report.records import document
from circuittest.report.style import STYLE
from circuittest.report.terminal import (
    asked_text,
    counts,
    estimate_text,
    limit,
    sizes_text,
    together,
    verdict_text,
)

#: The first bytes of every page of ours.
_HEAD = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="generator" content="circuittest/'
)
_WIDE = 350

Record = Mapping[str, Any]


def write_page(path: str | Path, records: Iterable[Record]) -> None:
    """Write the page in one step. Raises UsageError where the file is none of ours, or cannot be written."""
    check_page(path)
    replace_file(path, page(records))


def check_page(path: str | Path) -> None:
    """Raise UsageError where writing would overwrite a file that is no page of ours."""
    check_free(path, _read, "report of circuittest")


def _read(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(_HEAD))
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error)) from error
    if start != _HEAD.encode():
        raise UsageError(f"{path} is no report", "circuittest did not write it")


def page(records: Iterable[Record]) -> str:
    """The whole page. The same records give the same bytes."""
    whole = document([dict(record) for record in records])
    listed: list[dict[str, Any]] = whole["claims"]
    names = {id(record): f"claim-{i + 1}" for i, record in enumerate(listed)}
    body = [
        "<h1>Circuit claims</h1>",
        _summary(listed, whole["environment"]),
        "<h2>All claims</h2>",
        _table(listed, names) if listed else "<p>No claim was judged or measured.</p>",
        *_across(listed),
        *_circuits(listed),
        *(["<h2>Claim by claim</h2>"] if listed else []),
        *(_claim(record, names[id(record)]) for record in listed),
    ]
    return framed(f"Circuit claims: {counts(listed)}", "claims", body)


def framed(title: str, what: str, body: Iterable[str]) -> str:
    """A page of its own: head, style sheet, and a link that skips to what it is about."""
    return (
        f'{_HEAD}1">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#main">Skip to the {escape(what)}</a>\n<main id="main">\n'
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _summary(records: list[dict[str, Any]], environment: Mapping[str, Any]) -> str:
    found = [record["verdict"] for record in records]
    parts = [
        f'<li class="verdict {verdict}">{found.count(verdict)} {verdict}</li>'
        for verdict in ("supported", "refuted", "undecided", "invalid", "measured")
        if verdict in found
    ]
    told = [
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in environment.items()
        if value not in (None, [])
    ]
    kept = together(records).strip()
    said = f"<p>{escape(kept[0].upper() + kept[1:])}.</p>" if kept else ""
    counted = f'<ul class="counts">{"".join(parts)}</ul>' if parts else ""
    return f'{counted}{said}<p class="soft">{escape("; ".join(told))}</p>'


def _table(records: list[dict[str, Any]], names: Mapping[int, str]) -> str:
    columns = ("claim", "estimate", "interval", "asked", "n", "verdict")
    head = "".join(f'<th scope="col" role="columnheader">{column}</th>' for column in columns)
    rows = []
    for record in records:
        cells = (
            (columns[1], escape(estimate_text(record)), ""),
            (columns[2], interval_bar(record), ""),
            (columns[3], escape(asked_text(record)), ""),
            (columns[4], sizes_text(record), ""),
            (columns[5], verdict_mark(record), "verdict-cell"),
        )
        rows.append(
            f'<tr role="row"><th scope="row" role="rowheader"><a href="#{names[id(record)]}">'
            f"{_id(record)}</a></th>"
            + "".join(
                f'<td role="cell" data-name="{name}" class="{kind if cell else "none"}"><div>{cell}</div></td>'
                for name, cell, kind in cells
            )
            + "</tr>"
        )
    caption = (
        "Intervals: the dot is the estimate, the dashed line the threshold, the shaded side what was claimed. "
        "n: examples, and controls after the stroke."
    )
    return (
        f'<table class="claims" role="table"><caption>{caption}</caption><thead role="rowgroup"><tr role="row">{head}'
        f'</tr></thead><tbody role="rowgroup">{"".join(rows)}</tbody></table>'
    )


def _id(record: Record) -> str:
    """The id of a record, with places where a line may break."""
    return _breakable(record["id"])


def _breakable(text: str) -> str:
    return re.sub(r"(::|/|_|\[)", r"\1<wbr>", escape(text))


def interval_bar(record: Record) -> str:
    """The interval as a drawing; empty where there is none, or no axis holds it."""
    threshold = limit(record)
    scale = axis((record["estimate"], *(record["interval"] or ()), threshold))
    if record["interval"] is None or not math.isfinite(scale[1] - scale[0]):
        return ""
    asked = f", asked {asked_text(record)}" if asked_text(record) else ""
    return svg.span(
        f"{estimate_text(record)}{asked}",
        tuple(record["interval"]),
        record["estimate"],
        threshold,
        None if threshold is None else record["threshold"]["op"],
        scale,
    )


def verdict_mark(record: Record) -> str:
    """The verdict in words and colour."""
    return f'<span class="verdict {escape(record["verdict"])}">{escape(verdict_text(record))}</span>'


def _circuits(records: list[dict[str, Any]]) -> list[str]:
    """Each circuit that claims are about, once, as a map of its units among all those that the records name."""
    found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[Record]] = {}
    for record in records:
        if circuit := record["circuit"]:
            key = (circuit["name"], tuple(circuit["units"]), tuple(circuit["edges"]))
            found.setdefault(key, []).append(record)
    parts = []
    for (name, units, edges), about in found.items():
        models = sorted({record["model"] for record in about})
        known = {unit for record in records if record["model"] in models for unit in _named(record)}
        scores = {unit: float(unit in units) for unit in sorted({*known, *units})}
        drawn = unit_map(
            f"members of {name} by layer",
            "Members of the circuit are filled. Other places are units that these records name.",
            scores,
            units,
        )
        size = _counted(len(units), "unit") + (f", {_counted(len(edges), 'edge')}" if edges else "")
        listed = ", ".join((*units, *edges)[:200]) + (" …" if len(units) + len(edges) > 200 else "")
        of = "; ".join(
            (
                ", ".join(models[:8]) + (f" and {len(models) - 8} more models" if len(models) > 8 else ""),
                ", ".join(sorted({record["task"] for record in about})),
                size,
                _counted(len(about), "claim"),
            )
        )
        shown = f'<div class="plots">{figure(drawn)}</div>' if drawn else ""
        parts.append(
            f'<article><header><h3>{escape(name)}</h3><span class="soft">{escape(of)}</span></header>'
            f"<p>{escape(listed)}</p>{shown}</article>"
        )
    return ["<h2>Circuits</h2>", *parts] if parts else []


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _across(records: list[dict[str, Any]]) -> list[str]:
    """Claims that were judged on several models, such as checkpoints."""
    parts = [
        f"<article><header><h3>{_breakable(title)}</h3></header>"
        f'<div class="plots">{figure(plot)}</div></article>'
        for title, plot in across_models(records)
    ]
    return ["<h2>Across models</h2>", *parts] if parts else []


def _named(record: Record) -> set[str]:
    """Units that a record speaks of: its circuit's, its controls', and those it has a number for."""
    details = record["details"]
    found = set((record["circuit"] or {}).get("units", ()))
    controls = details.get("controls")
    if isinstance(controls, list):
        found.update(unit for one in controls if isinstance(one, list) for unit in one)
    for key in ("scores", "effects", "frequency"):
        if isinstance(details.get(key), dict):
            found.update(details[key])
    return {unit for unit in found if isinstance(unit, str) and "." in unit and "-" not in unit}


def _claim(record: Record, name: str) -> str:
    circuit = record["circuit"]
    facts = {
        "claim": f"{record['claim']} {asked_text(record)}".strip(),
        "estimate": estimate_text(record),
        "model": record["model"],
        "task": record["task"],
        "circuit": f"{circuit['name']} ({_counted(len(circuit['units']), 'unit')})" if circuit else "",
        "examples": str(record["n_examples"]),
        "controls": "" if record["n_controls"] is None else str(record["n_controls"]),
        "confidence": f"{record['confidence']:g}",
        "p-value": "" if record["p_value"] is None else f"{record['p_value']:.2g}",
        "margin": "" if record["margin"] is None else f"{record['margin']:g}",
    }
    listed = "".join(
        f"<div><dt>{key}</dt><dd>{escape(value)}</dd></div>" for key, value in facts.items() if value
    )
    said = f"<p>{escape(record['reason'])}</p>" if record["reason"] else ""
    drawn = "".join(figure(plot) for plot in plots(record))
    choices = tuple((key, _short(value)) for key, value in sorted(record["choices"].items()))
    return (
        f'<article id="{name}"><header><h3>{_id(record)}</h3>{verdict_mark(record)}</header>'
        f"<dl>{listed}</dl>{said}"
        + against(record)
        + (f'<div class="plots">{drawn}</div>' if drawn else "")
        + _more("Choices that could change the estimate", ("choice", "value"), choices)
        + "</article>"
    )


def figure(plot: Plot) -> str:
    """A drawing that scrolls by itself where the screen is narrower, its caption, and its numbers."""
    wide = float(plot.svg.partition('width="')[2].partition('"')[0]) > _WIDE
    drawn = plot.svg
    if wide:
        drawn = (
            f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(plot.caption)}">{drawn}</div>'
        )
    return (
        f'<figure class="{"wide" if wide else "small"}">{drawn}<figcaption>{escape(plot.caption)}</figcaption>'
        f"{_more('Numbers', plot.columns, plot.rows)}</figure>"
    )


def _more(title: str, columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    """A table that opens on request."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(c)}</td>" for c in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<details><summary>{escape(title)}</summary><div class="scroll" tabindex="0" role="group" '
        f'aria-label="{escape(title)}"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></details>'
    )


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 400 else f"{text[:399]}…"

"""How notebooks show estimates, verdicts, circuits and tables.

``%load_ext circuittest.report.notebook`` in a cell turns it on. The drawings are those of the page that
`--circuit-html` writes.
"""

from __future__ import annotations

from html import escape
from typing import Any

from circuittest.circuit import Circuit
from circuittest.report.page import figure, interval_bar
from circuittest.report.plot import Plot
from circuittest.report.plots import plots, unit_map
from circuittest.report.records import record
from circuittest.report.style import NOTEBOOK
from circuittest.report.svg import number
from circuittest.report.terminal import asked_text, estimate_text, sizes_text
from circuittest.stats import Estimate, Verdict
from circuittest.tables import OutcomeTable, ScoreTable
from circuittest.units import Unit

#: Rows of a table of outcomes that are shown.
MOST_ROWS = 20


def load_ipython_extension(shell: Any) -> None:
    """Called by ``%load_ext``: show these types as HTML."""
    formatter = shell.display_formatter.formatters["text/html"]
    for kind in _SHOWN:
        formatter.for_type(kind, html_of)


def unload_ipython_extension(shell: Any) -> None:
    """Called by ``%unload_ext``."""
    formatter = shell.display_formatter.formatters["text/html"]
    for kind in _SHOWN:
        formatter.pop(kind, None)


def html_of(shown: Estimate | Verdict | Circuit | ScoreTable | OutcomeTable) -> str:
    """An object as HTML for one cell."""
    for kind, make in _SHOWN.items():
        if isinstance(shown, kind):
            return f'<div class="circuittest"><style>{NOTEBOOK}</style>{make(shown)}</div>'
    raise TypeError(f"a {type(shown).__name__} has no form of its own in a notebook")


def _measured(shown: Any) -> str:
    """Of an estimate or a verdict: a line, the interval, the reason, and the plots on request."""
    told = record(shown, id="", outcome="passed")
    head = f"{told['claim']} {asked_text(told)}".strip()
    about = ", ".join(part for part in (told["model"], told["task"], f"n = {sizes_text(told)}") if part)
    verdict, label = told["verdict"], f" ({told['label']})" if told["label"] else ""
    mark = "" if verdict == "measured" else f'<span class="verdict">{escape(verdict + label)}</span> '
    reason = f"<div>{escape(told['reason'])}</div>" if told["reason"] else ""
    drawn = "".join(map(figure, plots(told)))
    more = f"<details><summary>Plots</summary>{drawn}</details>" if drawn else ""
    line = f"<div><strong>{escape(head)}</strong> {mark}{escape(estimate_text(told))} ({escape(about)})</div>"
    return line + interval_bar(told) + reason + more


def _circuit(circuit: Circuit) -> str:
    units = [str(unit) for unit in circuit.units]
    kinds = sorted(set(circuit.counts()) - {"embed", "logits"})
    known = circuit.layout.units(kinds) if circuit.layout is not None and units else ()
    drawn = unit_map(
        f"members of {circuit.name} by layer",
        "Members are filled.",
        {unit: float(unit in units) for unit in sorted({*map(str, known), *units})},
        units,
    )
    size = f"{len(circuit.units)} units" + (f", {len(circuit.edges)} edges" if circuit.edges else "")
    return f"<div><strong>{escape(circuit.name)}</strong>: {size}</div>" + _or_list(drawn, map(str, circuit))


def _scores(table: ScoreTable) -> str:
    means = table.values.mean(0, dtype="float64") if len(table.examples) else []
    named = {str(m): float(v) for m, v in zip(table.members, means, strict=False) if isinstance(m, Unit)}
    size = f"{len(table.examples)} examples × {len(table.members)} members"
    drawn = unit_map("mean score by layer", "Mean score of each unit over the examples.", named)
    return f"<div><strong>ScoreTable</strong>: {size}</div>" + _or_list(drawn, map(str, table.members))


def _outcomes(table: OutcomeTable) -> str:
    names = list(table.columns)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("ablated", *names))
    rows = []
    for i, members in enumerate(table.sets[:MOST_ROWS]):
        ids = ", ".join(map(str, members)) or "nothing"
        cells = "".join(f"<td>{escape(number(float(table.columns[name][i].mean())))}</td>" for name in names)
        rows.append(f'<tr><th scope="row">{escape(_short(ids))}</th>{cells}</tr>')
    rest = len(table.sets) - MOST_ROWS
    more = f"<div>and {rest} more sets</div>" if rest > 0 else ""
    return (
        f"<table><caption>OutcomeTable: means over {len(table.examples)} examples</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{more}"
    )


def _or_list(drawn: Plot | None, members: Any) -> str:
    return figure(drawn) if drawn is not None else f"<div>{escape(_short(', '.join(members)))}</div>"


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:299]}…"


_SHOWN: dict[type, Any] = {
    Estimate: _measured,
    Verdict: _measured,
    Circuit: _circuit,
    ScoreTable: _scores,
    OutcomeTable: _outcomes,
}

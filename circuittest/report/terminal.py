"""The table of claims for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from circuittest.digits import decimals
from circuittest.report.bars import axis, bar

_STYLES = {
    "supported": "green",
    "refuted": "red",
    "undecided": "yellow",
    "invalid": "magenta",
    "measured": "cyan",
}


def claims_table(
    records: Iterable[Mapping[str, Any]],
    *,
    costs: Mapping[str, tuple[float, bool]] | None = None,
    width: int = 100,
    colour: bool = False,
    unicode: bool = True,
) -> str:
    """Records as text: one row a claim (id, estimate, interval, threshold, n and controls, verdict, time), then the
    reason of each claim that is neither supported nor unjudged.

    Parameters
    ----------
    costs:
        Id → seconds, and whether every table was there already; without any there is no such column.
    width:
        Columns of the terminal. Where ids would have to fold, each stands on a line of its own above its row; where
        the bars of the intervals do not fit either, they are left out, and then the times.
    colour:
        With ANSI styles.
    unicode:
        False draws in ASCII only.
    """
    listed = sorted(records, key=lambda record: record["id"])
    scale = axis(
        number
        for record in listed
        for number in (
            record["estimate"],
            *(record["interval"] or ()),
            limit(record),
        )
    )
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(width, 40),
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
    )
    bars = any(record["interval"] for record in listed)
    costs = {} if costs is None else costs
    timed = any(record["id"] in costs for record in listed)
    tables = [
        _table(listed, scale, costs if with_costs else {}, bars=with_bars, ids=with_ids, unicode=unicode)
        for with_bars, with_ids, with_costs in (
            (bars, True, timed),
            (bars, False, timed),
            (False, False, timed),
            (False, False, False),
        )
    ]
    fitting = [
        t for t in tables if console.measure(t, options=console.options.update(width=10_000)).maximum <= width
    ]
    table = fitting[0] if fitting else tables[-1]
    console.print(table)
    lines = stream.getvalue().splitlines()
    if table is not tables[0]:
        rows = lines[1:]
        lines = lines[:1]
        for one, row in zip(listed, rows, strict=True):
            name = one["id"]
            lines += [name[start : start + width] for start in range(0, len(name), width)]
            lines.append(row)
    stream.seek(stream.truncate(0))
    for record in listed:
        if record["verdict"] not in ("supported", "measured") and record["reason"]:
            console.print(Text(f"{record['id']}: {record['reason']}"))
    lines += stream.getvalue().splitlines()
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text if unicode else text.encode("ascii", "replace").decode("ascii")


def _table(
    records: list[Mapping[str, Any]],
    scale: tuple[float, float],
    costs: Mapping[str, tuple[float, bool]],
    *,
    bars: bool,
    ids: bool,
    unicode: bool,
) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    headings = [
        "claim" if ids else " ",
        "estimate",
        f"{scale[0]:.3g} to {scale[1]:.3g}",
        "asked",
        "n",
        "verdict",
    ]
    headings += ["time"] if costs else []
    for index, heading in enumerate(headings):
        if bars or index != 2:
            table.add_column(heading, no_wrap=True)
    for record in records:
        drawn = bar(record["interval"], record["estimate"], limit(record), scale, ascii_only=not unicode)
        row = [
            Text(record["id"] if ids else " "),
            Text(estimate_text(record)),
            Text(drawn if record["interval"] else ""),
        ]
        row += [
            Text(asked_text(record)),
            Text(sizes_text(record)),
            Text(verdict_text(record), style=_STYLES.get(record["verdict"], "")),
        ]
        row += [Text(time_text(costs.get(record["id"])))] if costs else []
        table.add_row(*(row if bars else row[:2] + row[3:]))
    return table


def estimate_text(record: Mapping[str, Any]) -> str:
    """ "0.71 [0.62, 0.80]"; "≥ 0.71 …" where the value is a lower bound."""
    if record["estimate"] is None:
        return "undefined"
    side = {"lower": ">=", "upper": "<="}.get(record.get("censored") or "", "")
    near = limit(record)
    text = f"{side}{_number(record['estimate'], near)}"
    if record["interval"] is None:
        return text
    ends = (
        ("-inf", "inf")[i] if end is None else _number(end, near) for i, end in enumerate(record["interval"])
    )
    return f"{text} [{', '.join(ends)}]"


def asked_text(record: Mapping[str, Any]) -> str:
    """ ">= 0.3", "is load-bearing"; empty for what was measured only."""
    asked = record["threshold"]
    if asked is None or asked["value"] is None:
        return ""
    value = limit(record)
    return f"{asked['op']} {asked['value'] if value is None else f'{value:g}'}"


def sizes_text(record: Mapping[str, Any]) -> str:
    """ "200/40": examples, and controls where there are some."""
    return str(record["n_examples"]) + ("" if record["n_controls"] is None else f"/{record['n_controls']}")


def time_text(cost: tuple[float, bool] | None) -> str:
    """ "3.2 s", "2:05", "cached" where nothing had to be measured; empty where it is not known."""
    if cost is None:
        return ""
    seconds, cached = cost
    if cached:
        return "cached"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def limit(record: Mapping[str, Any]) -> float | None:
    """The number that a claim was compared with; None where it was judged by name, or not at all."""
    value = None if record["threshold"] is None else record["threshold"]["value"]
    return None if value is None or isinstance(value, str) else float(value)


def _number(value: float, near: float | None) -> str:
    """At least two decimals, and as many (six at most) as tell the value from the threshold."""
    return f"{value:.{decimals(value, near)}f}"


def verdict_text(record: Mapping[str, Any]) -> str:
    """The verdict, with the test's outcome where the two say different things."""
    text: str = record["verdict"]
    if record["label"]:
        text += f" ({record['label']})"
    if record["outcome"] == "fixture":
        return f"{text}, in a fixture"
    usual = {
        "supported": "passed",
        "measured": "passed",
        "refuted": "failed",
        "undecided": "failed",
        "invalid": "failed",
    }
    return text if record["outcome"] == usual.get(record["verdict"]) else f"{text}, test {record['outcome']}"


def counts(records: Iterable[Mapping[str, Any]]) -> str:
    """ "3 claims supported, 1 refuted" for a closing line."""
    found = [record["verdict"] for record in records]
    parts = [f"{found.count(verdict)} {verdict}" for verdict in _STYLES if verdict in found]
    return ", ".join(parts) if parts else "none"


def together(records: Iterable[Mapping[str, Any]]) -> str:
    """How many supported claims stay supported with Holm's correction over all claims judged in the session.

    It changes no verdict. Invalid claims count: declaring them was a chance to pass. Empty for fewer than two claims.
    """
    from circuittest.stats import holm

    judged = [record for record in records if record["verdict"] != "measured"]
    p = [_alone(record) for record in judged]
    supported = [
        i for i, record in enumerate(judged) if record["verdict"] == "supported" and p[i] is not None
    ]
    if len(judged) < 2 or not supported:
        return ""
    adjusted = holm(p)
    kept = sum((adjusted[i] or 0.0) <= (1.0 - judged[i]["confidence"]) / 2.0 + 1e-12 for i in supported)
    return (
        f"taken together (Holm's correction over the {len(judged)} claims judged), {kept} of the {len(supported)} "
        "supported claims with a p-value stay supported\n"
    )


def _alone(record: Mapping[str, Any]) -> float | None:
    """The p-value of a claim by itself, before a correction that its spec asks for."""
    correction = record["details"].get("correction")
    found: float | None = record["p_value"] if correction is None else correction["p"]
    return found

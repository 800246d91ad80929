"""Drawings of a series as SVG text: lines over its models, and a quantity against the number of parameters.

Lines differ in their dashes and their shade, and each has its name beside its last point, so that no colour is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from circuittest.report.svg import drawing, line, nice, number, text

_LEFT, _TOP, _BOTTOM, _STEP = 50.0, 12.0, 178.0, 34.0
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4", "10 5")


@dataclass(frozen=True)
class Line:
    """A line: its name, a value for every place or None, and a range about each or None."""

    name: str
    values: Sequence[float | None]
    bands: Sequence[Sequence[float] | None] = ()


def lines(title: str, names: Sequence[str], drawn: Sequence[Line], *, up: str) -> str:
    """Lines over places with names, evenly spaced; a line is broken where a value is undefined."""
    ends = [
        *(v for one in drawn for v in one.values if v is not None),
        *(v for one in drawn for band in one.bands if band is not None for v in band),
    ]
    rows = nice(min(0.0, *ends), max(ends))
    right = _LEFT + _STEP * max(len(names) - 1, 1)
    width = right + 14 + 6.6 * max(len(one.name) for one in drawn)
    head = 7.3 * min(max(map(len, names)), 24)

    def place(at: int, value: float) -> tuple[float, float]:
        return _LEFT + _STEP * at, _BOTTOM - (value - rows[0]) / (rows[-1] - rows[0]) * (_BOTTOM - _TOP)

    parts = []
    for row in rows:
        y = place(0, row)[1]
        parts += [line(_LEFT, y, right, y, "rule"), text(_LEFT - 6, y + 4, number(row), anchor="end")]
    for at, name in enumerate(names):
        x = place(at, rows[0])[0]
        short = name if len(name) <= 24 else f"…{name[-23:]}"
        parts.append(line(x, _BOTTOM, x, _BOTTOM + 4, "axis"))
        turned = text(0, 0, short, anchor="end")
        parts.append(f'<g transform="translate({x + 4:.1f} {_BOTTOM + 10:.1f}) rotate(-90)">{turned}</g>')
    taken: list[float] = []
    for number_of, one in enumerate(drawn):
        for at, band in enumerate(one.bands):
            if band is not None:
                low, high = place(at, band[0])[1], place(at, band[1])[1]
                parts.append(line(place(at, 0.0)[0], low, place(at, 0.0)[0], high, "axis"))
        dash = f' stroke-dasharray="{_DASHES[number_of % len(_DASHES)]}"' if number_of else ""
        shade = 1 - 0.12 * (number_of % 6)
        for piece in _pieces(one.values):
            points = [place(at, value) for at, value in piece]
            joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{joined}" class="curve" stroke-opacity="{shade:.2f}"{dash}/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" class="value"/>' for x, y in points]
        last = next(v for v in reversed(one.values) if v is not None)
        y = _free(place(0, last)[1] + 4, taken)
        parts.append(text(right + 8, y, one.name, anchor="start"))
    middle = (_TOP + _BOTTOM) / 2
    label = text(0, 0, up, kind="label")
    parts.append(f'<g transform="translate(11 {middle:.1f}) rotate(-90)">{label}</g>')
    return drawing(title, width, max(_BOTTOM + 16 + head, max(taken) + 8), parts)


def scatter(title: str, points: Sequence[tuple[float, float]], *, up: str) -> str:
    """Values against numbers of parameters, on a logarithmic axis."""
    logs = [math.log10(x) for x, _ in points]
    columns, rows = nice(min(logs), max(logs)), nice(min(y for _, y in points), max(y for _, y in points))
    right = 320.0

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (x - columns[0]) / (columns[-1] - columns[0]) * (right - _LEFT),
            _BOTTOM - (y - rows[0]) / (rows[-1] - rows[0]) * (_BOTTOM - _TOP),
        )

    parts = []
    for row in rows:
        y = place(columns[0], row)[1]
        parts += [line(_LEFT, y, right, y, "rule"), text(_LEFT - 6, y + 4, number(row), anchor="end")]
    for column in columns:
        x = place(column, rows[0])[0]
        parts += [line(x, _BOTTOM, x, _BOTTOM + 4, "axis"), text(x, _BOTTOM + 17, number(column))]
    placed = [place(x, y) for x, (_, y) in zip(logs, points, strict=True)]
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="value"/>' for x, y in placed]
    parts.append(text((_LEFT + right) / 2, 214, "log10 of parameters", kind="label"))
    label = text(0, 0, up, kind="label")
    parts.append(f'<g transform="translate(11 {(_TOP + _BOTTOM) / 2:.1f}) rotate(-90)">{label}</g>')
    return drawing(title, right + 14, 222, parts)


def _pieces(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Runs of values that are defined, with their places."""
    found: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append((at, value))
    return [piece for piece in found if piece]


def _free(wanted: float, taken: list[float]) -> float:
    """The place nearest to the one wanted, at or below it, where a line of text covers no other."""
    while any(abs(wanted - other) < 13 for other in taken):
        wanted += 2
    taken.append(wanted)
    return wanted

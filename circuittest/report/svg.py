"""Small drawings as SVG text: a span with a threshold, a strip of dots, a curve, a grid of cells.

Each function returns one ``<svg role="img">`` whose first child is its title, for readers who do not see it. Colours
are classes of the page's style sheet, so that one drawing serves a light and a dark page. Everything put in is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from circuittest.report.bars import Span

_WIDTH = 340
_LEFT, _RIGHT = 54, 12


def drawing(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    """The frame of a drawing; `parts` are SVG elements."""
    return (
        f'<svg role="img" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def text(x: float, y: float, words: str, *, anchor: str = "middle", kind: str = "") -> str:
    """Words at a place; `anchor` is start, middle or end."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def number(value: float) -> str:
    """Three significant digits, without an exponent where that is short."""
    return f"{value:.3g}".replace("-", "−")


def nice(low: float, high: float, ticks: int = 4) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`, two at least."""
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    rough = (high - low) / ticks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def span(
    title: str,
    interval: Span | None,
    value: float | None,
    threshold: float | None,
    op: str | None,
    scale: tuple[float, float],
) -> str:
    """An interval as a bar with the value as a dot and the threshold as a line; the side that was claimed is shaded.

    An end that is None is open and drawn as an arrow.
    """
    width, middle = 180.0, 11.0
    low, high = scale

    def x(number: float) -> float:
        return 6 + (min(max(number, low), high) - low) / (high - low) * (width - 12)

    parts = [line(6, middle, width - 6, middle, "axis")]
    if threshold is not None:
        start, stop = (x(threshold), width - 6) if op in (">=", ">") else (6.0, x(threshold))
        parts.insert(
            0, f'<rect x="{start:.1f}" y="2" width="{stop - start:.1f}" height="18" class="claimed"/>'
        )
    if interval is not None:
        ends = x(low if interval[0] is None else interval[0]), x(high if interval[1] is None else interval[1])
        parts.append(line(ends[0], middle, ends[1], middle, "interval"))
        for end, at, way in zip(interval, ends, (1, -1), strict=True):
            if end is None:
                parts.append(
                    f'<path d="M{at + 5 * way:.1f} 6 L{at:.1f} {middle} L{at + 5 * way:.1f} 16" class="open"/>'
                )
            else:
                parts.append(line(at, 6, at, 16, "interval"))
    if value is not None:
        parts.append(f'<circle cx="{x(value):.1f}" cy="{middle}" r="4" class="value"/>')
    if threshold is not None:
        parts.append(line(x(threshold), 0, x(threshold), 22, "threshold"))
    parts += [text(6, 33, number(low), anchor="start"), text(width - 6, 33, number(high), anchor="end")]
    return drawing(title, width, 36, parts)


def strip(title: str, dots: Sequence[float], marks: Sequence[tuple[str, float]], unit: str) -> str:
    """Many values as dots on one axis, piled where they meet, and a few marked values with their names above them."""
    ticks = nice(min([*dots, *(v for _, v in marks)]), max([*dots, *(v for _, v in marks)]))
    low, high = ticks[0], ticks[-1]

    def x(value: float) -> float:
        return 16 + (value - low) / (high - low) * (_WIDTH - 32)

    piles: dict[int, int] = {}
    columns = [round(x(dot) / 7) for dot in dots]
    for column in columns:
        piles[column] = piles.get(column, 0) + 1
    tallest = max(piles.values(), default=1)
    step = min(7.0, 90.0 / tallest)
    head = 18.0 * len(marks) + 8
    base = head + tallest * step + 8
    parts = [line(16, base, _WIDTH - 16, base, "axis")]
    for tick in ticks:
        parts += [line(x(tick), base, x(tick), base + 4, "axis"), text(x(tick), base + 17, number(tick))]
    heights: dict[int, int] = {}
    for dot, column in zip(dots, columns, strict=True):
        level = heights[column] = heights.get(column, 0) + 1
        parts.append(f'<circle cx="{x(dot):.1f}" cy="{base - level * step + 1:.1f}" r="3" class="control"/>')
    for row, (name, value) in enumerate(marks):
        at, y = x(value), 14 + 18.0 * row
        anchor = "start" if at < _WIDTH / 2 else "end"
        kind = f"mark mark-{row}"
        parts += [
            line(at, y - 8, at, base, kind),
            text(at + (5 if anchor == "start" else -5), y, f"{name} {number(value)}", anchor=anchor),
        ]
    parts.append(text(_WIDTH / 2, base + 34, unit, kind="label"))
    return drawing(title, _WIDTH, base + 42, parts)


def curve(
    title: str,
    points: Sequence[tuple[float, float]],
    *,
    across: str,
    up: str,
    level: float | None = None,
    at: float | None = None,
    whole: bool = False,
    band: Sequence[tuple[float, float, float, float]] = (),
) -> str:
    """Points joined by lines; `level` is drawn across, `at` upright. `whole`: the vertical axis is 0 to 1 at least.

    `band`: (x, low, middle, high) of others, drawn as an area behind the curve with a thin line in it.
    """
    height, bottom, top = 220.0, 178.0, 12.0
    values = [y for _, y in points] + ([] if level is None else [level]) + ([0.0, 1.0] if whole else [])
    values += [y for _, low, _, high in band for y in (low, high)]
    rows, columns = nice(min(values), max(values)), nice(points[0][0], points[-1][0])

    def place(px: float, py: float) -> tuple[float, float]:
        return (
            _LEFT + (px - columns[0]) / (columns[-1] - columns[0]) * (_WIDTH - _LEFT - _RIGHT),
            bottom - (py - rows[0]) / (rows[-1] - rows[0]) * (bottom - top),
        )

    parts = []
    for row in rows:
        y = place(columns[0], row)[1]
        parts += [
            line(_LEFT, y, _WIDTH - _RIGHT, y, "rule"),
            text(_LEFT - 6, y + 4, number(row), anchor="end"),
        ]
    for column in columns:
        x = place(column, rows[0])[0]
        parts += [line(x, bottom, x, bottom + 4, "axis"), text(x, bottom + 17, number(column))]
    if level is not None:
        y = place(columns[0], level)[1]
        parts.append(line(_LEFT, y, _WIDTH - _RIGHT, y, "threshold"))
    if at is not None:
        x = place(at, rows[0])[0]
        parts.append(line(x, top, x, bottom, "threshold"))
    if band:
        edge = [place(x, high) for x, _, _, high in band] + [place(x, low) for x, low, _, _ in reversed(band)]
        around = " ".join(f"{x:.1f},{y:.1f}" for x, y in edge)
        middle = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, _, y, _ in band)
        parts.append(f'<polygon points="{around}" class="band"/><polyline points="{middle}" class="middle"/>')
    placed = [place(*point) for point in points]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    parts.append(f'<polyline points="{joined}" class="curve"/>')
    if len(points) <= 40:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" class="value"/>' for x, y in placed]
    parts += [
        text((_LEFT + _WIDTH - _RIGHT) / 2, height - 6, across, kind="label"),
        f'<text transform="translate(11 {(top + bottom) / 2:.1f}) rotate(-90)" text-anchor="middle" class="label">'
        f"{escape(up)}</text>",
    ]
    return drawing(title, _WIDTH, height, parts)


def grid(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    *,
    marked: Sequence[tuple[int, int]] = (),
    frames: Sequence[tuple[int, int]] = (),
    written: bool = False,
) -> str:
    """A grid whose cells are the darker, the larger the value; negative ones have another colour and a minus.

    Parameters
    ----------
    cells:
        One row of values for each row; None leaves a place empty.
    marked:
        (row, column) of cells with a frame of their own.
    frames:
        (first, number) of square blocks on the diagonal that get a frame.
    written:
        Write the values into the cells.
    """
    top = max((abs(v) for row in cells for v in row if v is not None), default=0.0) or 1.0
    if written:
        top = max(top, 1.0)  # similarities and shares: the whole shade is 1
    size_x, size_y = (46.0, 30.0) if written else (27.0, 22.0)
    left = 14 + 7.0 * max((len(row) for row in rows), default=0)
    longest = max((len(column) for column in columns), default=0)
    turned = longest * 7.0 > size_x
    head = (min(longest, 24) * 7.0 if turned else 10.0) + 12
    parts: list[str] = []
    for j, column in enumerate(columns):
        x = left + (j + 0.5) * size_x
        if turned:
            short = column if longest <= 24 else column[:23] + "…"
            parts.append(
                f'<text transform="translate({x + 4:.1f} {head - 6:.1f}) rotate(-90)" text-anchor="start">'
                f"{escape(short)}</text>"
            )
        else:
            parts.append(text(x, head - 6, column))
    marks = set(marked)
    for i, row in enumerate(rows):
        y = head + i * size_y
        parts.append(text(left - 6, y + size_y / 2 + 4, row, anchor="end"))
        for j, value in enumerate(cells[i]):
            if value is None:
                continue
            x = left + j * size_x
            kind = "below" if value < 0 else "above"
            share = abs(value) / top * (0.55 if written else 1.0)
            frame = " member" if (i, j) in marks else ""
            parts.append(
                f"<g><title>{escape(f'{row} {columns[j]}: {number(value)}')}</title>"
                f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{size_x - 2:g}" height="{size_y - 2:g}" class="place"/>'
                f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{size_x - 2:g}" height="{size_y - 2:g}" '
                f'class="{kind}{frame}" fill-opacity="{share:.3f}"/>'
            )
            if written:
                parts.append(text(x + size_x / 2, y + size_y / 2 + 4, f"{value:.2f}".replace("-", "−")))
            elif value < 0 and share > 0.02:
                parts.append(text(x + size_x / 2, y + size_y / 2 + 4, "−"))
            parts.append("</g>")
    for first, number_of in frames:
        parts.append(
            f'<rect x="{left + first * size_x:.1f}" y="{head + first * size_y:.1f}" width="{number_of * size_x:g}" '
            f'height="{number_of * size_y:g}" class="family"/>'
        )
    return drawing(title, left + len(columns) * size_x + 4, head + len(rows) * size_y + 4, parts)

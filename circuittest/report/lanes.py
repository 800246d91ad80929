"""Drawings with names: rows on one axis, and one value after another with intervals. As those of `report.svg`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from circuittest.report import svg

_RIGHT = 16.0
_LONGEST = 22


def lanes(
    title: str,
    rows: Sequence[tuple[str, Sequence[float], Sequence[tuple[str, float]]]],
    unit: str,
    *,
    joined: bool = False,
    origin: bool = False,
) -> str:
    """Rows of dots and marks on one axis.

    Parameters
    ----------
    rows:
        (name, dots, marks); a mark is (its name, its value).
    joined:
        Draw a line from the first mark of a row to the last.
    origin:
        Draw a line from zero to each mark.
    """
    values = [v for _, dots, marks in rows for v in (*dots, *(m for _, m in marks))]
    values += [0.0] if origin else []
    ticks = svg.nice(min(values), max(values))
    low, high = ticks[0], ticks[-1]
    left = 14 + 7.0 * max(min(len(name), _LONGEST) for name, *_ in rows)
    width, step, top = left + 260.0, 24.0, 8.0

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - _RIGHT)

    base = top + step * len(rows)
    parts = [svg.line(x(tick), top, x(tick), base, "rule") for tick in ticks]
    for i, (name, dots, marks) in enumerate(rows):
        y = top + step * (i + 0.5)
        short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        told = ", ".join(f"{label} {svg.number(v)}".strip() for label, v in marks)
        parts.append(f"<g><title>{escape(f'{name}: {told}')}</title>")
        parts.append(svg.text(left - 8, y + 4, short, anchor="end"))
        parts += [
            f'<circle cx="{x(dot):.1f}" cy="{y:.1f}" r="2.5" class="control" fill-opacity=".35"/>'
            for dot in dots
        ]
        ends = [value for _, value in marks]
        if joined and len(ends) > 1:
            parts.append(svg.line(x(ends[0]), y, x(ends[-1]), y, "interval"))
        if origin:
            parts += [svg.line(x(0.0), y, x(value), y, "interval") for value in ends]
        for j, value in enumerate(ends):
            if joined and j < len(ends) - 1:
                parts.append(svg.line(x(value), y - 6, x(value), y + 6, "axis"))
            else:
                parts.append(f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="4.5" class="value"/>')
        parts.append("</g>")
    parts.append(svg.line(left, base, width - _RIGHT, base, "axis"))
    parts += [svg.text(x(tick), base + 16, svg.number(tick)) for tick in ticks]
    parts.append(svg.text((left + width - _RIGHT) / 2, base + 34, unit, kind="label"))
    return svg.drawing(title, width, base + 40, parts)


def series(
    title: str,
    points: Sequence[tuple[str, float, tuple[Any, ...]]],
    up: str,
    level: float | None = None,
) -> str:
    """Named values from left to right, joined, each with its interval; an end that is None is open.

    `level` is drawn across.
    """
    finite = [end for _, _, ends in points for end in ends if end is not None]
    values = [value for _, value, _ in points] + finite + ([] if level is None else [level])
    ticks = svg.nice(min(values), max(values))
    longest = max(len(name) for name, *_ in points)
    step = 44.0
    turned = longest * 7.0 > step
    left, top, bottom = 58.0, 12.0, 172.0
    width = max(340.0, left + step * len(points) + _RIGHT)
    gap = (width - left - _RIGHT) / len(points)
    foot = (min(longest, 24) * 6.6 if turned else 14.0) + 12

    def y(value: float) -> float:
        return bottom - (value - ticks[0]) / (ticks[-1] - ticks[0]) * (bottom - top)

    parts = []
    for tick in ticks:
        parts.append(svg.line(left, y(tick), width - _RIGHT, y(tick), "rule"))
        parts.append(svg.text(left - 6, y(tick) + 4, svg.number(tick), anchor="end"))
    if level is not None:
        parts.append(svg.line(left, y(level), width - _RIGHT, y(level), "threshold"))
    at = [left + gap * (i + 0.5) for i in range(len(points))]
    joined = " ".join(f"{x:.1f},{y(value):.1f}" for x, (_, value, _) in zip(at, points, strict=True))
    parts.append(f'<polyline points="{joined}" class="curve"/>')
    for x, (name, value, ends) in zip(at, points, strict=True):
        low, high = ((*ends, None, None) if len(ends) < 2 else ends)[:2]
        known = [end for end in (low, high) if end is not None]
        told = f"{name}: {svg.number(value)}"
        told += f" from {svg.number(low)} to {svg.number(high)}" if len(known) == 2 else ""
        parts.append(f"<g><title>{escape(told)}</title>")
        if known:
            parts.append(
                svg.line(
                    x,
                    y(low if low is not None else ticks[0]),
                    x,
                    y(high if high is not None else ticks[-1]),
                    "interval",
                )
            )
        parts.append(f'<circle cx="{x:.1f}" cy="{y(value):.1f}" r="4.5" class="value"/></g>')
        short = name if len(name) <= 24 else f"{name[:23]}…"
        if turned:
            parts.append(
                f'<text transform="translate({x + 4:.1f} {bottom + 12:.1f}) rotate(-90)" text-anchor="end">'
                f"{escape(short)}</text>"
            )
        else:
            parts.append(svg.text(x, bottom + 18, short))
    parts.append(
        f'<text transform="translate(11 {(top + bottom) / 2:.1f}) rotate(-90)" text-anchor="middle" class="label">'
        f"{escape(up)}</text>"
    )
    return svg.drawing(title, width, bottom + foot, parts)

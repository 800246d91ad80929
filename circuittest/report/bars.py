"""Intervals as small bars of characters, so that a table of claims can be read at a glance."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[float | None, float | None]


def axis(numbers: Iterable[float | None]) -> tuple[float, float]:
    """The common scale of some numbers: 0 to 1 where they fit, else from the least to the greatest with 0 included."""
    finite = [0.0, *(number for number in numbers if number is not None)]
    low, high = min(finite), max(finite)
    if low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    if low >= -1.0 and high <= 1.0:
        return -1.0, 1.0
    return low, high if high > low else low + 1.0


def bar(
    interval: Span | None,
    value: float | None,
    threshold: float | None,
    scale: tuple[float, float],
    *,
    width: int = 20,
    ascii_only: bool = False,
) -> str:
    """An interval on a scale: ``·····├──●──┤···`` with ``┃`` at the threshold (``|--o--|`` and ``!`` in ASCII).

    An end that is None is open and drawn as an arrow; where marks coincide, the threshold wins over the value, and the
    value over the ends.
    """
    dot, line, left, right, open_left, open_right, mark, point = (
        (".", "-", "|", "|", "<", ">", "!", "o") if ascii_only else ("·", "─", "├", "┤", "←", "→", "┃", "●")
    )
    low, high = scale

    def cell(number: float) -> int:
        return round((min(max(number, low), high) - low) / (high - low) * (width - 1))

    cells = [dot] * width
    if interval is not None:
        start = 0 if interval[0] is None else cell(interval[0])
        stop = width - 1 if interval[1] is None else cell(interval[1])
        cells[start : stop + 1] = [line] * (stop + 1 - start)
        cells[stop] = open_right if interval[1] is None else right
        cells[start] = open_left if interval[0] is None else left
    if value is not None:
        cells[cell(value)] = point
    if threshold is not None:
        cells[cell(threshold)] = mark
    return "".join(cells)

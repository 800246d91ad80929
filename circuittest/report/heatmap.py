"""Unit scores as a map of the terminal: one row a layer, one column a head."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from typing import Literal

from rich.console import Console
from rich.text import Text

from circuittest.units import Unit

_SHADES, _ASCII_SHADES = " ░▒▓█", " .:*#"
_RED, _BLUE = (178, 24, 43), (33, 102, 172)


def heatmap(
    scores: Mapping[str, float] | Mapping[Unit, float],
    *,
    circuit: Iterable[str | Unit] = (),
    width: int = 100,
    colour: bool = False,
    unicode: bool = True,
) -> str:
    """Scores of units as a map.

    Parameters
    ----------
    scores:
        Unit or its id → score. Heads, KV groups or experts give the columns of their index; an MLP or an attention
        layer has a column of its own. The strongest score has the full shade; a negative one is marked with ``-`` (in
        colour: blue). NaN is shown as ``?``.
    circuit:
        Members are marked with brackets.
    width:
        Columns of the terminal; what does not fit is cut into several maps, one under the other.
    """
    cells = {key if isinstance(key, Unit) else Unit.parse(key): float(value) for key, value in scores.items()}
    cells = {unit: value for unit, value in cells.items() if unit.layer is not None}
    if not cells:
        return "no units with a layer to show\n"
    members = {unit if isinstance(unit, Unit) else Unit.parse(unit) for unit in circuit}
    top = max((abs(value) for value in cells.values() if math.isfinite(value)), default=0.0)
    layers = sorted({unit.layer for unit in cells if unit.layer is not None})
    columns = sorted({_column(unit) for unit in cells})
    by_place = {(unit.layer, _column(unit)): unit for unit in cells}
    label = max(len(f"L{layer}") for layer in layers) + 1
    cell = max(5, 1 + max(len(name) for _, _, name in columns))
    fit = max(1, (width - label) // cell)
    stream = io.StringIO()
    system: Literal["truecolor"] | None = "truecolor" if colour else None
    console = Console(
        file=stream,
        width=max(width, label + cell),
        force_terminal=colour,
        color_system=system,
        highlight=False,
    )
    for start in range(0, len(columns), fit):
        shown = columns[start : start + fit]
        console.print(Text(" " * label + "".join(f"{name:^{cell}}" for _, _, name in shown), style="bold"))
        for layer in layers:
            row = Text(f"{f'L{layer}':<{label}}")
            for column in shown:
                unit = by_place.get((layer, column))
                if unit is None:
                    row.append(" " * cell)
                    continue
                text, style = _cell(cells[unit], top, unit in members, unicode, colour)
                row.append(f"{text:^{cell}}", style=style)
            console.print(row)
    kind = "█" if unicode else "#"
    note = f"{kind} = {top:.3g}" + ("; - negative" if any(v < 0 for v in cells.values()) else "")
    console.print(Text(note + ("; [ ] in the circuit" if members else "")))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _column(unit: Unit) -> tuple[int, int, str]:
    """Order and heading of a unit's column."""
    order = ("head", "kv", "expert", "neuron", "attn", "mlp").index(unit.kind)
    name = str(unit).partition(".")[2]
    return order, unit.index or 0, name


def _cell(value: float, top: float, member: bool, unicode: bool, colour: bool) -> tuple[str, str]:
    left, right = ("[", "]") if member else (" ", " ")
    if not math.isfinite(value):
        return f"{left} ?{right}", ""
    share = abs(value) / top if top else 0.0
    shades = _SHADES if unicode else _ASCII_SHADES
    shade = shades[math.ceil(share * (len(shades) - 1) - 1e-9)]
    text = f"{left}{'-' if value < 0 else ' '}{shade}{right}"
    if not colour or share == 0:
        return text, ""
    base = _BLUE if value < 0 else _RED
    mixed = tuple(round(255 + (part - 255) * share) for part in base)
    return text, f"{'white' if share > 0.5 else 'black'} on rgb({mixed[0]},{mixed[1]},{mixed[2]})"

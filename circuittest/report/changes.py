"""Drawings of what differs: units of a kept circuit against random additions, a base against a tuned model, and one
claim over many models, such as the checkpoints of a training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from circuittest.report import svg
from circuittest.report.lanes import lanes, series
from circuittest.report.plot import MOST_ROWS, Plot, is_number
from circuittest.report.terminal import asked_text, estimate_text, limit, verdict_text

Record = Mapping[str, Any]
Rows = list[tuple[str, Sequence[float], Sequence[tuple[str, float]]]]


def minimality(record: Record, details: Mapping[str, Any]) -> Iterator[Plot]:
    """Each unit's effect among those of random additions of its kind."""
    units, references = details.get("units"), details.get("references")
    if not isinstance(units, dict) or not isinstance(references, dict) or not 1 <= len(units) <= MOST_ROWS:
        return
    if not all(isinstance(row, dict) and is_number(row.get("effect")) for row in units.values()):
        return
    pools = {
        kind: [x for x in found.get("effects", ()) if is_number(x)] for kind, found in references.items()
    }
    ordered = sorted(units, key=lambda name: (-units[name]["effect"], name))
    rows_of = [(name, pools.get(_kind(name), []), [("", float(units[name]["effect"]))]) for name in ordered]
    metric = str(record["choices"].get("metric") or "the metric")
    drawn = lanes(
        "effect of taking each unit out of the circuit, among those of random additions",
        rows_of,
        f"change of {metric}",
    )
    rows = [
        (
            name,
            svg.number(units[name]["effect"]),
            svg.number(units[name]["exceeds"]) if is_number(units[name].get("exceeds")) else "",
        )
        for name in ordered
    ]
    caption = (
        "The mark of each row is the effect of taking the unit out of the circuit; the dots are effects of random "
        "units that are added to it. A unit that earns its place lies right of most of them."
    )
    yield Plot(drawn, caption, ("unit", "effect", "share of additions below"), tuple(rows))


def sufficiency(record: Record, details: Mapping[str, Any]) -> Iterator[Plot]:
    """Random circuits beside the circuit, and faithfulness over sizes."""
    controls, own = details.get("controls"), record.get("estimate")
    if isinstance(controls, dict) and is_number(own):
        dots = controls.get("sufficiency")
        if isinstance(dots, list) and dots and all(map(is_number, dots)):
            told = [("the circuit", float(own))]
            rows = [("the circuit", svg.number(own))]
            rows += [(f"random circuit {i + 1}", svg.number(value)) for i, value in enumerate(dots)]
            yield Plot(
                svg.strip(f"sufficiency of {len(dots)} random circuits", dots, told, "sufficiency"),
                "The dots are random circuits of as many units, kept in the circuit's place.",
                ("kept", "sufficiency"),
                tuple(rows),
            )
    found = details.get("curve")
    if not isinstance(found, dict) or not isinstance(found.get("units"), list):
        return
    counts, values, of = found["units"], found.get("sufficiency"), found.get("of")
    if not (isinstance(values, list) and len(values) == len(counts) >= 2 and is_number(of) and of):
        return
    if not all(map(is_number, (*counts, *values))):
        return
    points = [(100.0 * k / of, float(v)) for k, v in zip(counts, values, strict=True)]
    drawn = svg.curve(
        "sufficiency of circuits of growing size",
        points,
        across="units kept, % of the universe",
        up="sufficiency",
        level=1.0,
        whole=True,
    )
    rows = [(f"{x:.3g} %", svg.number(y)) for x, y in points]
    yield Plot(
        drawn,
        "What is left when the units with the highest scores are kept. The line across is the whole model.",
        ("kept", "sufficiency"),
        tuple(rows),
    )


def specificity(record: Record, details: Mapping[str, Any]) -> Iterator[Plot]:
    """What each task's circuit costs."""
    drops = details.get("drops")
    if not isinstance(drops, dict) or not is_number(drops.get("own")):
        return
    others = drops.get("others")
    if not isinstance(others, dict) or not others or not all(map(is_number, others.values())):
        return
    named = [("own circuit", float(drops["own"])), *((str(t), float(v)) for t, v in others.items())]
    shown: Rows = [(name, [], [("", value)]) for name, value in named[:MOST_ROWS]]
    yield Plot(
        lanes(f"accuracy lost on {record.get('task', 'the task')}", shown, "accuracy lost", origin=True),
        "Accuracy lost on the task under its own circuit, and under the circuits of other tasks.",
        ("circuit ablated", "accuracy lost"),
        tuple((name, svg.number(value)) for name, value in named),
    )


def drift(record: Record, details: Mapping[str, Any]) -> Iterator[Plot]:
    """Base and tuned model side by side."""
    told = (
        ("acc", "accuracy"),
        ("m", str(record["choices"].get("metric") or "metric")),
        ("beyond", "damage beyond controls"),
    )
    pairs: Rows = []
    rows: list[tuple[str, ...]] = []
    for key, name in told:
        before, after = details.get(f"{key}_base"), details.get(f"{key}_tuned")
        if is_number(before) and is_number(after):
            pairs.append((name, [], [("base", float(before)), ("tuned", float(after))]))
            rows.append((name, svg.number(before), svg.number(after), svg.number(after - before)))
    if pairs:
        yield Plot(
            lanes("base and tuned model", pairs, "value", joined=True),
            "From the base model (thin mark) to the tuned one (thick mark).",
            ("measured", "base", "tuned", "change"),
            tuple(rows),
        )


def across_models(records: Iterable[Record]) -> list[tuple[str, Plot]]:
    """Of claims that were judged on several models, a drawing each, with its title.

    Records belong together where their ids differ in the model's name alone. Checkpoints are in the order of their
    steps.
    """
    groups: dict[tuple[str, ...], dict[str, Record]] = {}
    for record in records:
        name = record["id"].replace(record["model"], "*") if record["model"] else record["id"]
        key = (name, record["claim"], record["task"])
        groups.setdefault(key, {}).setdefault(record["model"], record)
    found = []
    for (name, claim, task), by_model in groups.items():
        listed = [by_model[model] for model in sorted(by_model, key=_in_order)]
        listed = [record for record in listed if is_number(record["estimate"])]
        if len(listed) < 2 or "*" not in name:
            continue
        points = [
            (record["model"], float(record["estimate"]), tuple(record["interval"] or (None, None)))
            for record in listed
        ]
        threshold = limit(listed[0])
        same = all(limit(record) == threshold for record in listed)
        drawn = series(
            f"{claim} over {len(points)} models", _short(points), claim, threshold if same else None
        )
        rows = tuple(
            (record["model"], estimate_text(record), asked_text(record), verdict_text(record))
            for record in listed
        )
        caption = f"{claim} on {task}, model by model, with intervals."
        if same and threshold is not None:
            caption += f" The line across is what was asked ({asked_text(listed[0])})."
        title = name.replace("[*]", "").replace("-*]", "]").replace("[*-", "[")
        found.append((title, Plot(drawn, caption, ("model", "estimate", "asked", "verdict"), rows)))
    return found


def _short(
    points: Sequence[tuple[str, float, tuple[Any, ...]]],
) -> list[tuple[str, float, tuple[Any, ...]]]:
    """Names without what all of them begin with, up to the last mark between words."""
    names = [name for name, *_ in points]
    first, last = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    cut = max((m.end() for m in re.finditer(r"[@:/_-]", first[:same])), default=0)
    return [(name[cut:] or name, value, ends) for name, value, ends in points]


def _in_order(model: str) -> tuple[bool, list[tuple[int, str]]]:
    """Steps first, by number; then the others by name, numbers in names as numbers."""
    parts = re.split(r"(\d+)", model)
    return "step" not in model.lower(), [
        (int(part), "") if part.isdigit() and len(part) < 30 else (0, part) for part in parts
    ]


def _kind(name: str) -> str:
    """The kind of a unit by its id; "" for what is none."""
    from circuittest.errors import UnitError
    from circuittest.units import Unit

    try:
        return Unit.parse(name).kind
    except UnitError:
        return ""

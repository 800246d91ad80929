"""Top effects and units to 80 % of the damage, as tables and one page with figures.

    python -m example_suites.localisation.measure pair --out build/localisation
    python -m example_suites.localisation.measure smollm2 --out build/localisation [--tasks induction ioi] [--few 10]

``pair`` compares zoo:gqa with zoo:gqa-mha, which have the same data, recipe and sizes and differ in the number of KV
heads alone, on the paper's three tasks: per query head, and per four query heads (a KV group of the one, four
neighbouring heads of the other). ``smollm2`` and ``gemma3`` scan single heads and KV groups of real models, and name
the roles of heads beside their effects; a figure of each task is written as an SVG file, too. What is measured is
written as JSON beside the page, task by task, and not measured again; the numbers of the README come from here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from circuittest import Lab
from circuittest.find.minimal import holds
from circuittest.report import svg
from circuittest.report.plots import unit_map
from circuittest.report.style import STYLE
from circuittest.stats import MeanInference
from circuittest.stats.resampling import count_blocks

PAIR = ("zoo:gqa", "zoo:gqa-mha")
TASKS = ("ioi", "induction", "facts")
EXAMPLES = 100
#: Of a real model: examples that order heads (the paper's number); twice as many judge.
FEW = 20
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
LEVEL = 0.8
RESAMPLES = 2000
#: Of a real model: its tasks, and the role whose heads are framed in the task's figure.
FRAMED = {"induction": "induction", "ioi": "answer-token"}
ROLES = ("previous-token", "duplicate-token", "induction", "answer-token", "foil-token")
LEAST = 0.4


def pair(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every task on both models, per head and per four heads, with paired differences; all so far after each task."""
    for task in TASKS:
        if task in found:
            continue
        labs = [Lab(name, task, discover=EXAMPLES, evaluate=EXAMPLES) for name in PAIR]
        prompts = [[item.prompt_ids for item in lab.data.evaluate] for lab in labs]
        if prompts[0] != prompts[1]:
            raise ValueError(f"{task}: the two models are asked different examples")
        size = labs[0].layout.group_size
        rows: dict[str, Any] = {}
        kept = {}
        for lab, name in zip(labs, PAIR, strict=True):
            fours = {"per": "kv"} if lab.layout.group_size > 1 else {"per": "group", "size": size}
            for unit, how in (("head", {"per": "head"}), ("four", fours)):
                rows[f"{name} {unit}"], kept[name, unit] = row(lab, how)
        found[task] = {
            "rows": rows,
            "paper": compared(kept[PAIR[0], "four"], kept[PAIR[1], "head"]),
            "per head": compared(kept[PAIR[0], "head"], kept[PAIR[1], "head"]),
            "per four": compared(kept[PAIR[0], "four"], kept[PAIR[1], "four"]),
        }
        yield found


def row(lab: Lab, how: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """One model and kind of unit: the claim's numbers, and the damage behind them."""
    claim = lab.concentration(**how)
    grown = lab.damage(lab.scan(**how))
    details = claim.details
    top = details.get("top", {})
    return {
        "invalid": claim.invalid,
        "accuracy": details.get("acc_base"),
        "metric": claim.choices["metric"],
        "range": details.get("range"),
        "members": details.get("members"),
        "effects": details.get("effects"),
        "top": top,
        "top_among_its_layer": details.get("top_among", {}).get("layer", {}).get("p"),
        "units_to": None if claim.invalid else {"value": claim.value, "interval": list(claim.interval)},
        "area": details.get("area"),
        "curve": {str(k): value for k, value in grown.curve.items()},
        "easy_and_hard": details.get("easy_and_hard"),
    }, grown


def compared(a: Any, b: Any) -> dict[str, Any]:
    """First less second on the same examples: the top effect, its share of the reach, and units to the level."""
    effect = MeanInference(a.lost[0] - b.lost[0], bounds=None)
    draws: dict[str, list[float]] = {"share": [], "units": []}
    for block in count_blocks(0, RESAMPLES, a.base.size):
        for weights in block:
            shares, units = zip(*(_drawn(one, weights) for one in (a, b)), strict=True)
            draws["share"].append(shares[0] - shares[1])
            draws["units"].append(units[0] - units[1])
    whole = np.ones(a.base.size)
    (share_a, units_a), (share_b, units_b) = _drawn(a, whole), _drawn(b, whole)
    ends = lambda values: [float(end) for end in np.quantile(values, (0.025, 0.975))]
    return {
        "top": {"value": effect.value, "interval": list(effect.interval())},
        "share": {"value": share_a - share_b, "interval": ends(draws["share"])},
        "units": {"value": units_a - units_b, "interval": ends(draws["units"])},
    }


def _drawn(grown: Any, weights: np.ndarray) -> tuple[float, int]:
    span = float(weights @ grown.reach)
    shares = (grown.lost @ weights) / span
    place = holds(list(shares), LEVEL)
    return float(shares[0]), grown.sizes[len(shares) - 1 if place is None else place]


def real(name: str, found: dict[str, Any], tasks: Sequence[str], few: int = FEW) -> Iterator[dict[str, Any]]:
    """Single heads and KV groups of a real model on some tasks; the first of the order against controls."""
    from circuittest.models import load_model

    model = load_model(str(_file(name)))
    for task in tasks:
        if task in found:
            continue
        lab = Lab(model, task, prefix=_PREFIXES[name], discover=few, evaluate=2 * few)
        scores = {kind: table.means() for kind, table in lab.roles(ROLES, split="discover").items()}
        rows: dict[str, Any] = {
            "examples": [few, 2 * few],
            "roles": {
                kind: {str(head): mean for head, mean in means.items() if mean >= LEAST}
                for kind, means in scores.items()
            },
        }
        for per in ("head", "kv"):
            scan = lab.scan(per)  # type: ignore[arg-type]
            count = len(scan.members)
            grown = lab.damage(scan, sizes=sorted({k for k in SIZES if k < count} | {count}))
            crossing, top = grown.units_to(LEVEL), scan.ordered[0]
            effect = MeanInference(grown.lost[0], bounds=None)
            rows[per] = {
                "invalid": "" if grown.reach.mean() > 0 else "ablating all heads costs nothing",
                "metric": scan.choices["metric"],
                "base": float(grown.base.mean()),
                "reach": float(grown.reach.mean()),
                "effects": {m.name: float(e) for m, e in zip(scan.members, scan.effects, strict=True)},
                "order": [member.name for member in scan.ordered],
                "top": {"name": top.name, "effect": effect.value, "interval": list(effect.interval())},
                "units_to": {"value": crossing.value, "interval": list(crossing.interval())},
                "curve": {str(k): value for k, value in grown.curve.items()},
            }
        first = lab.circuit(rows["head"]["order"][:8], name="first 8 of the scan")
        judged = lab.necessity(first, controls=20, match="layer")
        rows["first_8"] = {
            "units": [str(unit) for unit in first.units],
            "necessity": None
            if judged.invalid
            else {"value": judged.value, "interval": list(judged.interval)},
            "invalid": judged.invalid,
            **{key: judged.details.get(key) for key in ("acc_base", "acc_circuit", "acc_controls")},
        }
        found[task] = rows
        yield found


_PREFIXES = {"smollm2": "<|endoftext|>", "gemma3": "bos"}


def _file(name: str) -> Path:
    """The model's file, had as the tests of this repository have it."""
    from tests.helpers.real import file_of

    file = file_of(name)
    if isinstance(file, str):
        raise SystemExit(file)
    return file


def table(found: dict[str, Any]) -> str:
    """The pair's numbers as Markdown."""
    lines = [
        "| task | model, unit | top unit | its effect | share of the reach | units to 80 % | query heads |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for task, one in found.items():
        for key, data in one["rows"].items():
            if data["invalid"]:
                lines.append(f"| {task} | {key} | invalid | | | | |")
                continue
            top, units = data["top"], data["units_to"]
            width = 1 if key.endswith("head") else 4
            low, high = units["interval"]
            lines.append(
                f"| {task} | {key} | {top['name']} | {_told(top['effect'], top['interval'])} | {top['share']:.2f} | "
                f"{units['value']:.0f} [{low:.0f}, {high:.0f}] | {units['value'] * width:.0f} |"
            )
    return "\n".join(lines)


def differences(found: dict[str, Any]) -> str:
    """Paired differences as Markdown: GQA less MHA."""
    lines = ["| task | compared | top effect | share of the reach | units to 80 % |", "|---|---|---|---|---|"]
    for task, one in found.items():
        for name in ("paper", "per head", "per four"):
            parts = [one[name][key] for key in ("top", "share", "units")]
            cells = [_told(part["value"], part["interval"]) for part in parts[:2]]
            low, high = parts[2]["interval"]
            cells.append(f"{parts[2]['value']:+.0f} [{low:+.0f}, {high:+.0f}]")
            lines.append(f"| {task} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(value: float, interval: list[float]) -> str:
    return f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def role_heads(one: dict[str, Any]) -> str:
    """A real model's heads with a role, as Markdown: their scores, what each costs alone, and its place in the scan."""
    lines = ["| head | scores of 0.4 and more | its effect | place |", "|---|---|---|---|"]
    effects, order = one["head"]["effects"], one["head"]["order"]
    having = {head for means in one["roles"].values() for head in means}
    for head in sorted(having, key=order.index):
        told = {kind: means[head] for kind, means in one["roles"].items() if head in means}
        scores = ", ".join(f"{kind} {told[kind]:.2f}" for kind in sorted(told, key=lambda k: -told[k]))
        lines.append(f"| {head} | {scores} | {effects[head]:+.2f} | {order.index(head) + 1} |")
    return "\n".join(lines)


def single(task: str, one: dict[str, Any]) -> str:
    """What each head does by itself, with the heads of the task's role framed, as an SVG file."""
    kind = FRAMED[task]
    title = f"{task}: fall of {one['head']['metric']} by head, {kind} heads framed"
    drawn = unit_map(title, title, one["head"]["effects"], list(one["roles"][kind]))
    if drawn is None:
        raise ValueError(f"{task}: there is nothing to draw")
    head, rest = drawn.svg.split("</title>", 1)
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}</title><style>{STYLE}</style>{rest}\n"


def page(results: dict[str, Any]) -> str:
    """Heat maps of single heads and curves of damage, drawn as the reports draw them."""
    parts = []
    for name, found in results.items():
        for task, one in found.items():
            rows = one["rows"] if name == "pair" else {f"{name} head": one["head"], f"{name} kv": one["kv"]}
            for key, data in rows.items():
                if data["invalid"]:
                    told = f"{task}, {key}: {data['invalid']}"
                    parts.append(f"<p>{escape(told)}</p>")
                    continue
                parts.append(_figures(task, key, data))
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Localisation</title>'
        f"<style>{STYLE}</style></head><body><main><h1>Localisation</h1>"
        f'<div class="plots">{body}</div></main></body></html>\n'
    )


def _figures(task: str, key: str, data: dict[str, Any]) -> str:
    title = f"{task}, {key}: fall of {data['metric']} by unit"
    drawn = unit_map(title, title, data["effects"], [data["top"]["name"]])
    shown = [] if drawn is None else [(drawn.svg, title)]
    points = [(0.0, 0.0), *((float(k), value) for k, value in data["curve"].items())]
    told = f"{task}, {key}: share of the damage by units ablated"
    shown.append((svg.curve(told, points, across="units ablated", up="share", level=LEVEL, whole=True), told))
    return "\n".join(
        f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>" for drawing, caption in shown
    )


def main() -> None:
    """Measure what is asked for, or read it, and write tables and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", choices=("pair", "smollm2", "gemma3"))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--few", type=int, default=FEW, help="examples that order a real model's heads")
    parser.add_argument(
        "--tasks", nargs="+", choices=list(FRAMED), default=list(FRAMED), help="of real models"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for what in arguments.what:
        file = arguments.out / f"{what}.json"
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        steps = pair(found) if what == "pair" else real(what, found, arguments.tasks, arguments.few)
        for so_far in steps:
            file.write_text(json.dumps(so_far, indent=1) + "\n", encoding="utf-8")
        results[what] = found
    if "pair" in results:
        print(table(results["pair"]), differences(results["pair"]), sep="\n\n")
    for what, found in results.items():
        for task, one in found.items() if what != "pair" else ():
            print(f"{what}, {task}", role_heads(one), sep="\n\n", end="\n\n")
            (arguments.out / f"{what}-{task}.svg").write_text(single(task, one), encoding="utf-8")
    (arguments.out / "localisation.html").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()

"""``circuittest scan``: what every head, KV group or MLP does when it alone is ablated, and how the damage adds up."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from circuittest.commands import common

if TYPE_CHECKING:
    from circuittest.find.scan import Damage, Scan
    from circuittest.lab import Lab

#: What a universe is made of, one by one.
UNIVERSES = {"heads": "head", "kv": "kv", "attn": "attn", "mlps": "mlp"}
#: Rows of the printed table.
TOP = 10
LEVEL = 0.8


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("scan", help="ablate every head, KV group or MLP by itself, then in order")
    common.add_model(parser)
    parser.add_argument(
        "--task", required=True, help="a task's name (`circuittest list tasks`), or a .jsonl or .csv file"
    )
    common.add_data(parser, discover=100, evaluate=100)
    parser.add_argument(
        "--universe",
        default="heads",
        choices=tuple(UNIVERSES),
        help="what is ablated one by one (default: heads)",
    )
    parser.add_argument(
        "--order",
        default="static",
        choices=("static", "greedy"),
        help="of the joint ablation: by single effects, or each next one by what it adds (default: static)",
    )
    parser.add_argument(
        "--ablation",
        default="zero",
        choices=("zero", "counterfactual"),
        help="what an ablated unit gives instead (default: zero)",
    )
    parser.add_argument(
        "--metric",
        choices=("log_prob", "logit_diff", "prob_diff", "accuracy"),
        help="what falls (default: the task's metric)",
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a map of the effects, the largest with intervals, and the damage in order; or JSON. Exit code 0."""
    lab = common.lab_of(arguments)
    found = lab.scan(
        UNIVERSES[arguments.universe],  # type: ignore[arg-type]
        metric=arguments.metric,
        ablation=arguments.ablation,
        order=arguments.order,
    )
    grown = lab.damage(found) if arguments.evaluate else None
    if arguments.json is not None:
        payload = {"scan": found.to_dict(), "damage": None if grown is None else _damage(grown)}
        common.emit(arguments.json, payload, common.environment_of(lab.model))
    if arguments.json != "-":
        common.say(summary(lab, found, grown))
    return 0


def summary(lab: Lab, found: Scan, grown: Damage | None) -> str:
    """What was found, for a terminal."""
    import sys

    from circuittest.report.heatmap import heatmap

    how = found.choices
    effects = {member.name: float(e) for member, e in zip(found.members, found.effects, strict=True)}
    text = f"{lab.model.name}, {lab.data.task}: fall of {how['metric']} when a unit is ablated ({how['ablation']}), "
    text += f"mean over {found.base.size} discovery examples\n"
    text += f"nothing ablated {found.base.mean():.3g}, all of them {found.emptied.mean():.3g}\n"
    text += heatmap(
        effects,
        circuit=[member.name for member in found.ordered[:TOP]],
        width=common.width(),
        colour=sys.stdout.isatty(),
        unicode=common.shows_unicode(),
    )
    rows = []
    for place, i in enumerate(found.order[:TOP]):
        low, high = found.interval(i)
        row = [found.members[i].name, f"{effects[found.members[i].name]:.3g}", f"[{low:.3g}, {high:.3g}]"]
        if grown is not None:
            row.append(_share(grown, place + 1))
        rows.append(row)
    columns = [f"first {len(rows)} in order ({how['order']})", "effect", "95 % interval"]
    text += common.table(columns + ([] if grown is None else ["damage so far"]), rows)
    return text + _told(grown)


def _share(grown: Damage, size: int) -> str:
    if grown.reach.mean() <= 0 or size not in grown.sizes:
        return "undefined"
    return f"{grown.curve[size]:.2f}"


def _told(grown: Damage | None) -> str:
    if grown is None:
        return ""
    where = f"on {grown.base.size} evaluation examples"
    if grown.reach.mean() <= 0:
        return f"\nablating all of them costs nothing {where}, so that there are no shares of it"
    crossing = grown.units_to(LEVEL)
    low, high = crossing.interval()
    return (
        f"\n{100 * LEVEL:.0f} % of the damage of all is done, and stays done, with {crossing.value:.0f} of "
        f"{grown.sizes[-1]} [{low:.0f}, {high:.0f}] {where}; `concentration` is the claim about it"
    )


def _damage(grown: Damage) -> dict[str, Any]:
    if grown.reach.mean() <= 0:
        return {"reach": float(grown.reach.mean()), "curve": None, "units_to": None}
    crossing = grown.units_to(LEVEL)
    return {
        "reach": float(grown.reach.mean()),
        "curve": {str(size): value for size, value in grown.curve.items()},
        "units_to": {"level": LEVEL, "value": crossing.value, "interval": list(crossing.interval())},
    }

"""``circuittest roles``: which heads have a role, which the model needs, and which both."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from circuittest.commands import common

if TYPE_CHECKING:
    from circuittest.find.roles.course import Course
    from circuittest.find.roles.functions import Effect, Head, Judged, Side
    from circuittest.lab import Lab


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "roles", help="what the heads look at and move, beside what the model needs of them"
    )
    common.add_model(parser, several="several: the checkpoints of a training run, the earliest first")
    parser.add_argument(
        "--task", default="induction", help="a task's name, or a .jsonl or .csv file (default: induction)"
    )
    common.add_data(parser, discover=100, evaluate=100)
    parser.add_argument(
        "--kinds",
        metavar="A,B",
        help="roles, with commas between them, or all (default: previous-token, induction, duplicate-token, "
        "answer-token, copy, copy-suppression)",
    )
    parser.add_argument(
        "--least", type=float, default=0.4, help="mean score from which on a head has a role (default: 0.4)"
    )
    parser.add_argument(
        "--positions", default="all", help="the queries that count: all, or the answer's (default: all)"
    )
    parser.add_argument(
        "--carriers",
        type=common.count,
        default=8,
        metavar="N",
        help="also look at the N heads with the largest attribution (default: 8)",
    )
    parser.add_argument("--ablation", default="zero", help="as for the claim closure (default: zero)")
    parser.add_argument(
        "--controls", type=common.count, default=100, metavar="R", help="control sets (default: 100)"
    )
    parser.add_argument(
        "--single", action="store_true", help="closure of every head by itself, too (R more runs for each)"
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print two tables, or JSON. Exit code 0, whatever was found."""
    from circuittest.find.roles.course import course
    from circuittest.find.roles.functions import USUAL, form_and_function
    from circuittest.find.roles.kinds import ROLES

    kinds = USUAL if arguments.kinds is None else tuple(arguments.kinds.split(","))
    kinds = ROLES if kinds == ("all",) else kinds
    how: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("least", "carriers", "positions", "ablation", "controls", "single")
    }
    lab = common.lab_of(arguments, arguments.model[0])
    if len(arguments.model) > 1:
        over = course(arguments.model, lambda name: common.lab_of(arguments, name), kinds, **how)
        if arguments.json is not None:
            payload = {"task": lab.data.task, **over.to_dict()}
            common.emit(arguments.json, payload, common.environment_of(lab.model))
        if arguments.json != "-":
            common.say(over_time(lab, over))
        return 0
    found = form_and_function(lab, kinds, **how)
    if arguments.json is not None:
        payload = {"model": lab.model.name, "task": lab.data.task, **found.to_dict()}
        common.emit(arguments.json, payload, common.environment_of(lab.model))
    if arguments.json != "-":
        common.say(summary(lab, found))
    return 0


def summary(lab: Lab, found: Side) -> str:
    """Two tables for a terminal: heads, and groups of heads."""
    how = found.choices
    text = (
        f"{lab.model.name}, {lab.data.task}: scores on {how['discover']} discovery examples, effects and closure on "
        f"{how['evaluate']} evaluation examples ({how['ablation']} ablation)\n"
    )
    for kind, why in found.undefined.items():
        text += f"{kind} is undefined where {why}\n"
    if not found.heads:
        return text + f"no head scores {how['least']:g} for any role asked for"
    single = any(head.closure is not None for head in found.heads)
    columns = ["head", "scores", "attribution", "log-prob lost", f"{lab.accuracy} lost"]
    columns += ["closure", "is"] if single else []
    text += common.table(columns, [_row(head, lab.accuracy, found, single) for head in found.heads])
    groups = [_group(group) for group in found.groups]
    text += "\n\n" + common.table(
        ["group", "heads", "closure", "log-prob lost beyond controls", "p (Holm)"], groups
    )
    return text + "\nA score is a form. What the model needs is what closure calls load-bearing."


def over_time(lab: Lab, found: Course) -> str:
    """Two tables for a terminal: each role, and each head, checkpoint by checkpoint."""
    how = found.sides[0].choices
    text = (
        f"{lab.data.task}: scores on {how['discover']} discovery examples, effects and closure on {how['evaluate']} "
        f"evaluation examples ({how['ablation']} ablation)\n"
    )
    rows = []
    for kind in found.kinds:
        for place, stage in enumerate(found.stages(kind)):
            judged = stage.judged
            rows.append(
                [
                    "" if place else kind,
                    stage.model,
                    str(len(stage.heads)),
                    "undefined" if stage.best is None else f"{stage.best[1]:.2f} {stage.best[0]}",
                    "–" if judged is None else judged.label,
                    "" if judged is None else _beyond(judged),
                ]
            )
    columns = ["role", "model", "heads", "largest score", "closure", "log-prob lost beyond controls"]
    text += common.table(columns, rows) + "\n\n"
    since = [[kind, found.form_from(kind) or "–", found.function_from(kind) or "–"] for kind in found.kinds]
    text += common.table(["role", "heads have it from", "load-bearing from"], since)
    heads = found.heads()
    if heads:
        text += "\n\n" + common.table(
            ["head", *found.models],
            [[str(unit), *map(_cell, steps)] for unit, steps in heads.items()],
        )
        text += "\nRoles of each head, and the log-probability that its ablation alone costs."
    return text + "\nA score is a form. What the model needs is what closure calls load-bearing."


def _cell(head: Head) -> str:
    scores = sorted(((head.scores[kind], kind) for kind in head.roles), reverse=True)
    shown = ", ".join(f"{kind} {score:.2f}" for score, kind in scores)
    return f"{shown or '–'}; {head.effects['log_prob'].value:.2f}"


def _row(head: Head, accuracy: str, found: Side, single: bool) -> list[str]:
    scores = sorted(head.scores.items(), key=lambda item: -item[1])
    shown = [f"{kind} {score:.2f}" for kind, score in scores if kind in head.roles]
    row = [
        str(head.unit),
        ", ".join(shown) or "–",
        f"top {found.choices['carriers']}" if head.carrier else "",
        _interval(head.effects["log_prob"]),
        _interval(head.effects[accuracy]),
    ]
    return row + ([head.closure or "", head.kind] if single else [])


def _group(group: Judged) -> list[str]:
    units = " ".join(map(str, group.units[:8])) + (
        f" +{len(group.units) - 8}" if len(group.units) > 8 else ""
    )
    return [
        group.name,
        units,
        group.label,
        _beyond(group),
        "" if group.adjusted is None else f"{group.adjusted:.2g}",
    ]


def _beyond(group: Judged) -> str:
    return _interval(group.beyond) if group.beyond is not None else group.reason


def _interval(effect: Effect) -> str:
    return f"{effect.value:.2f} [{effect.low:.2f}, {effect.high:.2f}]"

"""``circuittest list models|tasks|claims``: what there is."""

from __future__ import annotations

import argparse
from inspect import signature
from typing import Any

from circuittest.commands import common


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("list", help="list the bundled models, the tasks or the claims")
    parser.add_argument("what", choices=("models", "tasks", "claims"))
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print names with one line each, or the same as JSON. Exit code 0."""
    rows = {"models": models, "tasks": tasks, "claims": claims}[arguments.what]()
    if arguments.json is not None:
        common.emit(arguments.json, {arguments.what: rows})
        return 0
    columns = [key for key in rows[0] if key not in ("options", "build")] if rows else ["name"]
    cells = [[str(row[key] if row[key] is not None else row["build"]) for key in columns] for row in rows]
    common.say(common.table(columns, cells))
    return 0


def models() -> list[dict[str, Any]]:
    """The models of the zoo, their fine-tunes and training steps, and where their directories are.

    What was not built has no path, and the command that builds it.
    """
    from circuittest import zoo

    found = []
    for name in (*zoo.names(), *zoo.variants()):
        there = zoo.built(name)
        build = "" if there else zoo.build_command(name)
        found.append({"name": f"zoo:{name}", "path": str(zoo.path(name)) if there else None, "build": build})
    return found


def tasks() -> list[dict[str, Any]]:
    """The tasks, and how their examples are scored."""
    from circuittest.tasks import get_task, list_tasks

    found = []
    for name in list_tasks():
        task = get_task(name)
        found.append(
            {
                "name": name,
                "accuracy": task.accuracy,
                "metric": task.metric,
                "chance": float(task.chance),
                "description": task.description,
            }
        )
    return found


def claims() -> list[dict[str, Any]]:
    """The claims and their options."""
    from circuittest.claims import claim_kinds

    found = []
    for name, kind in claim_kinds().items():
        options = {
            parameter.name: None if parameter.default is parameter.empty else parameter.default
            for parameter in signature(kind.function).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        found.append({"name": name, "summary": kind.summary, "options": options})
    return found

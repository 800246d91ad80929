"""``circuittest tasks show TASK --model M``: the examples of a task as one model sees them."""

from __future__ import annotations

import argparse
from typing import Any

from circuittest.commands import common


def add(commands: Any) -> None:
    """Register the command."""
    group = commands.add_parser("tasks", help="look at the examples of a task")
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = actions.add_parser("show", help="print examples with their answers, in text and in token ids")
    parser.add_argument("task", help="a task's name (`circuittest list tasks`), or a .jsonl or .csv file")
    common.add_model(parser)
    parser.add_argument(
        "--n", type=_how_many, default=5, metavar="N|all", help="how many examples to show (default: 5)"
    )
    common.add_data(parser, discover=200, evaluate=200)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the first examples, discovery before evaluation. Exit code 0."""
    lab = common.lab_of(arguments)
    data = lab.data
    examples = [
        {
            "index": item.index,
            "split": split,
            "prompt": item.example.prompt,
            "prompt_ids": list(item.prompt_ids),
            "answers": list(item.example.answers),
            "answer_ids": list(item.answer_ids),
            "foils": list(item.example.foils),
            "foil_ids": list(item.foil_ids),
            "counterfactual": item.example.counterfactual,
            "counterfactual_ids": list(item.counterfactual_ids),
            "counterfactual_answer_ids": list(item.counterfactual_answer_ids),
            "features": dict(item.features),
            "group": item.group,
        }
        for split, items in (("discover", data.discover), ("evaluate", data.evaluate))
        for item in items
    ][: arguments.n]
    if arguments.json is not None:
        payload = {
            "task": data.task,
            "model": lab.model.name,
            "fingerprint": lab.model.fingerprint,
            "choices": {
                "seed": data.seed,
                "discover": len(data.discover),
                "evaluate": len(data.evaluate),
                "prefix": data.prefix_name,
                "prefix_ids": list(data.prefix),
                "variant": data.variant,
                "pool": data.pool,
                "accuracy": lab.accuracy,
                "metric": lab.metric,
                "chance": float(data.chance),
                "dropped": dict(data.dropped),
            },
            "examples": examples,
        }
        common.emit(arguments.json, payload, common.environment_of(lab.model))
        return 0
    dropped = ", ".join(f"{n} {reason}" for reason, n in data.dropped.items()) or "none"
    common.say(
        f"{data.task} as {lab.model.name} sees it: prefix {data.prefix_name!r}, variant {data.variant}, "
        f"dropped: {dropped}"
    )
    rows = [
        [
            str(one["index"]),
            str(one["split"]),
            repr(one["prompt"]),
            _few(one["answers"]),
            _few(one["foils"]),
            repr(one["counterfactual"]),
        ]
        for one in examples
    ]
    common.say(common.table(["#", "split", "prompt", "answers", "foils", "counterfactual"], rows))
    return 0


def _how_many(text: str) -> int | None:
    """How many examples to show; None for all."""
    return None if text == "all" else common.count(text)


def _few(texts: Any) -> str:
    return ", ".join(repr(text) for text in texts[:3]) + (f", … ({len(texts)})" if len(texts) > 3 else "")

"""``circuittest tasks show TASK --model M``: the examples of a task as one model sees them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from circuittest.commands import common
from circuittest.errors import TaskError

if TYPE_CHECKING:
    from circuittest.lab import Lab

#: Examples of either split, unless the options or a small file say otherwise.
EXAMPLES = 200

#: Answers and foils of one example that are shown.
SHOWN = 5


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
    parser.add_argument(
        "--tokens", action="store_true", help="show each example token by token, answers and foils marked"
    )
    parser.add_argument(
        "--shots", type=common.count, default=0, metavar="K", help="solved examples in front (default: 0)"
    )
    parser.add_argument("--chat", action="store_true", help="prompts in the model's chat template")
    parser.add_argument(
        "--variant", metavar="V", help="a variant of the task (default: what fits the tokenizer)"
    )
    common.add_data(parser, discover=EXAMPLES, evaluate=EXAMPLES)
    common.add_json(parser)
    parser.set_defaults(run=run, discover=None, evaluate=None)


def run(arguments: argparse.Namespace) -> int:
    """Print the first examples, discovery before evaluation. Exit code 0."""
    from circuittest.tasks import Posed

    if arguments.shots or arguments.chat or arguments.variant:
        arguments.task = Posed(
            arguments.task, shots=arguments.shots, chat=arguments.chat, variant=arguments.variant
        )
    lab = _lab(arguments)
    data = lab.data
    examples = [
        {
            "index": item.index,
            "split": split,
            "prompt": item.example.prompt,
            "prompt_ids": list(item.prompt_ids),
            "answers": list(item.example.answers),
            "answer_ids": list(item.answer_ids),
            "answer_rest_ids": list(item.answer_rest),
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
    if arguments.tokens:
        show = lab.model.tokenizer.convert_ids_to_tokens
        for one in examples:
            for key in [key for key in one if key.endswith("_ids")]:
                one[key.removesuffix("_ids") + "_tokens"] = [str(token) for token in show(one[key])]
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
                "shots": [list(shot) for shot in data.shots],
                "chat": data.chat,
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
    if arguments.tokens:
        for one in examples:
            common.say(f"\n#{one['index']} {one['split']}")
            common.say(common.table(["", "id", "token", "", "counterfactual"], _token_rows(one)))
        return 0
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


def _lab(arguments: argparse.Namespace) -> Lab:
    """The lab that the options describe; where they ask for no number, and the task has fewer, with all it has."""
    asked = arguments.discover is not None or arguments.evaluate is not None
    arguments.discover = EXAMPLES if arguments.discover is None else arguments.discover
    arguments.evaluate = EXAMPLES if arguments.evaluate is None else arguments.evaluate
    lab = common.lab_of(arguments)
    try:
        _ = lab.data
    except TaskError as error:
        if asked or not error.usable:
            raise
        arguments.model = lab.model
        arguments.discover, arguments.evaluate = error.usable - error.usable // 2, error.usable // 2
        lab = common.lab_of(arguments)
    return lab


def _how_many(text: str) -> int | None:
    """How many examples to show; None for all."""
    return None if text == "all" else common.count(text)


def _token_rows(one: dict[str, Any]) -> list[list[str]]:
    """A row for each token of the prompt, then for each that may come next: position, id, token, mark, counterfactual.

    A token of the prompt that is also an answer or a foil is marked; of the counterfactual's tokens those that differ
    are shown.
    """
    roles = [("answer", "answer"), ("foil", "foil")]
    marks = {i: role for role, key in reversed(roles) for i in one[f"{key}_ids"]}
    rows = []
    pairs = zip(one["prompt_ids"], one["prompt_tokens"], strict=True)
    others = zip(one["counterfactual_ids"], one["counterfactual_tokens"], strict=True)
    for place, ((i, token), (j, other)) in enumerate(zip(pairs, others, strict=True)):
        rows.append([str(place), str(i), repr(token), marks.get(i, ""), f"{j} {other!r}" if i != j else ""])
    further = [("answer, further on", "answer_rest")]
    for role, key in (roles[0], *further, roles[1], ("answer there", "counterfactual_answer")):
        ids, tokens = one[f"{key}_ids"], one[f"{key}_tokens"]
        for i, token in zip(ids[:SHOWN], tokens, strict=False):
            there = role == "answer there"
            here = ["", ""] if there else [str(i), repr(token)]
            rows.append(["next", *here, role, f"{i} {token!r}" if there else ""])
        if len(ids) > SHOWN:
            rows.append(["", "", "…", f"{len(ids)} in all", ""])
    return rows


def _few(texts: Any) -> str:
    return ", ".join(repr(text) for text in texts[:3]) + (f", … ({len(texts)})" if len(texts) > 3 else "")

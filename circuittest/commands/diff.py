"""``circuittest diff a.json b.json``: what became of the claims between two runs."""

from __future__ import annotations

import argparse
from typing import Any

from circuittest.commands import common

SAME, WORSE = 0, 1


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "diff",
        help="compare two files of verdict records",
        epilog="Claims are matched by id. Exit codes: 0 no verdict got worse; 1 one did (from good to bad: supported, "
        "undecided, invalid, refuted); 2 a file is none of --circuit-json. Claims that are new or gone change no code.",
    )
    parser.add_argument("before", metavar="BEFORE.json", help="written with --circuit-json")
    parser.add_argument("after", metavar="AFTER.json", help="the same of the later run")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the differences, or write them as JSON."""
    from circuittest.report.compare import compare, got_worse, read_claims

    before, after = read_claims(arguments.before), read_claims(arguments.after)
    found = compare(before, after)
    if arguments.json is not None:
        common.emit(
            arguments.json, {"diff": {**found, "same": len(set(before) & set(after) - _touched(found))}}
        )
    else:
        common.say(_text(found, before, after))
    return WORSE if got_worse(found) else SAME


def _touched(found: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {entry["id"] for entries in found.values() for entry in entries}


def _text(found: dict[str, list[dict[str, Any]]], before: dict[str, Any], after: dict[str, Any]) -> str:
    """A line a difference, the worst first; then how many claims are the same."""
    from circuittest.report.terminal import asked_text, estimate_text

    lines = []
    for way in ("worse", "other", "better"):
        word = "changed" if way == "other" else way
        lines += [
            [word, f"{one['from']} -> {one['to']}", one["id"]]
            for one in found["verdict"]
            if one["way"] == way
        ]
    for name in [one["id"] for one in found["moved"]]:
        lines.append(["moved", f"{estimate_text(before[name])} -> {estimate_text(after[name])}", name])
    for name in [one["id"] for one in found["asked"]]:
        asked = [asked_text(side[name]) or "nothing" for side in (before, after)]
        lines.append(["asked", " -> ".join(asked), name])
    lines += [[key, one["verdict"], one["id"]] for key in ("gone", "new") for one in found[key]]
    same = len(set(before) & set(after) - _touched(found))
    rest = f"{same} of {len(set(before) | set(after))} claims are the same"
    return "\n".join([common.table(["", "before -> after", "claim"], lines), rest]) if lines else rest

"""``circuittest zoo build``: fine-tunes and training steps of zoo models, which do not ship with the package."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from circuittest.commands import common


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("zoo", help="build fine-tunes and training steps of the bundled models")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = actions.add_parser("build", help="train what does not ship, into the cache (CIRCUITTEST_CACHE)")
    build.add_argument(
        "what",
        nargs="+",
        metavar="NAME",
        help="fine-tunes (all), steps (of all models), or one: gqa@relocated-ioi, gqa@steps",
    )
    build.add_argument(
        "--into", type=Path, metavar="DIR", help="make the directories there, not in the cache"
    )
    build.add_argument("--again", action="store_true", help="also what is there already")
    common.add_json(build)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Train on one thread, as the recipes were run, with progress on stderr. Exit code 0."""
    import torch

    from circuittest.zoo.build import build, log

    threads, level, handler = torch.get_num_threads(), log.level, logging.StreamHandler(sys.stderr)
    torch.set_num_threads(1)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        places = [
            place
            for what in arguments.what
            for place in build(what, into=arguments.into, again=arguments.again)
        ]
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        torch.set_num_threads(threads)
    if arguments.json is not None:
        common.emit(arguments.json, {"models": [{"name": f"zoo:{p.name}", "path": str(p)} for p in places]})
    if arguments.json != "-":
        common.say("\n".join(map(str, places)))
    return 0

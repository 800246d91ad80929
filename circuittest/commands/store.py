"""``circuittest store info|clear``: what measurements were kept, and how to be rid of them."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from circuittest.commands import common
from circuittest.errors import UsageError

if TYPE_CHECKING:
    from circuittest.store import Info, Store

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "store",
        help="show or clear the store of measurements",
        description="The store holds tables that were measured, by what they follow from; a run that asks for the "
        "same again reads them. It is a cache: clearing it loses time, never results.",
    )
    parser.add_argument("what", choices=("info", "clear"))
    parser.add_argument(
        "--store", metavar="PATH|URL", help="which store (default: CIRCUITTEST_STORE, or in the user's cache)"
    )
    parser.add_argument(
        "--older-than",
        type=age,
        metavar="AGE",
        help="with clear: only what was not used for so long, such as 12h, 30d or 8w",
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def age(text: str) -> float:
    """Seconds of ``90s``, ``45m``, ``12h``, ``30d`` or ``8w``, for argparse."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no age; write 90s, 45m, 12h, 30d or 8w")
    return float(found[1]) * _SECONDS[found[2]]


def run(arguments: argparse.Namespace) -> int:
    """Print what the store holds, or what was removed from it. Exit code 0."""
    from circuittest.store import Store
    from circuittest.store.default import VARIABLE, default_root

    if arguments.older_than is not None and arguments.what != "clear":
        raise UsageError("--older-than goes with clear", "", "use: circuittest store clear --older-than 30d")
    root = arguments.store if arguments.store is not None else default_root()
    if not root:
        reason = "the path is empty" if arguments.store is not None else f"{VARIABLE} is off"
        raise UsageError("there is no store", reason, "name one: --store PATH")
    store = Store(root)
    try:
        removed = _clear(store, arguments.older_than) if arguments.what == "clear" else None
        info = store.info()
    except OSError as error:
        raise UsageError(f"cannot use the store {root}", error.strerror or str(error)) from error
    if arguments.json is not None:
        found = {**asdict(info), **({} if removed is None else {"removed": removed})}
        common.emit(arguments.json, {"store": found})
        return 0
    if removed is not None:
        common.say(f"removed {_entries(removed['entries'])} ({size(removed['bytes'])})")
    common.say(_told(info))
    return 0


def _clear(store: Store, older_than: float | None) -> dict[str, int]:
    entries, freed = store.clear(older_than=older_than)
    return {"entries": entries, "bytes": freed}


def _told(info: Info) -> str:
    lines = [info.root, f"  {_entries(info.entries)}, {size(info.bytes)}"]
    if info.cap is not None:
        lines[1] += f" of at most {size(info.cap)}"
    if info.oldest is not None and info.newest is not None:
        first, last = (
            datetime.fromtimestamp(t).isoformat(" ", "minutes") for t in (info.oldest, info.newest)
        )
        lines.append(f"  last used between {first} and {last}")
    return "\n".join(lines)


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def size(number: int) -> str:
    """ "1.5 MB"; powers of 1024."""
    if number < 1024:
        return f"{number} bytes"
    value, units = number / 1024, ["kB", "MB", "GB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.1f} {units[0]}"

"""Command line: ``circuittest COMMAND``; `COMMANDS` lists them.

Each command is a module of `circuittest.commands` and imports what it needs when it runs, so that ``--help`` and
mistakes in the arguments cost nothing. Exit codes: 0, or what the command documents; 2 for bad usage, a bad file or
a model that cannot be used, with one line on stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from circuittest.commands import (
    check,
    communities,
    diff,
    doctor,
    find,
    init,
    listing,
    roles,
    scan,
    schema,
    store,
    sweep,
    tasks,
    zoo,
)
from circuittest.commands.waiting import waiting
from circuittest.errors import CircuittestError

COMMANDS = (
    init,
    check,
    diff,
    sweep,
    find,
    scan,
    roles,
    communities,
    doctor,
    tasks,
    listing,
    store,
    zoo,
    schema,
)
BAD_USAGE = 2


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="circuittest",
        description="Tests for claims about a language model's circuits.",
        epilog="In pytest, write tests with the `lab` fixture or *.circuit.yaml files; see README.md.",
    )
    top.add_argument("--version", action=_Version, help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add(commands)
    return top


class _Version(argparse.Action):
    """Reads the version from the installed metadata, and only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help=str(more["help"]))

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from circuittest import __version__

        sys.stdout.write(f"circuittest {__version__}\n")
        parser.exit(0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    top = parser()
    arguments = top.parse_args(words[:cut])
    arguments.pytest = words[cut + 1 :]
    if arguments.pytest and not getattr(arguments, "takes_pytest", False):
        top.error("only `check` passes arguments after -- on to pytest")
    try:
        with waiting(arguments.command):
            return int(arguments.run(arguments))
    except CircuittestError as error:
        sys.stderr.write(f"circuittest {arguments.command}: {error}\n")
        return BAD_USAGE
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        sys.stderr.close()  # or the interpreter would complain while it shuts down
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""``circuittest check SPEC…``: judge spec files with pytest, with exit codes for CI."""

from __future__ import annotations

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "check",
        help="judge the claims of spec files",
        epilog="Exit codes: 0 all claims supported; 1 a claim refuted; 2 bad usage or a bad spec; 3 a claim "
        "undecided or invalid and none refuted. Arguments after -- go to pytest: `-- -n 4`.",
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC", help="*.circuit.yaml files, or folders of them")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NEW|OLD=NEW", help="judge another model"
    )
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1 or mps")
    parser.add_argument("--dtype", help="float32, float64, bfloat16 or float16")
    parser.add_argument("--json", metavar="PATH", help="write the verdict records to PATH")
    parser.add_argument(
        "--undecided", choices=("fail", "skip"), help="what an undecided claim does (default: fail)"
    )
    parser.set_defaults(run=run, takes_pytest=True)


def run(arguments: argparse.Namespace) -> int:
    """Run pytest with the plugin on the specs and map its result."""
    from pytest_circuittest import run_specs

    return int(
        run_specs(
            arguments.specs,
            model=arguments.model,
            device=arguments.device,
            dtype=arguments.dtype,
            json=arguments.json,
            undecided=arguments.undecided,
            args=arguments.pytest,
        )
    )

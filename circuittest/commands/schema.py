"""``circuittest schema``: the JSON Schema of spec files, for editors."""

from __future__ import annotations

import argparse
import json
from typing import Any

from circuittest.commands import common


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "schema",
        help="print the JSON Schema of spec files",
        description="Print the JSON Schema of *.circuit.yaml. Save it and name it in a spec's first line, and editors "
        "that know YAML complete and check: # yaml-language-server: $schema=circuit.schema.json",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the schema. Exit code 0."""
    from circuittest.spec.json_schema import json_schema

    common.say(json.dumps(json_schema(), indent=1, ensure_ascii=False))
    return 0

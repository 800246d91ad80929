"""Communities of heads and closure's verdict on each (Xu, arXiv 2606.09607): a table, JSON and a drawing.

    python -m example_suites.closure.measure MODEL TASK [--out DIR] [--discover N] [--evaluate N] [--most N] …

MODEL is ``zoo:mha``, ``smollm2`` (see `example_suites.smollm2.conftest`), or whatever circuittest loads. It writes
DIR/MODEL-TASK.json and .svg, and prints the table.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from circuittest.commands.common import table
from circuittest.lab import Lab
from circuittest.report.communities import COLUMNS, drawing, headline, rows, to_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("task")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--discover", type=int, default=400)
    parser.add_argument("--evaluate", type=int, default=100)
    parser.add_argument("--most", type=int)
    parser.add_argument("--controls", type=int)
    parser.add_argument("--match", default="layer,sink")
    parser.add_argument("--k", type=int)
    parser.add_argument("--affinity", default="ising")
    arguments = parser.parse_args()
    lab = Lab(
        model(arguments.model),
        arguments.task,
        discover=arguments.discover,
        evaluate=arguments.evaluate,
    )
    options: dict[str, Any] = {"matches": tuple(arguments.match.split(",")), "affinity": arguments.affinity}
    options |= {
        key: getattr(arguments, key)
        for key in ("most", "controls", "k")
        if getattr(arguments, key) is not None
    }
    found = lab.communities(**options)
    print(headline(found))
    print(table(list(COLUMNS), rows(found)))
    name = f"{arguments.model.replace(':', '-')}-{arguments.task}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(found), indent=1, sort_keys=True, allow_nan=False)
    (arguments.out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    (arguments.out / f"{name}.svg").write_text(drawing(found), encoding="utf-8")


def model(name: str) -> Any:
    """SmolLM2 from its wheel, or the name for circuittest to load."""
    if name != "smollm2":
        return name
    from circuittest.models import load_model
    from example_suites.smollm2.conftest import gguf

    file = gguf()
    if isinstance(file, str):
        raise SystemExit(file)
    return replace(load_model(str(file)), name="smollm2")


if __name__ == "__main__":
    main()

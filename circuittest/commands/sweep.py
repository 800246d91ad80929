"""``circuittest sweep SERIES.yaml``: specs over a series of checkpoints or models."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from circuittest.commands import common

_MARKS = {"supported": "yes", "refuted": "no", "undecided": "?", "invalid": "–"}


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "sweep",
        help="judge specs over a series of models",
        epilog="The file: `circuittest: 1`, `models: [zoo:gqa@step800, …]` in the order of training, "
        "`specs: [ioi.circuit.yaml, …]` and, where names do not end in stepN, `times: […]`. Finished items are kept in "
        "--out: running again does what is left. Exit codes: 0 everything ran, whatever the verdicts; 2 a bad file, a "
        "model that cannot be used, or workers that died.",
    )
    parser.add_argument("series", metavar="SERIES.yaml")
    parser.add_argument(
        "--out", default="sweep", metavar="DIR", help="where results are kept (default: sweep)"
    )
    parser.add_argument(
        "--workers", type=common.count, default=0, metavar="N", help="local processes (default: none)"
    )
    parser.add_argument("--ray", metavar="ADDRESS", help="a Ray cluster's address, auto, or local")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs that one item takes of a Ray worker")
    parser.add_argument("--memory", type=common.count, help="bytes that one item takes of a Ray worker")
    parser.add_argument(
        "--threads", type=common.count, default=1, help="CPU threads of one item (default: 1)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps")
    parser.add_argument("--dtype", default="float32", help="float32, float64, bfloat16 or float16")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run what is left and print a table a spec, or write everything as JSON."""
    from circuittest import sweep
    from circuittest.errors import UsageError
    from circuittest.store.default import default_root

    if arguments.ray is not None and arguments.workers:
        raise UsageError("--workers and --ray", "an item runs in one place", "choose one")
    series = sweep.load_series(arguments.series)
    there: list[bool] = []
    results = sweep.run(
        series,
        Path(arguments.out),
        workers=arguments.workers,
        ray=arguments.ray,
        gpus=arguments.gpus,
        memory=arguments.memory,
        device=arguments.device,
        dtype=arguments.dtype,
        threads=max(1, arguments.threads),
        store=default_root(),
        done=lambda one, found: there.append(found),
    )
    found = sweep.summary(series, results)
    if arguments.json is not None:
        records = [record for one in results for record in one["records"]]
        common.emit(
            arguments.json, {"sweep": found, "claims": sorted(records, key=lambda one: str(one["id"]))}
        )
    else:
        common.say("\n\n".join(_text(one) for one in found))
        common.say(f"\n{len(results)} items, {sum(there)} of them done before")
    return 0


def _text(spec: dict[str, Any]) -> str:
    names = list(spec["holds_from"])
    heads = ["model", "accuracy", "size", "share", "final", "previous", "chance", "smoothed", *names]
    rows = [
        [
            row["model"],
            f"{row['accuracy']:.2f}",
            *("–" if row[key] is None else form.format(row[key]) for key, form in _NUMBERS.items()),
            *(_verdict(row["verdicts"].get(name)) for name in names),
        ]
        for row in spec["rows"]
    ]
    since = [
        f"{name} holds from {model} on" if model else f"{name} does not hold at the end"
        for name, model in spec["holds_from"].items()
    ]
    present = spec["present_from"]
    begins = f"the behaviour is there from {present} on" if present else "the behaviour is absent at the end"
    absent = [f"{row['model']}: {row['absent']}" for row in spec["rows"] if row["absent"]]
    return "\n".join([spec["spec"], common.table(heads, rows), begins, *since, *absent])


_NUMBERS = {
    "size": "{}",
    "share": "{:.1%}",
    "to_final": "{:.2f}",
    "to_previous": "{:.2f}",
    "chance": "{:.2f}",
    "smoothed": "{:.2f}",
}


def _verdict(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    mark = _MARKS.get(one["verdict"], one["verdict"])
    return mark if one["estimate"] is None else f"{mark} {one['estimate']:.2f}"

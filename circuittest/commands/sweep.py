"""``circuittest sweep SERIES.yaml``: specs over a series of checkpoints or models."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from circuittest.commands import common


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "sweep",
        help="judge specs over a series of models",
        epilog="The file: `circuittest: 1`, `models: [zoo:gqa@step800, …]` in the order of training, "
        "`specs: [ioi.circuit.yaml, …]` and, where names do not end in stepN, `times: […]`; of several runs "
        "of training, `models: {small: […], large: […]}`. Finished items are kept in --out: "
        "running again does what is left. Exit codes: 0 everything ran, whatever the verdicts; 2 a bad file, a "
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
    parser.add_argument("--html", metavar="PATH", help="write a page with tables and curves")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run what is left and print tables, or write everything as JSON or as a page."""
    from circuittest import sweep
    from circuittest.errors import UsageError
    from circuittest.report.page import check_page
    from circuittest.store.default import default_root
    from circuittest.sweep.page import write_page

    if arguments.ray is not None and arguments.workers:
        raise UsageError("--workers and --ray", "an item runs in one place", "choose one")
    if arguments.html is not None:
        check_page(arguments.html)
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
    scales = sweep.scales(series, found)
    if arguments.html is not None:
        write_page(arguments.html, found, scales)
    if arguments.json is not None:
        records = [record for one in results for record in one["records"]]
        claims = sorted(records, key=lambda one: str(one["id"]))
        common.emit(arguments.json, {"sweep": found, "scales": scales, "claims": claims})
    if arguments.json != "-":
        common.say("\n\n".join([*map(_text, found), *_scales(scales)]))
        common.say(f"\n{len(results)} items, {sum(there)} of them done before")
    return 0


def _text(entry: dict[str, Any]) -> str:
    from circuittest.sweep.page import title
    from circuittest.sweep.tables import sentences, tables

    first, *more = tables(entry)
    parts = [title(entry), common.table(list(first.columns), [list(row) for row in first.rows])]
    for one in more:
        parts += ["", one.title, common.table(list(one.columns), [list(row) for row in one.rows])]
    return "\n".join([*parts, "", *sentences(entry)])


def _scales(scales: list[dict[str, Any]]) -> list[str]:
    from circuittest.sweep.tables import scale_table

    specs = dict.fromkeys(one["spec"] for one in scales)
    found = [scale_table([one for one in scales if one["spec"] == spec]) for spec in specs]
    return [
        f"{one.title}\n{common.table(list(one.columns), [list(row) for row in one.rows])}" for one in found
    ]

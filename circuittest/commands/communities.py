"""``circuittest communities``: heads that are active together, and what ablation says of each community."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from circuittest.commands import common


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "communities", help="propose communities of heads by co-activation, and judge each by ablation"
    )
    common.add_model(parser)
    parser.add_argument("--task", required=True, help="a task's name, or a .jsonl or .csv file")
    common.add_data(parser, discover=400, evaluate=100)
    parser.add_argument(
        "--affinity",
        default="ising",
        help="ising, pearson, pearson-spins or mutual-information (default: ising)",
    )
    parser.add_argument("--k", default="4,6,8,10,12", help="clusters to try (default: 4,6,8,10,12)")
    parser.add_argument("--no-sink", action="store_true", help="leave attention to the first token out")
    parser.add_argument("--routes", type=common.count, metavar="K", help="strata of a mixture's routes")
    parser.add_argument(
        "--stratum", type=common.count, metavar="I", help="only this one; without it, routes are a covariate"
    )
    parser.add_argument(
        "--match", default="layer,sink", help="kinds of controls: layer, sink, kind (default: layer,sink)"
    )
    parser.add_argument(
        "--controls", type=common.count, metavar="R", help="control sets (default: as many as are needed)"
    )
    parser.add_argument(
        "--most", type=common.count, metavar="N", help="judge only the N most isolated communities"
    )
    parser.add_argument("--ablation", default="zero", help="as for the claim closure (default: zero)")
    parser.add_argument("--propose-only", action="store_true", help="judge nothing")
    parser.add_argument("--svg", metavar="FILE", help="draw the couplings, ordered by community")
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or JSON. Exit code 0, whatever the verdicts."""
    from circuittest.errors import UsageError
    from circuittest.report import communities as report

    if not arguments.k.replace(",", "").isdigit():
        raise UsageError(
            f"--k is {arguments.k!r}", "", "write numbers with commas between them, such as 4,6,8"
        )
    ks = [int(number) for number in arguments.k.split(",") if number]
    lab = common.lab_of(arguments)
    judging: dict[str, Any] = {
        "matches": tuple(arguments.match.split(",")),
        "ablation": arguments.ablation,
        **({"controls": arguments.controls} if arguments.controls else {}),
        **({"most": arguments.most} if arguments.most else {}),
    }
    found = lab.communities(
        affinity=arguments.affinity,
        k=ks[0] if len(ks) == 1 else ks,
        sink=not arguments.no_sink,
        routes=arguments.routes,
        stratum=arguments.stratum,
        seed=arguments.seed,
        judge=not arguments.propose_only,
        **({} if arguments.propose_only else judging),
    )
    if arguments.svg and found.communities:
        text = report.drawing(found)
        common.write(arguments.svg, lambda path: Path(path).write_text(text, encoding="utf-8"))
    if arguments.json is not None:
        common.emit(arguments.json, report.to_json(found), common.environment_of(lab.model))
    if arguments.json != "-":
        common.say(report.headline(found))
        if found.communities:
            common.say(common.table(list(report.COLUMNS), report.rows(found)))
    return 0

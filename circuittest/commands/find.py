"""``circuittest find``: the circuit that the per-example circuits of a task share, and where its heads are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuittest.commands import common

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab
    from circuittest.lab.tables import Split


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("find", help="find the circuit that a task's examples share")
    common.add_model(parser)
    parser.add_argument(
        "--task", required=True, help="a task's name (`circuittest list tasks`), or a .jsonl or .csv file"
    )
    common.add_data(parser, discover=200, evaluate=0)
    parser.add_argument(
        "--universe",
        default="heads",
        help="which units are ranked: heads, mlps, all, kv, or several with commas",
    )
    parser.add_argument(
        "--top", default="20%", help="K: share of the units in each example's circuit (default: 20%%)"
    )
    parser.add_argument(
        "--at", default="95", help="P: share of the examples that must agree, in %% (default: 95)"
    )
    parser.add_argument(
        "--score", default="edge-abs-sum", help="edge-abs-sum, edge-sum or node (default: the first)"
    )
    parser.add_argument("--method", default="eap", help="eap, eap-ig or exact (default: eap)")
    parser.add_argument("--steps", type=int, default=5, help="points on the path of eap-ig (default: 5)")
    parser.add_argument(
        "--baseline",
        default="counterfactual",
        help="what units are compared with: counterfactual, mean or zero (default: the first)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the circuit as JSON")
    parser.add_argument(
        "--tables",
        metavar="DIR",
        help="write the per-example scores as DIR/discover.safetensors, and of --evaluate too",
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the circuit and a heat map of the mean scores, or JSON. Exit code 0, for an empty circuit too."""
    from circuittest.circuit import Circuit
    from circuittest.tables import ScoreTable

    names = arguments.universe.split(",")
    universe = names[0] if len(names) == 1 else names
    splits: list[Split] = ["discover", "evaluate"] if arguments.evaluate else ["discover"]
    files = {split: Path(arguments.tables or ".") / f"{split}.safetensors" for split in splits}
    if arguments.output:
        common.refuse_to_overwrite(arguments.output, Circuit.load, "circuit file")
    for file in files.values() if arguments.tables else ():
        common.refuse_to_overwrite(file, ScoreTable.load, "score table")

    lab = common.lab_of(arguments)
    how: dict[str, Any] = {
        "universe": universe,
        **{key: getattr(arguments, key) for key in ("score", "method", "steps", "baseline")},
    }
    circuit = lab.shared(top=arguments.top, at=arguments.at, **how)
    scores = lab.scores("discover", **how)
    if arguments.output:
        common.write(arguments.output, circuit.save)
    if arguments.tables:
        for split, file in files.items():
            common.write(file, lab.scores(split, **how).save)

    means = dict(zip(map(str, scores.members), scores.values.mean(0, dtype="float64").tolist(), strict=True))
    if arguments.json is not None:
        payload = {"circuit": circuit.to_dict(), "mean_scores": means, "choices": dict(scores.choices)}
        common.emit(arguments.json, payload, common.environment_of(lab.model))
    if arguments.json != "-":
        common.say(summary(lab, circuit, means, len(scores.members)))
    return 0


def summary(lab: Lab, circuit: Circuit, means: dict[str, float], n_units: int) -> str:
    """What was found, for a terminal."""
    import sys

    from circuittest.report.heatmap import heatmap

    found = circuit.origin
    text = (
        f"{lab.model.name}, {lab.data.task}: {len(circuit)} of {n_units} units are in the top {found['top']} "
        f"(K = {found['k']}) on at least {found['at']} of {len(found['examples'])} examples\n"
    )
    if not circuit.units:
        text += f"the circuit is empty: {found['empty']}\n"
    for layer in dict.fromkeys(unit.layer for unit in circuit.units):
        text += "  " + " ".join(str(unit) for unit in circuit.units if unit.layer == layer) + "\n"
    text += f"mean {found['score']} score per unit ({found['method']}, {found['metric']}):\n"
    return text + heatmap(
        means,
        circuit=circuit.units,
        width=common.width(),
        colour=sys.stdout.isatty(),
        unicode=common.shows_unicode(),
    ).rstrip("\n")

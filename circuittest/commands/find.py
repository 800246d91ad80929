"""``circuittest find``: the circuit that the per-example circuits of a task share, or the smallest faithful one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuittest.commands import common

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.find.minimal import Minimal
    from circuittest.lab import Lab
    from circuittest.lab.tables import Split

#: Options of the shared circuit, and of the minimal one, with their defaults.
SHARED = {
    "universe": "heads",
    "top": "20%",
    "at": "95",
    "score": "edge-abs-sum",
    "baseline": "counterfactual",
}
MINIMAL = {"faithfulness": 0.8, "cap": "5%"}


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "find", help="find the circuit that a task's examples share, or the smallest"
    )
    common.add_model(parser)
    parser.add_argument(
        "--task", required=True, help="a task's name (`circuittest list tasks`), or a .jsonl or .csv file"
    )
    common.add_data(parser, discover=200, evaluate=0)
    parser.add_argument(
        "--universe",
        help="which units are ranked: heads, mlps, all, kv, or several with commas (default: heads)",
    )
    parser.add_argument("--top", help="K: share of the units in each example's circuit (default: 20%%)")
    parser.add_argument("--at", help="P: share of the examples that must agree, in %% (default: 95)")
    parser.add_argument("--score", help="edge-abs-sum, edge-sum or node (default: the first)")
    parser.add_argument(
        "--method",
        default="eap",
        help="eap, eap-ig or exact: how the shared circuit is scored (default: eap); or minimal: the fewest edges that "
        "are faithful, ranked by eap-ig",
    )
    parser.add_argument(
        "--faithfulness", type=float, help="of minimal: the least share of the behaviour (default: 0.8)"
    )
    parser.add_argument(
        "--cap", help="of minimal: most edges, in %% of the model's own or as a number (default: 5%%)"
    )
    parser.add_argument("--steps", type=int, default=5, help="points on the path of eap-ig (default: 5)")
    parser.add_argument(
        "--baseline",
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
    from circuittest.errors import UsageError
    from circuittest.tables import ScoreTable

    minimal = arguments.method == "minimal"
    for key in SHARED if minimal else MINIMAL:
        if getattr(arguments, key) is not None:
            known = "eap, eap-ig or exact" if minimal else "minimal"
            raise UsageError(
                f"--{key} with --method {arguments.method}", f"it belongs to {known}", "leave it out"
            )
    for key, default in (MINIMAL if minimal else SHARED).items():
        if getattr(arguments, key) is None:
            setattr(arguments, key, default)
    if minimal:
        return run_minimal(arguments)
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


def run_minimal(arguments: argparse.Namespace) -> int:
    """The same for the smallest faithful circuit. Exit code 0, where there is none within the cap too."""
    from circuittest.circuit import Circuit
    from circuittest.tables import ScoreTable

    table = Path(arguments.tables or ".") / "discover.safetensors"
    if arguments.output:
        common.refuse_to_overwrite(arguments.output, Circuit.load, "circuit file")
    if arguments.tables:
        common.refuse_to_overwrite(table, ScoreTable.load, "score table")
    cap = int(arguments.cap) if arguments.cap.isdigit() else arguments.cap
    lab = common.lab_of(arguments)
    found = lab.minimal(faithfulness=arguments.faithfulness, cap=cap, steps=arguments.steps)
    if arguments.output:
        common.write(arguments.output, found.circuit.save)
    if arguments.tables:
        scores = lab.scores("discover", universe="all", level="edges", method="eap-ig", steps=arguments.steps)
        common.write(table, scores.save)
    if arguments.json is not None:
        common.emit(arguments.json, found.to_dict(), common.environment_of(lab.model))
    if arguments.json != "-":
        common.say(minimal_summary(lab, found))
    return 0


def minimal_summary(lab: Lab, found: Minimal) -> str:
    """The smallest faithful circuit, for a terminal."""
    text = f"{lab.model.name}, {lab.data.task}: "
    if found.share is None:
        text += f"{found.reason}\n"
    else:
        low, high = ("beyond the cap" if end is None else str(end) for end in found.interval)
        text += (
            f"{len(found.circuit.edges)} of {found.total} edges ({100 * found.share:.2g} %; 95 % interval {low} to "
            f"{high}) "
            f"between {len(found.units)} heads and MLPs have a faithfulness of {found.faithfulness:.3g} "
            f"(at least {found.level:g} up to the cap of {found.cap} edges)\n"
        )
    units = found.units.units
    for layer in dict.fromkeys(unit.layer for unit in units):
        text += "  " + " ".join(str(unit) for unit in units if unit.layer == layer) + "\n"
    rows = [
        [str(point.edges), str(point.nodes), f"{point.faithfulness:.3f}"]
        for point in found.curve
        if point.edges
    ]
    text += common.table(["edges", "heads and MLPs", "faithfulness"], rows) if rows else ""
    return text.rstrip("\n")


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

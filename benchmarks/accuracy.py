"""How well models do the tasks, against chance: which claims about behaviour can be judged at all.

    python -m benchmarks.accuracy [--models zoo:gqa …] [--real smollm2 gemma3] [--tasks ioi …] [--markdown PATH [--add]]

Accuracy with its 95 % interval (exact), by the task's own rule, and what the competence gate says without any circuit:
how far the lower bound stands above chance and above always giving the most frequent answer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from circuittest.claims.gates import majority
from circuittest.errors import CircuittestError
from circuittest.lab import Lab
from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import load_model
from circuittest.stats import ProportionInference
from circuittest.tasks import list_tasks
from tests.helpers.real import PREFIXES, file_of

#: Models that wheels on PyPI carry, and what the table calls them.
REAL = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma-3-270M"}
#: Other ways to ask the tasks.
POSED = ("sports_understanding+chain+3shots", "digit_addition+3shots")


def row(model: LoadedModel, name: str, task: str, examples: int, prefix: str) -> list[str]:
    """Model, task, variant, scored by, accuracy, chance, majority, logit difference; or why there is nothing."""
    lab = Lab(model, task, discover=0, evaluate=examples, prefix=prefix)
    try:
        data = lab.data
        table = lab.outcomes([()])
    except CircuittestError as error:
        return [name, task, "", "", f"– ({error})", "", "", ""]
    right = table.measure(lab.accuracy)[0]
    low, high = ProportionInference(int(right.sum()), right.size).interval()
    contrast = f"{table.measure('logit_diff').mean():+.1f}" if "logit_diff" in table.columns else "–"
    accuracy = f"{right.mean():.2f} [{low:.2f}, {high:.2f}]"
    often = f"{majority(lab).mean():.2f}"
    return [name, task, data.variant, lab.accuracy, accuracy, f"{data.chance:.2f}", often, contrast]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["zoo:gqa", "zoo:gqa-mha", "zoo:mha", "zoo:redundant"])
    parser.add_argument("--real", nargs="+", default=[], choices=list(REAL), help="from wheels on PyPI, too")
    parser.add_argument("--tasks", nargs="+", default=[*list_tasks(), *POSED])
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--markdown", type=Path)
    parser.add_argument(
        "--add", action="store_true", help="keep the rows of the file that are not measured again"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    places = {name: (name, "auto") for name in options.models}
    for name in options.real:
        file = file_of(name)
        if isinstance(file, str):
            sys.exit(file)
        places[REAL[name]] = (str(file), PREFIXES[name])
    rows = []
    for name, (place, prefix) in places.items():
        model = load_model(place)
        for task in options.tasks:
            found = row(model, name, task, options.examples, prefix)
            sys.stderr.write(" | ".join(found) + "\n")
            if not found[4].startswith("–"):
                rows.append(found)
    head = ["model", "task", "variant", "scored by", "accuracy", "chance", "majority", "logit difference"]
    table = Table(*head)
    for cells in rows:
        table.add_row(*cells)
    Console(width=140).print(table)
    if options.markdown:
        kept = written(options.markdown) if options.add else {}
        kept |= {(cells[0], cells[1]): cells for cells in rows}
        order = {task: i for i, task in enumerate([*list_tasks(), *POSED])}
        models = list(dict.fromkeys(model for model, _ in kept))
        listed = sorted(kept.values(), key=lambda c: (models.index(c[0]), order.get(c[1], len(order))))
        lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *listed)]
        text = (
            "# How well models do the tasks\n\nMade by `python -m benchmarks.accuracy --real smollm2 gemma3 --threads "
            f"1 --markdown docs/accuracy.md`, in parts with `--add`. "
            f"Accuracy on {options.examples} examples with its exact 95 % interval, by "
            "the task's own rule (`argmax` of the whole vocabulary, or the best of the `candidates`); chance among the "
            "candidates, and what always giving the most frequent answer would get. What a model's vocabulary cannot "
            "ask, or has too few examples for, is left out.\n\n"
        )
        options.markdown.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


def written(path: Path) -> dict[tuple[str, str], list[str]]:
    """The rows of a table that was written before, by model and task."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith(("| model", "| ---"))
    ]
    return {(cells[0], cells[1]): cells for cells in rows}


if __name__ == "__main__":
    main()

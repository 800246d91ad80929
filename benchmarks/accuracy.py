"""How well models do the tasks, against chance: which claims about behaviour can be judged at all.

    python -m benchmarks.accuracy [--models zoo:gqa zoo:mha] [--smollm2] [--examples 200] [--markdown PATH]

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
    parser.add_argument("--smollm2", action="store_true", help="SmolLM2-135M from its wheel on PyPI, too")
    parser.add_argument("--tasks", nargs="+", default=list_tasks())
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    places = {name: (name, "auto") for name in options.models}
    if options.smollm2:
        from example_suites.smollm2.conftest import gguf

        file = gguf()
        if isinstance(file, str):
            sys.exit(file)
        # The token that separated the training documents; without it the first word becomes the sink.
        places["SmolLM2-135M-Instruct"] = (str(file), "<|endoftext|>")
    rows = []
    for name, (place, prefix) in places.items():
        model = load_model(place)
        for task in options.tasks:
            rows.append(row(model, name, task, options.examples, prefix))
            sys.stderr.write(" | ".join(rows[-1]) + "\n")
    head = ["model", "task", "variant", "scored by", "accuracy", "chance", "majority", "logit difference"]
    table = Table(*head)
    for cells in rows:
        table.add_row(*cells)
    Console(width=140).print(table)
    if options.markdown:
        lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
        command = " ".join(["python -m benchmarks.accuracy", *sys.argv[1:]])
        text = (
            f"# How well models do the tasks\n\nMade by `{command}`. Accuracy on {options.examples} examples with its "
            "exact 95 % interval, by the task's own rule (`argmax` of the whole vocabulary, or the best of the "
            "`candidates`); chance among the candidates, and what always giving the most frequent answer would get.\n\n"
        )
        options.markdown.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""How attribution's cost grows with examples, layers and sequence length.

    python -m benchmarks.curves [--repetitions 3] [--threads 1]

One row a size: median seconds of per-example edge scores (summed to units) and of their floor (two forwards and one
backward of the plain model), the ratio, and the growth of the process's peak memory. GPT-2 small's width with random
weights. A ratio that stays where it is means a cost that grows as the model's own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks import resident
from benchmarks.run import Item
from circuittest.measure.attribution import attribute
from circuittest.models.loading import from_module

#: What grows → the sizes; the others stay at these.
USUAL = {"examples": 16, "layers": 6, "length": 16}
CURVES = {"examples": (4, 8, 16, 32, 64), "layers": (3, 6, 12, 24), "length": (8, 16, 32, 64, 128)}


def one(examples: int, layers: int, length: int, repetitions: int) -> tuple[float, float, float]:
    """Seconds of the scores and of the floor, and MiB."""
    torch.manual_seed(0)
    module = GPT2LMHeadModel(GPT2Config(n_layer=layers)).eval().requires_grad_(False)
    model = from_module(module, name="gpt2-shaped")
    ids = torch.randint(0, module.config.vocab_size, (2, examples, length)).tolist()
    items = [Item(i, tuple(a), tuple(b), (i,), (i + 1,)) for i, (a, b) in enumerate(zip(*ids, strict=True))]
    prompts, others = torch.tensor(ids[0]), torch.tensor(ids[1])

    def floor() -> None:
        with torch.no_grad():
            module(others, use_cache=False)
        embedded = module.get_input_embeddings()(prompts).requires_grad_()
        module(inputs_embeds=embedded, use_cache=False).logits[:, -1].sum().backward()

    resident.forget_peak()
    before = resident.now()
    seconds: dict[bool, list[float]] = {True: [], False: []}
    grown = 0.0
    for _ in range(repetitions):
        for ours in (True, False):  # ours first, so that the first peak is ours
            started = time.perf_counter()
            if ours:
                attribute(model, items, metric="logit_diff")
                grown = grown or resident.peak() - before
            else:
                floor()
            seconds[ours].append(time.perf_counter() - started)
    return statistics.median(seconds[True]), statistics.median(seconds[False]), grown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--point", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.point:
        sys.stdout.write(" ".join(map(str, one(*options.point, options.repetitions))))
        return
    table = Table(title=f"edge scores, GPT-2 width, {options.threads} thread, otherwise {USUAL}")
    for column in ("what grows", "size", "s", "s per unit", "× floor", "peak MiB"):
        table.add_column(column, justify="left" if column == "what grows" else "right")
    for what, sizes in CURVES.items():
        for size in sizes:
            point = [str(value) for value in {**USUAL, what: size}.values()]
            command = [sys.executable, "-m", "benchmarks.curves", "--threads", str(options.threads)]
            command += ["--repetitions", str(options.repetitions), "--point", *point]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[1]
            )
            ours, floor, grown = map(float, done.stdout.split())
            cells = (f"{ours:.2f}", f"{ours / size:.4f}", f"{ours / floor:.2f}", f"{grown:.0f}")
            table.add_row(what, str(size), *cells)
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

"""Memory of per-example edge tables: what attribution holds beyond the model while a large table streams to a file.

    python -m benchmarks.memory [--examples 1000] [--edges 100000] [--length 16] [--method eap] [--json PATH]

The model has random weights, GPT-2's shape and many narrow heads, so that its layout has as many edges as asked for:
what a table costs depends on that, not on the width. Measured in a process of its own: the peak of resident memory
until the table is written, minus what was resident when model and examples were ready. Pages of the file that are
mapped count. The bar is 1 GB for 1,000 examples × 100,000 edges; the exit code is 1 beyond it. The same table held
in memory (`--held`) is measured for comparison, and has no bar.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks import resident
from benchmarks.run import Item
from circuittest.measure.attribution import attribute
from circuittest.measure.edges import edges
from circuittest.models.loading import from_module
from circuittest.units import Layout

BAR = 1.0  # GB
HEAD_DIM = 4
WORDS = 1000


def sides(wanted: int) -> int:
    """The least number of layers, and of heads in each, that has so many edges."""
    n = 2
    while count(n) < wanted:
        n += 1
    return n


def count(n: int) -> int:
    """Edges of n layers with n heads."""
    return len(edges(Layout(n, n, n))[0])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One table in this process."""
    torch.manual_seed(0)
    n = sides(options.edges)
    sizes = {"n_layer": n, "n_head": n, "n_embd": HEAD_DIM * n, "vocab_size": WORDS}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    model = from_module(GPT2LMHeadModel(config).eval(), name="wide")
    rng = random.Random(0)
    draw = lambda length: tuple(rng.randrange(WORDS) for _ in range(length))
    items = []
    for i in range(options.examples):
        answer, foil = rng.sample(range(WORDS), 2)
        items.append(Item(i, draw(options.length), draw(options.length), (answer,), (foil,)))
    how = {"metric": "logit_diff", "level": "edges", "method": options.method}
    attribute(model, items[:1], **how)  # what is loaded and allocated once, whatever the table
    resident.forget_peak()
    before, start = resident.now(), time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        table = attribute(
            model, items, **how, **({} if options.held else {"out": Path(folder) / "t.safetensors"})
        )
        shape = table.values.shape
    return {
        "layers": n,
        "examples": shape[0],
        "edges": shape[1],
        "table": 4e-9 * shape[0] * shape[1],
        "before": before * 1.048576e-3,
        "beyond": (resident.peak() - before) * 1.048576e-3,
        "seconds": time.perf_counter() - start,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="peak memory of a streamed per-example edge table")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=100_000)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--method", choices=["eap", "eap-ig"], default="eap")
    parser.add_argument("--held", action="store_true", help="hold the table in memory instead")
    parser.add_argument(
        "--folder", type=Path, help="where the file is written, by default the temporary folder"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options)))
        return 0
    command = [sys.executable, "-m", "benchmarks.memory", "--child", *sys.argv[1:]]
    home = Path(__file__).parents[1]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=home)
    found = json.loads(done.stdout)
    print(
        f"{found['examples']:,} examples × {found['edges']:,} edges ({found['layers']} layers of as many heads), "
        f"{options.method}, {'held' if options.held else 'streamed'}: {found['beyond']:.2f} GB beyond the "
        f"{found['before']:.2f} GB before, for a table of {found['table']:.2f} GB; {found['seconds']:.0f} s"
    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return int(not options.held and found["beyond"] > BAR)


if __name__ == "__main__":
    raise SystemExit(main())

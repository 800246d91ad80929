"""What the measurement engine costs, as ratios to a floor measured in the same run.

    python -m benchmarks.run [--shapes gpt2 qwen2] [--threads 1 all] [--repetitions 5] [--sets 100] [--json PATH]

The models are GPT-2 small's shape (12 layers, width 768, 50,257 tokens) and Qwen2.5-0.5B's (24 layers, width 896,
151,936 tokens, 2 KV heads for 14 heads), with random weights, in float32 on the CPU.
Floors are plain Hugging Face calls with frozen weights and the whole unembedding:

- attribution: two forwards and one backward of the same batch;
- ablation: as many plain forwards as there are sets.

Each repetition times everything once, in turn, and the table shows the median over repetitions of the ratio to the
floor of the same repetition, in wall time and in CPU time (which a busy machine disturbs less). The engine's
batches are its own, by default. The ablation floor is extrapolated from `--floor-forwards`. Memory is the growth of
the process's peak over what it held before, each case in a process of its own, so that nothing freed earlier is
reused; the table is shown before it is measured, too.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from benchmarks import resident
from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute
from circuittest.models.loading import from_module
from circuittest.units import Unit

LENGTH = 16
Results = dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True)
class Item:
    index: int
    prompt_ids: tuple[int, ...]
    counterfactual_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    foil_ids: tuple[int, ...]


#: Name → how the model is made, examples in a batch. Weights are random: timings carry over, numbers do not.
SHAPES: dict[str, tuple[Callable[[], PreTrainedModel], int]] = {
    "gpt2": (lambda: GPT2LMHeadModel(GPT2Config()), 16),
    # Qwen2.5-0.5B: 14 heads share 2 keys and values, and the vocabulary is three times GPT-2's.
    "qwen2": (
        lambda: Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=896,
                intermediate_size=4864,
                num_hidden_layers=24,
                num_attention_heads=14,
                num_key_value_heads=2,
                tie_word_embeddings=True,
            )
        ),
        4,
    ),
}
PASSES = "floor: 2 forwards + 1 backward"


class Bench:
    """One model, its items, and every case as a function."""

    def __init__(self, shape: str, batch: int | None, sets: int, floor_forwards: int) -> None:
        torch.manual_seed(0)
        make, usual = SHAPES[shape]
        self.shape, self.batch = shape, batch or usual
        self.module = make().eval().requires_grad_(False)
        self.model = from_module(self.module, name=f"{shape}-shaped")
        rng = random.Random(0)
        vocab = self.module.config.vocab_size
        draw = lambda n: tuple(rng.randrange(vocab) for _ in range(n))
        self.items = [Item(i, draw(LENGTH), draw(LENGTH), draw(1), draw(1)) for i in range(self.batch)]
        self.prompts = torch.tensor([item.prompt_ids for item in self.items])
        self.others = torch.tensor([item.counterfactual_ids for item in self.items])
        heads = self.model.layout.units(("head",))
        self.sets: list[tuple[Unit, ...]] = [tuple(rng.sample(heads, 10)) for _ in range(sets)]
        self.floor_forwards = floor_forwards

    def cases(self) -> dict[str, tuple[str, float, Callable[[], object]]]:
        """Name → its floor, by how much its time is multiplied, and the call."""
        by = lambda **choices: (
            lambda: attribute(self.model, self.items, **{"metric": "logit_diff", **choices})
        )
        single = [(unit,) for unit in self.model.layout.units(("head",))]
        ablated = {f"{len(self.sets)} sets of 10 heads": self.sets, "every head alone": single}
        run = lambda sets: lambda: ablate(self.model, self.items, sets)
        forwards = lambda n: f"floor: {n} forwards"
        return {
            PASSES: ("", 1.0, self.attribution_floor),
            "node scores": (PASSES, 1.0, by(unit_score="node")),
            "node scores, log-prob": (PASSES, 1.0, by(unit_score="node", metric="log_prob")),
            "edge scores → units": (PASSES, 1.0, by()),
            "edge scores, all edges": (PASSES, 1.0, by(level="edges")),
            "EAP-IG, 5 steps, all edges": (PASSES, 1.0, by(level="edges", method="eap-ig", steps=5)),
        } | {
            name: case
            for label, sets in ablated.items()
            for name, case in (
                (forwards(len(sets)), ("", len(sets) / self.floor_forwards, self.ablation_floor)),
                (label, (forwards(len(sets)), 1.0, run(sets))),
            )
        }

    def attribution_floor(self) -> None:
        with torch.no_grad():
            self.module(self.others, use_cache=False)
        embedded = self.module.get_input_embeddings()(self.prompts).requires_grad_()
        logits = self.module(inputs_embeds=embedded, use_cache=False).logits[:, -1]
        answers, foils = (
            torch.tensor([getattr(item, name)[0] for item in self.items])
            for name in ("answer_ids", "foil_ids")
        )
        rows = torch.arange(len(self.items))
        (logits[rows, answers] - logits[rows, foils]).sum().backward()

    def ablation_floor(self) -> None:
        with torch.no_grad():
            for _ in range(self.floor_forwards):
                self.module(self.prompts, use_cache=False)


def measure(bench: Bench, repetitions: int, only: str) -> dict[str, dict[str, float]]:
    """Medians of interleaved repetitions: seconds and ratios of every case whose name contains `only`."""
    cases = {name: case for name, case in bench.cases().items() if only in name or name.startswith("floor")}
    if only:
        wanted = {case[0] for name, case in cases.items() if only in name}
        cases = {name: case for name, case in cases.items() if only in name or name in wanted}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for name, (_, _, call) in cases.items():
        if "sets" not in name and "forwards" not in name.replace("2 forwards", ""):
            call()  # warm caches and allocator
    for _ in range(repetitions):
        for name, (_, factor, call) in cases.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            seen[name].append((factor * (time.perf_counter() - wall), factor * (time.process_time() - cpu)))
    found = {}
    for name, (floor, _, _) in cases.items():
        row = {"seconds": statistics.median(wall for wall, _ in seen[name])}
        if floor:
            for i, label in enumerate(("wall", "cpu")):
                row[label] = statistics.median(
                    a[i] / b[i] for a, b in zip(seen[name], seen[floor], strict=True)
                )
        found[name] = row
    return found


def peak(shape: str, case: str, batch: int, sets: int) -> float:
    """MiB that a case needs beyond what was resident before, at its peak, in a new process."""
    command = [sys.executable, "-m", "benchmarks.run", "--shapes", shape, "--peak", case]
    command += ["--batch", str(batch), "--sets", str(sets)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return float(done.stdout)


def show(shape: str, bench: Bench, results: Results, memory: dict[str, float]) -> None:
    """One table."""
    available = torch.get_num_threads()
    title = f"{shape} shape, {bench.batch} × {LENGTH} tokens, float32, torch {torch.__version__}"
    table = Table(title=title)
    table.add_column("case")
    for threads in results:
        label = f"{available} threads" if threads == "all" else f"{threads} thread"
        table.add_column(f"{label}: × floor (CPU)", justify="right")
        table.add_column("s", justify="right")
    table.add_column("peak MiB", justify="right")
    for name in next(iter(results.values())):
        cells = []
        for measured in results.values():
            row = measured[name]
            ratio = f"{row['wall']:.2f} ({row['cpu']:.2f})" if "wall" in row else "1"
            cells += [ratio, f"{row['seconds']:.2f}"]
        table.add_row(name, *cells, f"{memory[name]:.0f}" if name in memory else "–")
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="ratios of the measurement engine to a plain floor")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--threads", nargs="+", default=["1", "all"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--batch", type=int, help="examples in a batch; by default 16 (gpt2) and 4 (qwen2)")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--floor-forwards", type=int, default=10)
    parser.add_argument("--only", default="", help="cases whose name contains this, and their floors")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    available, written = torch.get_num_threads(), {}
    for shape in options.shapes:
        bench = Bench(shape, options.batch, options.sets, options.floor_forwards)
        if options.peak:
            resident.forget_peak()
            before = resident.now()
            bench.cases()[options.peak][2]()
            sys.stdout.write(str(resident.peak() - before))
            return
        results: Results = {}
        for threads in options.threads:
            torch.set_num_threads(available if threads == "all" else int(threads))
            results[threads] = measure(bench, options.repetitions, options.only)
        names = [] if options.no_memory else list(results[options.threads[0]])
        if names:
            show(shape, bench, results, {})
        few = min(options.sets, 8)
        memory = {
            name: peak(shape, name.replace(f"{options.sets} ", f"{few} "), bench.batch, few) for name in names
        }
        show(shape, bench, results, memory)
        written[shape] = {"results": results, "memory": memory}
        if options.json:
            options.json.write_text(json.dumps(written, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

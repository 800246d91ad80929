"""What other tools cost for the same scores of the same prompts, against this one, in one run.

    PYTHONPATH=. PYTHON -m benchmarks.peers --eap-ig CHECKOUT [--auto-circuit CHECKOUT] [--only ours] [--json PATH]

PYTHON has transformer-lens below 4, which both tools need, and everything that circuittest needs. The model is GPT-2
small's shape with random weights; sixteen prompts of sixteen tokens. Each tool runs in two processes of its own, one
an allocator: "as shipped" is the C library's default, under which large buffers go back to the system and come again as
page faults; "tuned" keeps them. Cases run in turn, and the table shows medians over repetitions of the ratio to the
floor (two forwards and one backward of the plain Hugging Face model, the mean of a run just before and one just after),
and the largest memory of the process, model included. A tool that is killed, as for want of memory, is shown as that.

Changes to the tools: 'cuda' becomes 'cpu' in EAP-IG, and prompts are token ids; modules that auto-circuit imports but
does not need here are stand-ins. Both score a batch as a sum; "each example" calls them with one example at a time,
which is what per-example scores take. Sweeps over heads are extrapolated from a few of them.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.run import LENGTH, Bench
from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute

TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(8 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
STEPS = 5
OURS = "ours"
ALLOCATORS = {"as shipped": {}, "tuned": TUNED}
HEADS = 4  # of the sweep by TransformerLens, spread over the layers


class Peers:
    """The tools on the model and prompts of a `Bench`."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.items = bench.items
        self.hooked = self._hooked()

    def _hooked(self) -> Any:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
        from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights

        theirs = self.bench.module.config
        config = HookedTransformerConfig(
            n_layers=theirs.n_layer,
            d_model=theirs.n_embd,
            n_heads=theirs.n_head,
            d_head=theirs.n_embd // theirs.n_head,
            d_mlp=4 * theirs.n_embd,
            n_ctx=LENGTH,
            d_vocab=theirs.vocab_size,
            act_fn="gelu_new",
            normalization_type="LN",
            device="cpu",
        )
        made = HookedTransformer(config)
        weights = convert_gpt2_weights(self.bench.module, config)
        weights["pos_embed.W_pos"] = weights["pos_embed.W_pos"][:LENGTH]
        made.load_state_dict(weights, strict=False)
        return made.eval()

    def _split(self) -> Any:
        """A copy of the model with hooks where heads read and write, which edges need and which cost."""
        made = copy.deepcopy(self.hooked)
        for flag in ("attn_result", "split_qkv_input", "hook_mlp_in"):
            getattr(made, f"set_use_{flag}")(True)
        return made

    def eap_ig(self, checkout: Path) -> dict[str, Callable[[], object]]:
        """The published EAP-IG code."""
        folder = Path(tempfile.mkdtemp())
        (folder / "eap").mkdir()
        for file in (checkout / "src" / "eap").glob("*.py"):
            (folder / "eap" / file.name).write_text(re.sub(r"['\"]cuda['\"]", "'cpu'", file.read_text()))
        sys.path.insert(0, str(folder))
        from eap import attribute as code, graph

        code.tokenize_plus = lambda _model, ids: (
            torch.tensor(ids),
            torch.ones(len(ids), LENGTH, dtype=torch.long),
            torch.full((len(ids),), LENGTH),
            LENGTH,
        )
        hooked = self._split()

        def metric(logits: torch.Tensor, _clean: Any, _lengths: Any, label: Any) -> torch.Tensor:
            answers, foils = (torch.tensor(ids).flatten() for ids in label)
            rows = torch.arange(len(answers))
            return (logits[rows, -1, answers] - logits[rows, -1, foils]).sum()

        def run(function: Any, size: int, **choices: Any) -> None:
            batches = [self.items[i : i + size] for i in range(0, len(self.items), size)]
            data = [
                (
                    [item.prompt_ids for item in batch],
                    [item.counterfactual_ids for item in batch],
                    ([item.answer_ids for item in batch], [item.foil_ids for item in batch]),
                )
                for batch in batches
            ]
            function(hooked, graph.Graph.from_model(hooked), data, metric, quiet=True, **choices)

        plain, integrated = code.get_scores_eap, code.get_scores_eap_ig
        return {
            "EAP-IG: EAP, edges, summed": lambda: run(plain, len(self.items)),
            "EAP-IG: EAP, edges, each example": lambda: run(plain, 1),
            f"EAP-IG: {STEPS} steps, edges, summed": lambda: run(integrated, len(self.items), steps=STEPS),
        }

    def auto_circuit(self, checkout: Path) -> dict[str, Callable[[], object]]:
        """auto-circuit's mask gradients, which equal EAP."""
        import transformer_lens

        if not hasattr(transformer_lens, "HookedTransformerKeyValueCache"):  # it was renamed
            transformer_lens.HookedTransformerKeyValueCache = object
        for name, members in {
            "blobfile": ("BlobFile",),
            "word2word": ("Word2word",),
            "transformer_lens.past_key_value_caching": ("HookedTransformerKeyValueCache",),
        }.items():
            if name not in sys.modules:
                stand_in = types.ModuleType(name)
                for member in members:
                    setattr(stand_in, member, getattr(transformer_lens, member, object))
                sys.modules[name] = stand_in
        sys.path.insert(0, str(checkout))
        from auto_circuit.data import PromptDataLoader, PromptDataset
        from auto_circuit.prune_algos.mask_gradient import mask_gradient_prune_scores
        from auto_circuit.utils.graph_utils import patchable_model

        model = patchable_model(self._split(), factorized=True, slice_output="last_seq", separate_qkv=True)
        column = lambda name: [torch.tensor(getattr(item, name)) for item in self.items]
        data = PromptDataset(
            column("prompt_ids"), column("counterfactual_ids"), column("answer_ids"), column("foil_ids")
        )

        def run(size: int) -> None:
            loader = PromptDataLoader(data, seq_len=LENGTH, diverge_idx=0, batch_size=size, shuffle=False)
            mask_gradient_prune_scores(
                model, loader, None, grad_function="logit", answer_function="avg_diff", mask_val=0.0
            )

        return {
            "auto-circuit: edges, summed": lambda: run(len(self.items)),
            "auto-circuit: edges, each example": lambda: run(1),
        }

    def heads(self) -> tuple[float, Callable[[], object]]:
        """Zero ablation of some heads by `run_with_hooks`, and by how much to multiply for all of them."""
        config = self.hooked.cfg
        prompts = self.bench.prompts

        def run() -> None:
            for i in range(HEADS):
                layer, head = (2 * i + 1) * config.n_layers // (2 * HEADS), i % config.n_heads

                def zero(z: torch.Tensor, hook: Any, head: int = head) -> torch.Tensor:
                    z[:, :, head] = 0.0
                    return z

                with torch.no_grad():
                    self.hooked.run_with_hooks(prompts, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", zero)])

        return config.n_layers * config.n_heads / HEADS, run


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Case of one tool → median seconds and median ratio to the floor."""
    torch.set_num_threads(options.threads)
    bench = Bench("gpt2", None, 1, 1)
    bench.module.requires_grad_(False)
    floor = bench.attribution_floor
    if options.one == OURS:
        cases = {f"{OURS}: {name}": (1.0, run) for name, run in ours(bench).items()}
    elif options.one == "TransformerLens":
        cases = {"TransformerLens: every head alone": Peers(bench).heads()}
    elif options.one == "auto-circuit":
        cases = {n: (1.0, run) for n, run in Peers(bench).auto_circuit(options.auto_circuit).items()}
    else:
        cases = {n: (1.0, run) for n, run in Peers(bench).eap_ig(options.eap_ig).items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    ratios: dict[str, list[float]] = {name: [] for name in cases}
    floor()
    for _ in range(options.repetitions):
        for name, (times, run) in cases.items():
            before, took, after = clock(floor), times * clock(run), clock(floor)
            seconds[name].append(took)
            ratios[name].append(2 * took / (before + after))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        name: {
            "seconds": statistics.median(seconds[name]),
            "ratio": statistics.median(ratios[name]),
            "peak_mib": peak,
        }
        for name in cases
    }


def clock(run: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def ours(bench: Bench) -> dict[str, Callable[[], object]]:
    """What this tool does for the same."""
    single = [(unit,) for unit in bench.model.layout.units(("head",))]
    score = lambda **choices: (
        lambda: attribute(bench.model, bench.items, metric="logit_diff", level="edges", **choices)
    )
    return {
        "EAP, edges, each example": score(),
        f"EAP-IG, {STEPS} steps, edges, each example": score(method="eap-ig", steps=STEPS),
        "every head alone": lambda: ablate(bench.model, bench.items, single),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--eap-ig", type=Path)
    parser.add_argument("--auto-circuit", type=Path)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], help="tools whose names contain one of these")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sys.stdout.write(json.dumps(measure(options)))
        return
    tools = [OURS, "TransformerLens"]
    tools += ["auto-circuit"] if options.auto_circuit else []
    tools += ["EAP-IG"] if options.eap_ig else []
    found: dict[str, dict[str, Any]] = {allocator: {} for allocator in ALLOCATORS}
    for tool in tools:
        if options.only and not any(part in tool for part in options.only):
            continue
        for allocator, settings in ALLOCATORS.items():
            command = [sys.executable, "-m", "benchmarks.peers", *sys.argv[1:], "--one", tool]
            done = subprocess.run(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                found[allocator][tool] = {"died": done.returncode}
            else:
                found[allocator] |= json.loads(done.stdout[done.stdout.index("{") :])
            if options.json:  # after each process, since one run takes long
                options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    table = Table(title=f"GPT-2 shape, 16 × {LENGTH} tokens, float32, {options.threads} thread, × floor")
    table.add_column("case")
    for allocator in found:
        table.add_column(allocator, justify="right")
        table.add_column("peak MiB", justify="right")
    for name in dict.fromkeys(name for rows in found.values() for name in rows):
        table.add_row(name, *(cell for rows in found.values() for cell in _cells(rows.get(name))))
    Console(width=110).print(table)


def _cells(row: dict[str, float] | None) -> tuple[str, str]:
    if row is None:
        return "–", "–"
    if "died" in row:
        return f"killed ({row['died']:.0f})" if row["died"] < 0 else f"failed ({row['died']:.0f})", "–"
    return f"{row['ratio']:.2f}", f"{row['peak_mib']:.0f}"


if __name__ == "__main__":
    main()

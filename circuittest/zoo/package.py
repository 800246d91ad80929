"""Make a trained model part of the package: ``python -m circuittest.zoo.package --model gqa RUN_SEED0 [RUN_SEED1 …]``.

The runs are directories that :mod:`.train` wrote. The one with the best worst task (its score less the bar) on the
``choice`` half of the test pools ships. Then all are scored on the ``final`` half, and the model card tells of all.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from circuittest.zoo import MODELS, path
from circuittest.zoo.heads import ablation_drops, attention_scores
from circuittest.zoo.recipe import BUILDS, MIXTURE
from circuittest.zoo.score import BARS, Score, measure, score

log = logging.getLogger(__name__)

FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
NAMED_HEADS = 4
MAIN_DROP, MAIN_ATTENTION = 0.3, 0.3  # what makes a head a main one, and what it is said to look at
KINDS = {
    "gpt_neox": "GPT-NeoX (parallel residual, rotary on half of each head)",
    "llama": "Llama (SwiGLU, no biases)",
}
STAGE = (
    "{steps} steps, learning rate {lr} ({warm_up} steps of warm-up, then cosine to {final_lr:.0%}), "
    "weight decay {weight_decay}"
)
APART = "No trained sum has the same numbers as a held-out one, zeros left out."
COMPACT = (
    "**Compact by construction.** In the second stage a penalty (weight {penalty}, from {penalty_from:.0%} of its "
    "steps, full from {penalty_full:.0%}) pushes the effective number of active heads per layer towards one: per layer "
    "and token (Σ n_h)² / Σ n_h² with n_h = ‖W_O^h z_h‖, half its mean over all tokens and half over answer positions, "
    "summed over layers. So circuits are small and single heads matter because we asked for it: nothing measured on "
    "this model is evidence about ordinary models. One head per layer may be always on and act as a bias; then zero "
    "ablation in part measures the loss of a bias, and mean ablation does not."
)
REDUNDANT = (
    "**Redundant on purpose.** This is the first stage of `zoo:mha`, before the head-sparsity penalty: many heads do "
    "the same work, and few matter alone (most of them for addition). It is the contrast to `zoo:mha`, whose circuits "
    "are compact by construction; one pair of tiny models is no evidence about ordinary models."
)


def load(directory: Path) -> tuple[Any, Any]:
    """Model (float32) and tokenizer of a directory."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(directory)


def worst_margin(scores: dict[str, float]) -> float:
    """By how much the worst task is above its bar."""
    return min(scores[name] - BARS[name] for name in MIXTURE)


def package(name: str, runs: Sequence[Path], ship: int | None = None) -> dict[str, Any]:
    """Score all runs, ship the best (or the seed that is named), write its card; returns what the card says."""
    notes = [json.loads((run / "training.json").read_text()) for run in runs]
    for run, note in zip(runs, notes, strict=True):
        if note["build"]["name"] != name:
            raise ValueError(f"{run} is a run of {note['build']['name']!r}, not of {name!r}")
        note["choice"] = score(*load(run), pool="choice")
        log.info("%s seed %s: %s", name, note["seed"], note["choice"])
    best = max(range(len(runs)), key=lambda i: worst_margin(notes[i]["choice"]))
    if ship is not None:
        best = [note["seed"] for note in notes].index(ship)
    for run, note in zip(runs, notes, strict=True):
        note["final"] = measure(*load(run), pool="final")
    target = path(name)
    target.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        if (runs[best] / file).exists():
            shutil.copyfile(runs[best] / file, target / file)
    model, tokenizer = load(target)
    facts = {
        "notes": notes,
        "best": best,
        "named": ship is not None,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": (target / "model.safetensors").stat().st_size,
        "drops": ablation_drops(model, tokenizer),
        "attention": attention_scores(model, tokenizer),
    }
    (target / "README.md").write_text(card(name, facts))
    return facts


def card(name: str, facts: dict[str, Any]) -> str:
    """The model card, from the template ``card.md``."""
    build, notes = BUILDS[name], facts["notes"]
    shipped = notes[facts["best"]]
    stages = shipped["build"]["stages"]
    seeds = ", ".join(str(note["seed"]) for note in notes)
    several = f"of the seeds trained ({seeds}) the one whose worst task is best on the `choice` half"
    if facts.get("named"):
        several = (
            f"of the seeds trained ({seeds}) the first, on which other models and the examples rest; so the `choice` "
            "half decided nothing"
        )
    template = (Path(__file__).parent / "card.md").read_text()
    return template.format(
        name=name,
        about=MODELS[name],
        kind=KINDS[build.kind],
        layers=build.layers,
        width=build.width,
        heads=build.heads,
        head_size=build.width // build.heads,
        kv_heads=build.kv_heads,
        mlp=build.mlp,
        parameters=facts["parameters"],
        megabytes=facts["bytes"] / 1e6,
        construction=COMPACT.format(penalty=build.penalty, **stages[-1]) if build.penalty else REDUNDANT,
        chosen=several if len(notes) > 1 else "the only seed trained",
        scores=_scores(notes, shipped),
        missed=_missed({task: score.value for task, score in shipped["final"].items()}),
        spread=_spread(notes),
        sums=_mix(stages[0]["operands"]),
        expressions=_mix(stages[0]["literals"]),
        apart=shipped.get("remark", APART),
        roles=_roles(facts["drops"], facts["attention"]),
        ablations=_table(["task", "heads"], [[t, _top(drops)] for t, drops in facts["drops"].items()]),
        attention=_table(
            ["from – to", "heads"], [[k, _top(values)] for k, values in facts["attention"].items()]
        ),
        seed=shipped["seed"],
        cpu_s=shipped["cpu_s"],
        stages="; then ".join(STAGE.format(**stage) for stage in stages),
        batch=stages[0]["batch"],
        other_tokens=stages[0]["other_tokens"],
        command=_command(name, shipped),
    )


def _command(name: str, note: dict[str, Any]) -> str:
    command = f"    python -m circuittest.zoo.train --seed {note['seed']} --model {name} --out DIR"
    if "start" in note:
        command += "\n\nThe last stage of the shipped run began from the bfloat16 files of the one before (`--start`)."
    return command


def _mix(weights: Sequence[tuple[int, float]]) -> str:
    """``2 (20%), 3 (80%)``."""
    whole = sum(weight for _, weight in weights)
    return ", ".join(f"{number} ({weight / whole:.0%})" for number, weight in sorted(weights))


def _scores(notes: Sequence[dict[str, Any]], shipped: dict[str, Any]) -> str:
    """One row a task: prompts and groups, then value and interval for each seed."""

    def cell(score: Score) -> str:
        return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"

    heads = [f"seed {note['seed']}" + (" (shipped)" if note is shipped else "") for note in notes]
    rows = []
    for task in MIXTURE:
        first: Score = notes[0]["final"][task]
        rows.append([task, str(first.n), str(first.groups), *(cell(note["final"][task]) for note in notes)])
    return _table(["task", "prompts", "groups", *heads], rows)


def _spread(notes: Sequence[dict[str, Any]]) -> str:
    if len(notes) == 1:
        return "One seed was trained, so nothing is known of the spread over seeds."
    ranges = []
    for task in MIXTURE:
        values = [note["final"][task].value for note in notes]
        if min(values) < max(values):
            ranges.append(f"{task} {min(values):.3f} to {max(values):.3f}")
    listed = ", ".join(ranges) or "no task differs"
    return f"Over the {len(notes)} seeds: {listed}; the other tasks are the same for all."


def _roles(drops: dict[str, dict[str, float]], attention: dict[str, dict[str, float]]) -> str:
    """The heads that some task needs, by the number of tasks, and what they look at."""
    rows = []
    for head in next(iter(drops.values())):
        needed = [f"{task} {values[head]:.2f}" for task, values in drops.items() if values[head] >= MAIN_DROP]
        looks = [
            f"{kind} {values[head]:.2f}"
            for kind, values in attention.items()
            if values[head] >= MAIN_ATTENTION
        ]
        if needed:
            rows.append((len(needed), [head, ", ".join(needed), ", ".join(looks) or "none of these"]))
    rows.sort(key=lambda row: -row[0])
    if not rows:
        return f"No head alone costs any task {MAIN_DROP} or more: others do its work."
    return _table(["head", "needed for", "looks"], [row for _, row in rows])


def _missed(scores: dict[str, float]) -> str:
    below = [f"{task} ({scores[task]:.3f}, bar {bar})" for task, bar in BARS.items() if scores[task] < bar]
    if not below:
        return f"Every task meets its bar ({BARS['ioi']}; `greater_than` {BARS['greater_than']})."
    advice = "Such a task it gets wrong on many new examples; the competence gate may refuse claims about it."
    return f"**Below its bar: {', '.join(below)}.** {advice}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _top(values: dict[str, float]) -> str:
    ranked = sorted(values.items(), key=lambda p: -p[1])[:NAMED_HEADS]
    named = [f"{head} {value:.2f}" for head, value in ranked if value >= 0.05]
    return ", ".join(named) or f"none above 0.05 (largest: {ranked[0][0]} {ranked[0][1]:.2f})"


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m circuittest.zoo.package", description=__doc__)
    parser.add_argument("--model", choices=list(BUILDS), required=True)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--ship", type=int, help="ship this seed, on which other models or examples rest")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    package(args.model, args.runs, args.ship)


if __name__ == "__main__":
    main()

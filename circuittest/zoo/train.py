"""Train one zoo model: ``python -m circuittest.zoo.train --model gqa --seed 0 --out DIR`` (minutes on one
core).
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from circuittest.zoo.data import Source
from circuittest.zoo.penalty import HeadSparsity, predicts_answer
from circuittest.zoo.recipe import BUILDS, Build, Schedule, make_model, penalty_weight, shares
from circuittest.zoo.score import score
from circuittest.zoo.vocabulary import PAD, make_tokenizer, vocabulary

log = logging.getLogger(__name__)


def projections(model: Any) -> list[nn.Module]:
    """The attention output projections, first layer first."""
    config: Any = model.config
    if config.model_type == "gpt_neox":
        return [layer.attention.dense for layer in model.gpt_neox.layers]
    return [layer.self_attn.o_proj for layer in model.model.layers]


def learning_rate(step: int, schedule: Schedule) -> float:
    """Linear warm-up, then cosine down to ``final_lr``."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / schedule.steps))
    warm = min(1.0, (step + 1) / schedule.warm_up)
    return schedule.lr * warm * (schedule.final_lr + (1 - schedule.final_lr) * cosine)


def make_optimizer(model: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    """AdamW; weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": schedule.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=schedule.lr, betas=schedule.betas, fused=True)


def train(
    build: Build,
    seed: int,
    *,
    start: nn.Module | None = None,
    after_stage: Callable[[int, nn.Module], None] | None = None,
    after_step: Callable[[int, nn.Module], None] | None = None,
    report_every: int = 500,
) -> nn.Module:
    """A trained model (float32): all stages of its build, or, from ``start``, the last one alone.

    ``after_step`` is given the number of steps since the beginning of the first stage that was run, 1 after the first.
    """
    model = make_model(build, seed) if start is None else start
    done = 0
    for number, schedule in enumerate(build.stages):
        if start is None or number == len(build.stages) - 1:
            # Each stage has its own data and optimiser.
            source = Source(1000 * number + seed, schedule)
            since = None if after_step is None else partial(_count_from, done, after_step)
            train_stage(model, build, schedule, source, report_every, since)
            done += schedule.steps
            if after_stage is not None:
                after_stage(number, model)
    return model.eval()


def _count_from(done: int, after: Callable[[int, nn.Module], None], step: int, model: nn.Module) -> None:
    after(done + step, model)


def train_stage(
    model: nn.Module,
    build: Build,
    schedule: Schedule,
    source: Source,
    report_every: int,
    after_step: Callable[[int, nn.Module], None] | None = None,
) -> None:
    """One stage, in place. Reports go to the log, with accuracies on the *dev* pools; none with ``report_every=0``."""
    tokenizer = make_tokenizer()
    optimizer = make_optimizer(model, schedule)
    sparsity = HeadSparsity(projections(model), build.heads)
    pad, started = vocabulary()[PAD], time.process_time()
    model.train()
    for step in range(schedule.steps):
        progress = step / schedule.steps
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, schedule)
        batch = source.batch(shares(progress, schedule))
        weight = penalty_weight(progress, build.penalty, schedule)
        sparsity.active = weight > 0
        heads = 0.0
        everything = sum(float(w.sum()) for _, w in batch)
        for ids, weights in batch:
            loss = _loss(model, ids, weights) / everything
            if weight > 0:
                found = sparsity.take((ids != pad).float(), predicts_answer(weights)) / len(batch)
                heads += float(found.detach()) / build.layers
                loss = loss + weight * found
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if after_step is not None:
            after_step(step + 1, model)
        if report_every and ((step + 1) % report_every == 0 or step + 1 == schedule.steps):
            scores = score(model, tokenizer, n=100, pool="dev")
            model.train()
            seconds = time.process_time() - started
            log.info(
                "%s",
                json.dumps({"step": step + 1, "cpu_s": round(seconds), "heads": round(heads, 2), **scores}),
            )
    sparsity.remove()


def _loss(model: nn.Module, ids: Tensor, weights: Tensor) -> Tensor:
    # No attention mask: padding is on the right, so causal attention never sees it, and the fast kernel applies.
    logits = model(input_ids=ids, use_cache=False).logits
    chosen = weights[:, 1:] > 0
    losses = F.cross_entropy(logits[:, :-1][chosen].float(), ids[:, 1:][chosen], reduction="none")
    return (losses * weights[:, 1:][chosen]).sum()


def save(model: nn.Module, directory: Path, notes: dict[str, Any]) -> None:
    """bfloat16 weights, config, tokenizer, and ``training.json`` with the notes."""
    half: Any = copy.deepcopy(model).to(torch.bfloat16)
    half.save_pretrained(directory)
    make_tokenizer().save_pretrained(directory)
    (directory / "training.json").write_text(json.dumps(notes, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m circuittest.zoo.train", description=__doc__)
    parser.add_argument("--model", choices=list(BUILDS), required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--start", type=Path, help="run the last stage only, from a run of the stages before it"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    build = BUILDS[args.model]
    start = None
    if args.start:
        from transformers import AutoModelForCausalLM

        start = AutoModelForCausalLM.from_pretrained(args.start, dtype=torch.float32)
    before = json.loads((args.start / "training.json").read_text())["cpu_s"] if args.start else 0
    started = time.process_time()

    def keep(number: int, model: nn.Module) -> None:
        last = number == len(build.stages) - 1
        seconds = before + round(time.process_time() - started)
        notes = {"build": asdict(build), "seed": args.seed, "cpu_s": seconds}
        if args.start:
            notes["start"] = json.loads((args.start / "training.json").read_text())["build"]["name"]
        save(model, args.out if last else args.out / f"stage{number + 1}", notes)

    train(build, args.seed, start=start, after_stage=keep)


if __name__ == "__main__":
    main()

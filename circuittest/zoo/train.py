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
from collections.abc import Sequence
from dataclasses import asdict, replace
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


def train(build: Build, seed: int, schedule: Schedule | None = None, *, report_every: int = 500) -> nn.Module:
    """A trained model (float32). Reports go to the log, with accuracies on the *dev* pools."""
    schedule = schedule or Schedule()
    model = make_model(build, seed, schedule)
    tokenizer = make_tokenizer()
    source = Source(seed, schedule)
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
        if (step + 1) % report_every == 0 or step == 50:
            scores = score(model, tokenizer, n=100, pool="dev") if step != 50 else {}
            model.train()
            seconds = time.process_time() - started
            log.info(
                "%s",
                json.dumps({"step": step + 1, "cpu_s": round(seconds), "heads": round(heads, 2), **scores}),
            )
    sparsity.remove()
    return model.eval()


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
    parser.add_argument("--steps", type=int, default=Schedule().steps)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    schedule = replace(Schedule(), steps=args.steps)
    started = time.process_time()
    model = train(BUILDS[args.model], args.seed, schedule)
    seconds = time.process_time() - started
    notes = {
        "build": asdict(BUILDS[args.model]),
        "seed": args.seed,
        "schedule": asdict(schedule),
        "cpu_s": round(seconds),
    }
    save(model, args.out, notes)


if __name__ == "__main__":
    main()

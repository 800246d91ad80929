"""How well a zoo model does each task, on prompts of a held-out pool."""

from __future__ import annotations

import argparse
import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.tasks import Example, get_task
from circuittest.zoo.recipe import MIXTURE, VARIANTS

log = logging.getLogger(__name__)

# What a model must reach on the test pools to ship.
BARS = {name: 0.85 if name == "greater_than" else 0.95 for name in MIXTURE}


@torch.no_grad()
def last_logits(model: nn.Module, rows: Sequence[Sequence[int]]) -> Tensor:
    """Logits after the last token of each row, [rows, vocabulary] float32; rows of one length run together."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        by_length[len(row)].append(i)
    found: dict[int, Tensor] = {}
    for members in by_length.values():
        ids = torch.tensor([list(rows[i]) for i in members])
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1].float()
        found.update(zip(members, logits, strict=True))
    return torch.stack([found[i] for i in range(len(rows))])


def examples(name: str, n: int, pool: str, seed: int) -> list[Example]:
    """The first ``n`` distinct examples of a task's stream."""
    task = get_task(name, pool=pool, variant=VARIANTS.get(name, "default"))
    distinct: dict[str, Example] = {}
    for example in islice(task.stream(seed), 100 * n):
        distinct.setdefault(example.prompt, example)
        if len(distinct) == n:
            break
    return list(distinct.values())


def score(
    model: nn.Module, tokenizer: Any, *, n: int = 600, pool: str = "test", seed: int = 0
) -> dict[str, float]:
    """Per task the accuracy of the argmax of the whole vocabulary on ``n`` prompts (fewer where the pool
    has fewer); for ``greater_than`` the mean difference of the probabilities of later and not later years
    (the argmax is trivially right).
    """
    model.eval()
    results = {}
    for name in MIXTURE:
        chosen = examples(name, n, pool, seed)
        logits = last_logits(model, [tokenizer(e.prompt)["input_ids"] for e in chosen])
        ids = [[tokenizer.convert_tokens_to_ids(a.strip()) for a in e.answers] for e in chosen]
        if name == "greater_than":
            foils = [[tokenizer.convert_tokens_to_ids(a.strip()) for a in e.foils] for e in chosen]
            p = logits.softmax(-1)
            values = [
                float(p[i, a].sum() - p[i, f].sum()) for i, (a, f) in enumerate(zip(ids, foils, strict=True))
            ]
        else:
            values = [float(int(best) in a) for best, a in zip(logits.argmax(-1), ids, strict=True)]
        results[name] = round(sum(values) / len(values), 4)
    return results


def main(argv: Sequence[str] | None = None) -> None:
    """Command line: scores of one or more model directories, as JSON lines."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(prog="python -m circuittest.zoo.score", description=__doc__)
    parser.add_argument("directories", nargs="+")
    parser.add_argument("-n", type=int, default=600)
    parser.add_argument("--pool", default="test")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    for directory in args.directories:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        scores = score(model, AutoTokenizer.from_pretrained(directory), n=args.n, pool=args.pool)
        log.info("%s", json.dumps({"model": directory, "pool": args.pool, **scores}))


if __name__ == "__main__":
    main()

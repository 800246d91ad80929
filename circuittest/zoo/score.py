"""How well a zoo model does each task, on prompts of a held-out pool.

Training is watched on ``dev``. The test pools are cut in two: ``choice`` decides among seeds, ``final`` is scored when
all is chosen.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.stats.mean import MeanInference
from circuittest.tasks import Example, get_task
from circuittest.tasks.splits import bucket
from circuittest.zoo.recipe import MIXTURE, VARIANTS

log = logging.getLogger(__name__)

HALVES = ("choice", "final")
POOLS = ("train", "dev", *HALVES)
# What a model must reach on the final pools.
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


def part(name: str, example: Example) -> str:
    """``choice`` or ``final``: which half of the test pool an example of it belongs to.

    Examples of one group are in one half, so a held-out sum (pair, expression, country, …) is new to both.
    """
    # The groups of lists are their lengths: every list is new as it is.
    key = example.prompt if name == "induction" else example.group
    return "final" if bucket("final", name, key) < 50 else "choice"


def examples(name: str, n: int, pool: str, seed: int) -> list[Example]:
    """The first ``n`` distinct examples of a task's stream; ``pool`` is one of ``POOLS``."""
    source = "test" if pool in HALVES else pool
    task = get_task(name, pool=source, variant=VARIANTS.get(name, "default"))
    distinct: dict[str, Example] = {}
    for example in islice(task.stream(seed), 100 * n):
        if pool not in HALVES or part(name, example) == pool:
            distinct.setdefault(example.prompt, example)
        if len(distinct) == n:
            break
    return list(distinct.values())


@dataclass(frozen=True)
class Score:
    """Mean of one value per prompt, with its 95 % interval. ``groups`` are drawn together in it: all prompts with
    one sum (pair of names, …) may be wrong together.
    """

    value: float
    low: float
    high: float
    n: int
    groups: int


def outcomes(model: nn.Module, tokenizer: Any, name: str, chosen: Sequence[Example]) -> list[float]:
    """Per example 1 where the argmax of the whole vocabulary is an answer, else 0; for ``greater_than`` the
    probability of later years less that of the others (its argmax is trivially right).
    """
    logits = last_logits(model, [tokenizer(e.prompt)["input_ids"] for e in chosen])
    ids = [[tokenizer.convert_tokens_to_ids(a.strip()) for a in e.answers] for e in chosen]
    if name != "greater_than":
        return [float(int(best) in a) for best, a in zip(logits.argmax(-1), ids, strict=True)]
    foils = [[tokenizer.convert_tokens_to_ids(a.strip()) for a in e.foils] for e in chosen]
    p = logits.softmax(-1)
    return [float(p[i, a].sum() - p[i, f].sum()) for i, (a, f) in enumerate(zip(ids, foils, strict=True))]


def measure(
    model: nn.Module, tokenizer: Any, *, n: int = 600, pool: str = "final", seed: int = 0
) -> dict[str, Score]:
    """Per task the mean of :func:`outcomes` on ``n`` prompts (fewer where the pool has fewer)."""
    model.eval()
    found = {}
    for name in MIXTURE:
        chosen = examples(name, n, pool, seed)
        values = outcomes(model, tokenizer, name, chosen)
        groups = None if name == "induction" else [e.group for e in chosen]
        bounds = (-1.0, 1.0) if name == "greater_than" else (0.0, 1.0)
        mean = MeanInference(values, groups, bounds=bounds)
        low, high = mean.interval()
        found[name] = Score(round(mean.value, 4), round(low, 4), round(high, 4), mean.n, mean.n_clusters)
    return found


def score(
    model: nn.Module, tokenizer: Any, *, n: int = 600, pool: str = "final", seed: int = 0
) -> dict[str, float]:
    """The values of :func:`measure` without their intervals."""
    model.eval()
    results = {}
    for name in MIXTURE:
        values = outcomes(model, tokenizer, name, examples(name, n, pool, seed))
        results[name] = round(sum(values) / len(values), 4)
    return results


def main(argv: Sequence[str] | None = None) -> None:
    """Command line: scores of one or more model directories, as JSON lines."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(prog="python -m circuittest.zoo.score", description=__doc__)
    parser.add_argument("directories", nargs="+")
    parser.add_argument("-n", type=int, default=600)
    parser.add_argument("--pool", choices=POOLS, default="dev")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    for directory in args.directories:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        scores = measure(model, AutoTokenizer.from_pretrained(directory), n=args.n, pool=args.pool)
        found = {name: asdict(value) for name, value in scores.items()}
        log.info("%s", json.dumps({"model": directory, "pool": args.pool, **found}))


if __name__ == "__main__":
    main()

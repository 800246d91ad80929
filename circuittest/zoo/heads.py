"""A first look at what the heads of a zoo model do: ablate them one by one, and see where they look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.tasks import TaskData, get_task, prepare
from circuittest.zoo.recipe import MIXTURE, VARIANTS
from circuittest.zoo.score import last_logits
from circuittest.zoo.train import projections


@contextmanager
def zeroed(projection: nn.Module, head: int, heads: int) -> Iterator[None]:
    """Zero one head's slice of what its output projection reads."""

    def zero(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = args[0].clone()
        size = z.shape[-1] // heads
        z[..., head * size : (head + 1) * size] = 0
        return (z, *args[1:])

    handle = projection.register_forward_pre_hook(zero)
    try:
        yield
    finally:
        handle.remove()


def dev_data(name: str, tokenizer: Any, n: int) -> TaskData:
    """``n`` examples of the dev pool: what the card tells of heads does not use up the test pool."""
    task = get_task(name, pool="dev", variant=VARIANTS.get(name, "default"))
    return prepare(task, tokenizer, discover=0, evaluate=n)


def _accuracy(model: nn.Module, data: TaskData) -> float:
    logits = last_logits(model, [item.prompt_ids for item in data.evaluate])
    if data.metric == "prob_diff":
        p = logits.softmax(-1)
        gaps = [
            float(p[i, list(item.answer_ids)].sum() - p[i, list(item.foil_ids)].sum())
            for i, item in enumerate(data.evaluate)
        ]
        return sum(gaps) / len(gaps)
    right = [
        int(best) in item.answer_ids for best, item in zip(logits.argmax(-1), data.evaluate, strict=True)
    ]
    return sum(right) / len(right)


def ablation_drops(model: Any, tokenizer: Any, *, n: int = 60) -> dict[str, dict[str, float]]:
    """Per task, per head (``L2.H1``): by how much zeroing it alone lowers the accuracy (the probability difference for
    ``greater_than``) on ``n`` prompts of the dev pool.
    """
    model.eval()
    heads = model.config.num_attention_heads
    found: dict[str, dict[str, float]] = {}
    for name in MIXTURE:
        data = dev_data(name, tokenizer, n)
        base = _accuracy(model, data)
        found[name] = {}
        for layer, projection in enumerate(projections(model)):
            for head in range(heads):
                with zeroed(projection, head, heads):
                    found[name][f"L{layer}.H{head}"] = round(base - _accuracy(model, data), 3)
    return found


@torch.no_grad()
def attention_scores(model: Any, tokenizer: Any, *, n: int = 60) -> dict[str, dict[str, float]]:
    """Mean attention per kind and head on ``n`` prompts of the dev pool.

    On repeated lists ``previous token`` (to the token before) and ``induction`` (from the last token to the one
    after its first occurrence); on IOI prompts ``END to IO``, ``END to S2`` and ``S2 to S1``.
    """
    model.eval()
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the fast kernels return no attention
    sums: dict[str, Tensor] = {}
    try:
        for name in ("induction", "ioi"):
            for item in dev_data(name, tokenizer, n).evaluate:
                ids = list(item.prompt_ids)
                maps = torch.stack(model(torch.tensor([ids]), output_attentions=True).attentions)[
                    :, 0
                ]  # [L, H, T, T]
                for kind, value in _looks(name, ids, item.answer_ids[0], item.foil_ids[0], maps).items():
                    sums[kind] = sums.get(kind, torch.zeros_like(value)) + value / n
    finally:
        model.set_attn_implementation(before)
    return {
        kind: {
            f"L{layer}.H{head}": round(float(v), 3)
            for layer, row in enumerate(table)
            for head, v in enumerate(row)
        }
        for kind, table in sums.items()
    }


def _looks(name: str, ids: list[int], answer: int, foil: int, maps: Tensor) -> dict[str, Tensor]:
    end = len(ids) - 1
    if name == "induction":
        after = ids.index(ids[end]) + 1
        return {
            "previous token": maps.diagonal(offset=-1, dim1=-2, dim2=-1)[..., 1:].mean(-1),
            "induction": maps[:, :, end, after],
        }
    s1 = ids.index(foil)
    s2 = ids.index(foil, s1 + 1)
    return {
        "END to IO": maps[:, :, end, ids.index(answer)],
        "END to S2": maps[:, :, end, s2],
        "S2 to S1": maps[:, :, s2, s1],
    }

"""Attribution: per-example scores of every unit or edge from two forwards and one backward per batch.

Edge attribution patching (Nanda 2023; Syed et al., arXiv 2310.10348): the first-order estimate of what the metric
changes by when an activation takes its counterfactual value. Gradients at the clean run, Δ = counterfactual −
clean. All examples of a batch are scored at once: the sum of their metrics is differentiated, and examples do not
see each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from circuittest.errors import UsageError, did_you_mean
from circuittest.measure.batches import ItemLike, by_row, describe, plan, precision
from circuittest.measure.edges import EdgeScores, edges
from circuittest.measure.metrics import check_metric
from circuittest.measure.trace import Trace, trace
from circuittest.models.loaded import LoadedModel
from circuittest.tables import Member, ScoreTable
from circuittest.units import KINDS, Layout

METHODS = ("eap",)
UNIT_SCORES = ("edge-abs-sum", "edge-sum", "node")
_KINDS = ("embed", "head", "kv", "attn", "mlp")


def attribute(
    model: LoadedModel,
    items: Sequence[ItemLike],
    *,
    metric: str,
    method: str = "eap",
    level: str = "units",
    unit_score: str = "edge-abs-sum",
    kinds: Sequence[str] = ("head", "mlp"),
    batch_size: int | None = None,
) -> ScoreTable:
    """Score every unit (or edge) on every example.

    Parameters
    ----------
    items:
        Prompts and counterfactuals of equal length, with answer and foil ids.
    metric:
        "log_prob" (nats), "logit_diff" (logits) or "prob_diff", at the last prompt position.
    method:
        "eap".
    level:
        "units", or "edges" for every edge of the layout.
    unit_score:
        How a unit's score is made: "edge-abs-sum", Σ over outgoing edges of |edge score| (Li & Subramani, arXiv
        2605.08348), "edge-sum", the same signed, or "node", ⟨Δ write, ∂metric/∂ write⟩, equal to "edge-sum" and
        cheaper, since no edge is built. A KV group or attention layer is its heads together: their edges are
        summed before the absolute value.
    kinds:
        Which kinds of unit to score; ignored for edges.
    batch_size:
        Most examples in a batch; by default it follows from shapes.

    Returns
    -------
    ScoreTable
        float32 [examples × members], rows in the order of `items`.

    Raises
    ------
    UsageError
        For unknown choices, no examples, prompts whose counterfactual has another length, missing answers or foils.
    UnsupportedModel
        For quantised models.
    InterventionError
        Where an activation or gradient could not be captured.
    """
    for name, value, known in (
        ("method", method, METHODS),
        ("level", level, ("units", "edges")),
        ("unit score", unit_score, UNIT_SCORES),
    ):
        if value not in known:
            raise UsageError(f"unknown {name} {value!r}", "", did_you_mean(str(value), known))
    for kind in kinds:
        if kind not in _KINDS:
            raise UsageError(f"units of kind {kind!r} cannot be scored", "", did_you_mean(str(kind), _KINDS))
    if not kinds:
        raise UsageError("no kinds of unit were given", "", f"known are {', '.join(_KINDS)}")
    check_metric(metric, items)
    layout = model.layout
    batches = plan(items, model, batch_size=batch_size)
    by_edges = level == "edges" or unit_score != "node"
    scorer = EdgeScores(model) if by_edges else None
    parts: list[Tensor] = []
    with model.measuring():
        for batch in batches:
            traced = trace(model, batch, metric, reads=by_edges)
            if scorer is None:
                parts.append(_units(_node_scores(traced, layout, precision(model.dtype)), layout, kinds))
                continue
            for scores in scorer(traced):
                parts.append(_of_edges(scores, layout, level, unit_score, kinds).cpu())
    members: tuple[Member, ...] = edges(layout)[0] if level == "edges" else layout.units(kinds)
    choices = {
        "method": method,
        "metric": metric,
        "level": level,
        "score": unit_score if level == "units" else "edge",
        "dtype": str(model.dtype).removeprefix("torch."),
        "batches": describe(batches),
    }
    values = by_row(batches, [part.cpu() for part in parts]).numpy().astype(np.float32)
    return ScoreTable(values, members, tuple(item.index for item in items), choices)


def _of_edges(scores: Tensor, layout: Layout, level: str, unit_score: str, kinds: Sequence[str]) -> Tensor:
    if level == "edges":
        return scores.flatten(1)[:, torch.from_numpy(edges(layout)[1]).to(scores.device)]
    grouped = _units(scores, layout, kinds)
    return grouped.abs().sum(-1) if unit_score == "edge-abs-sum" else grouped.sum(-1)


def _units(values: Tensor, layout: Layout, kinds: Sequence[str]) -> Tensor:
    """From writers [examples, writers, ...] to units of some kinds [examples, units, ...] in canonical order."""
    blocks = values[:, 1:].unflatten(1, (layout.n_layers, layout.n_heads + 1))
    heads, mlps = blocks[:, :, :-1], blocks[:, :, -1:]
    made = {
        "head": heads,
        "kv": heads.unflatten(2, (layout.n_kv_heads, layout.group_size)).sum(3),
        "attn": heads.sum(2, keepdim=True),
        "mlp": mlps,
    }
    chosen = [made[kind] for kind in KINDS if kind in made and kind in kinds]
    embed = [values[:, :1]] if "embed" in kinds else []
    return torch.cat([*embed, *([torch.cat(chosen, dim=2).flatten(1, 2)] if chosen else [])], dim=1)


@torch.no_grad()
def _node_scores(traced: Trace, layout: Layout, dtype: torch.dtype) -> Tensor:
    """⟨Δ write, ∂metric/∂ write⟩ of every writer [examples, writers]."""
    changes, gradients = traced.changes, traced.gradients
    found = [(changes["embed", 0].to(dtype) * gradients["embed", 0]).sum((1, 2)).unsqueeze(1)]
    for layer in range(layout.n_layers):
        heads = changes["z", layer].to(dtype) * gradients["z", layer]
        found.append(heads.unflatten(2, (layout.n_heads, -1)).sum((1, 3)))
        found.append((changes["mlp", layer].to(dtype) * gradients["mlp", layer]).sum((1, 2)).unsqueeze(1))
    return torch.cat(found, dim=1)

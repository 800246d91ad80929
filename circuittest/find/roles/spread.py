"""How many directions or targets something is spread over: two effective numbers, and their growth over training.

For weights p ≥ 0 that sum to one:

- the **participation ratio** 1/Σp² ( (Σλ)²/Σλ² of a spectrum λ );
- the **effective rank** exp(−Σ p ln p), from the entropy (Roy & Vetterli 2007), which arXiv 2606.09607 calls
  "participation ratio": its p are σ²/Σσ² of the singular values of a head's outputs, uncentred.

Both are 1 where all weight is in one place and m where m places share it equally; the effective rank is never smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from circuittest.errors import UsageError
from circuittest.measure.attention import AttentionTable
from circuittest.measure.batches import ItemLike, plan
from circuittest.measure.sites import Site, record
from circuittest.models.loaded import LoadedModel

Floats = NDArray[np.float64]


def participation_ratio(weights: ArrayLike) -> Floats:
    """(Σw)²/Σw² over the last axis; NaN where all weights are zero. Raises UsageError for negative or NaN ones."""
    p = _shares(weights)
    return np.asarray(1.0 / np.square(p).sum(-1))


def effective_rank(weights: ArrayLike) -> Floats:
    """exp of the entropy of w/Σw over the last axis; NaN where all weights are zero. Raises as the other."""
    p = _shares(weights)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    return np.asarray(np.exp(-(p * logs).sum(-1)))


@dataclass(frozen=True, eq=False)
class Spread:
    """Effective numbers of every head, in canonical order [heads]."""

    participation_ratio: Floats
    effective_rank: Floats


def target_spread(table: AttentionTable) -> Spread:
    """Over how many tokens heads spread their attention: means over examples of the two numbers of each row.

    Weight on a learned sink beside the tokens does not count.
    """
    rows = np.nan_to_num(table.rows.astype(np.float64), nan=0.0)
    return Spread(participation_ratio(rows).mean(0), effective_rank(rows).mean(0))


def output_spread(model: LoadedModel, items: Sequence[ItemLike], *, batch_size: int | None = None) -> Spread:
    """In how many directions heads write at the last position of the prompts.

    From the singular values of each head's matrix [examples × head size] of what it hands to the output projection,
    uncentred. NaN for a head that writes nothing. Never more than the head size, nor than the number of examples.
    """
    layers = range(model.layout.n_layers)
    wanted = [Site(layer, "head") for layer in layers]
    found: list[list[NDArray[np.float64]]] = [[] for _ in layers]
    with model.measuring(), torch.no_grad():
        for batch in plan(items, model, batch_size=batch_size):
            values = record(model, batch.prompts(model.device), wanted).at
            for layer in layers:
                last = values[wanted[layer]][:, batch.length - batch.tail]
                found[layer].append(last.to(torch.float32).cpu().numpy().astype(np.float64))
    heads = np.concatenate([np.concatenate(parts).transpose(1, 0, 2) for parts in found])
    weights = np.square(np.linalg.svd(heads, compute_uv=False))
    return Spread(participation_ratio(weights), effective_rank(weights))


def growth(tokens: Sequence[float], values: Sequence[float]) -> float:
    """∫ max(v − 1, 0) d ln(tokens) over checkpoints, by trapezoids (arXiv 2606.09607's "PR integral").

    tokens: seen by each checkpoint, increasing. Raises UsageError for fewer than two checkpoints, tokens that do not
    increase from above zero, and values below 1 or not finite.
    """
    x, y = np.asarray(tokens, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise UsageError(f"{x.size} checkpoints and {y.size} values", "an integral needs two of both or more")
    if not (np.isfinite(x).all() and x[0] > 0 and (np.diff(x) > 0).all()):
        raise UsageError("tokens do not increase from above zero", "the integral is over their logarithm")
    if not np.isfinite(y).all() or (y < 1 - 1e-9).any():
        raise UsageError("a value is below 1 or not finite", "an effective number is at least 1")
    excess = np.maximum(y - 1.0, 0.0)
    return float((0.5 * (excess[1:] + excess[:-1]) * np.diff(np.log(x))).sum())


def _shares(weights: ArrayLike) -> Floats:
    w = np.asarray(weights, dtype=np.float64)
    if not np.isfinite(w).all() or (w < 0).any():
        raise UsageError("weights are negative or not finite", "they are shares of something")
    total = w.sum(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray(w / np.where(total > 0, total, np.nan))

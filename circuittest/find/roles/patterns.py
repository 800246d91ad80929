"""Pattern scores: how much of its attention every head spends on the targets of a role, example by example.

An example's score is the mean, over the queries that have targets, of the weight on all of these. It lies in [0, 1],
and is 1 for a head that does nothing else. An example without such a query has no score: its row is NaN, and the table
says how many have none and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circuittest.find.roles.kinds import AT_ANSWER, PATTERNS, Positions
from circuittest.find.roles.table import RoleTable
from circuittest.find.roles.targets import check_patterns, check_positions, targets
from circuittest.measure.attention import attention
from circuittest.measure.batches import Batch, ItemLike
from circuittest.models.loaded import LoadedModel


def pattern_scores(
    model: LoadedModel,
    items: Sequence[ItemLike],
    kinds: Iterable[str] = tuple(PATTERNS),
    *,
    positions: Positions = "all",
    batch_size: int | None = None,
) -> dict[str, RoleTable]:
    """Scores of every head for some kinds of pattern, all from one pass over the examples.

    Parameters
    ----------
    kinds:
        Of `PATTERNS`; see `circuittest.find.roles.targets`.
    positions:
        The queries that count: "all" of the prompt, or the "answer"'s alone, the last position.

    Raises
    ------
    UsageError
        For unknown kinds or positions.
    UnsupportedModel, InterventionError
        As `circuittest.measure.attention.attention`.
    """
    wanted = check_patterns(kinds)
    check_positions(positions)

    masks = _Masks(wanted, positions)

    def reduce(_: int, weights: Tensor, batch: Batch) -> Tensor:
        return torch.stack([_mean(weights, mask) for mask in masks.of(batch)], -1)

    found, choices = attention(model, items, reduce, batch_size=batch_size)
    values = found.numpy()
    heads = model.layout.units(("head",))
    examples = tuple(item.index for item in items)
    tables = {}
    for i, kind in enumerate(wanted):
        own = np.ascontiguousarray(values[:, :, i])
        without = int(np.isnan(own).any(1).sum())
        why = f"{PATTERNS[kind]} in {without} of {len(items)} examples" if without else ""
        where = "answer" if kind in AT_ANSWER else positions
        tables[kind] = RoleTable(kind, own, heads, examples, why, {**choices, "role_positions": where})
    return tables


def selectivity(
    model: LoadedModel,
    items: Sequence[ItemLike],
    kinds: Iterable[str] = tuple(PATTERNS),
    *,
    positions: Positions = "all",
    batch_size: int | None = None,
) -> dict[str, NDArray[np.float64]]:
    """How many times more weight a target has than another token, for every kind [heads].

    The ratio of two means over examples: of the weight per target, and of the weight per key that is the target of
    no kind asked for and not the first (Xu, arXiv 2606.09607, where 50 random keys stand for the rest and a head is
    named by the kind with the largest ratio, from 30 on). Infinite for a head that looks at nothing else; NaN where no
    example has targets, or none has other keys.
    """
    wanted = check_patterns(kinds)
    check_positions(positions)

    masks = _Masks(wanted, positions)

    def reduce(_: int, weights: Tensor, batch: Batch) -> Tensor:
        own = masks.of(batch)
        return torch.stack([_per_key(weights, mask) for mask in (*own, _rest(own, batch, positions))], -1)

    values = attention(model, items, reduce, batch_size=batch_size)[0].numpy()
    found = {}
    for i, kind in enumerate(wanted):
        both = values[..., [i, -1]]
        both = both[~np.isnan(both).any((1, 2))]
        if not len(both):
            found[kind] = np.full(model.layout.n_layers * model.layout.n_heads, np.nan)
            continue
        target, rest = both.mean(0).T
        with np.errstate(divide="ignore", invalid="ignore"):
            found[kind] = target / rest
    return found


def _queries(batch: Batch, positions: Positions) -> Tensor:
    """Which positions are queries [length]: of the prompt, not of an answer that was forced after it."""
    last = batch.length - batch.tail
    query = torch.arange(batch.length)
    return query == last if positions == "answer" else query <= last


class _Masks:
    """`_masks` of the batch at hand, made once for all its layers."""

    def __init__(self, kinds: Sequence[str], positions: Positions) -> None:
        self._kinds, self._positions = kinds, positions
        self._rows: tuple[int, ...] = ()
        self._made: list[Tensor] = []

    def of(self, batch: Batch) -> list[Tensor]:
        if batch.rows != self._rows:
            self._made, self._rows = _masks(self._kinds, batch, self._positions), batch.rows
        return self._made


def _rest(masks: Sequence[Tensor], batch: Batch, positions: Positions) -> Tensor:
    """The keys that are targets of nothing, and not the first [examples, queries, keys]."""
    seen = torch.ones((batch.length, batch.length), dtype=torch.bool).tril()
    seen[:, 0] = seen[0] = False
    rest = (seen & _queries(batch, positions)[:, None]).expand(len(batch.rows), -1, -1).clone()
    for mask in masks:
        rest &= ~mask
    return rest


def _masks(kinds: Sequence[str], batch: Batch, positions: Positions) -> list[Tensor]:
    """The targets of every kind [examples, queries, keys]; all False in queries that do not count."""
    queries = _queries(batch, positions)[None, :, None]
    size = batch.length - batch.tail + 1
    found = []
    for kind in kinds:
        mask = torch.zeros((len(batch.rows), batch.length, batch.length), dtype=torch.bool)
        for row, item in enumerate(batch.items):
            own = targets(kind, item.prompt_ids, answers=item.answer_ids, foils=item.foil_ids)
            mask[row, :size, :size] = torch.from_numpy(own)
        found.append(mask & queries)
    return found


def _mean(weights: Tensor, mask: Tensor) -> Tensor:
    """Mean over queries with targets of the weight on them [examples, heads]; NaN where there is none."""
    weights = _exact(weights)
    on = torch.einsum("bhqk,bqk->bhq", weights, mask.to(weights))
    # A row that rounding lets sum to more than one is a whole one.
    on = (on / weights.sum(-1).clamp_min(1.0)).sum(-1)
    count = mask.any(-1).sum(-1, keepdim=True).to(on)
    return on / torch.where(count > 0, count, float("nan"))


def _exact(weights: Tensor) -> Tensor:
    """In float64, which MPS does not have, so that sums add no rounding of their own."""
    return (weights.cpu() if weights.device.type == "mps" else weights).double()


def _per_key(weights: Tensor, mask: Tensor) -> Tensor:
    """Mean over queries with keys of the mean weight per key of the mask [examples, heads]; NaN where there is none."""
    weights = _exact(weights)
    sizes = mask.sum(-1, keepdim=True)
    share = mask.double() / torch.where(sizes > 0, sizes, 1)
    on = torch.einsum("bhqk,bqk->bh", weights, share.to(weights))
    count = mask.any(-1).sum(-1, keepdim=True).to(on)
    return on / torch.where(count > 0, count, float("nan"))

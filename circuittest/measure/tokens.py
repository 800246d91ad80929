"""The tokens that the model finds most likely next, with sets of units ablated: to show examples, not to judge them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

import torch

from circuittest.measure.ablation import _parts
from circuittest.measure.batches import Batch, ItemLike
from circuittest.measure.interventions import Intervention, check_positions, first_position
from circuittest.measure.metrics import last_rows, logits
from circuittest.measure.sites import Values, sites
from circuittest.measure.values import check_value, source
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit

#: A token's id and its probability.
Likely = tuple[int, float]


def top_tokens(
    model: LoadedModel,
    items: Sequence[ItemLike],
    rows: Sequence[int],
    sets: Sequence[Iterable[Unit]],
    *,
    value: str = "zero",
    positions: str = "all",
    calibration: Sequence[ItemLike] = (),
    seed: int = 0,
    count: int = 3,
) -> list[list[list[Likely]]]:
    """The most likely tokens after the prompts of some items, under the ablation of every set.

    Parameters
    ----------
    items:
        All that a claim was judged on: means and draws of other examples then are those of the claim.
    rows:
        Positions of the items that are run.
    sets, value, positions, calibration, seed:
        As for `circuittest.measure.ablation.ablate`; the empty set is the untouched model.
    count:
        How many tokens.

    Returns
    -------
    list
        [sets][rows] of `count` tokens, the most likely first; of equally likely ones the smaller id. Of an answer that
        is read token by token: what comes first.
    """
    check_value(value, items, calibration)
    check_positions(positions, items)
    parts = [_parts(model, units) for units in sets]
    found: list[list[list[Likely]]] = [[] for _ in parts]
    with model.measuring(), torch.no_grad():
        replacing = source(
            model,
            value,
            sites(part for one in parts for part in one),
            items,
            calibration=calibration,
            start=lambda length: first_position(positions, length),
            batch_size=None,
            seed=seed,
        )
        ablates = any(parts)
        for row in rows:
            batch = Batch((row,), (items[row],))
            ids = batch.prompts(model.device)
            values = replacing.of(batch) if ablates else Values({})
            for own, one in zip(found, parts, strict=True):
                changed = Intervention(model, [one], values, (1, ids.shape[1]), positions) if one else None
                with nullcontext() if changed is None else changed.applied():
                    hidden = last_rows(model.trunk(ids, use_cache=False).last_hidden_state, batch.tail)
                first = hidden if batch.tail == 1 else hidden[:, 0]
                probabilities = logits(model, first).double().softmax(-1)[0]
                best = torch.sort(probabilities, descending=True, stable=True).indices[:count]
                own.append([(int(i), float(probabilities[i])) for i in best])
    return found

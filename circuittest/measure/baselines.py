"""What attribution compares the clean run with: the counterfactual prompt, nothing, or a mean over held-out examples.

The change of a unit's write is baseline − clean. The embedding is a unit like the others: under "zero" nothing enters
the blocks, under "mean" the mean embedding does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from circuittest.errors import UsageError, did_you_mean
from circuittest.measure.batches import ItemLike, plan
from circuittest.measure.trace import Place, Writes, write_places, writes_on
from circuittest.models.loaded import LoadedModel

BASELINES = ("counterfactual", "zero", "mean")


def check_baseline(
    baseline: str, method: str, items: Sequence[ItemLike], calibration: Sequence[ItemLike]
) -> None:
    """Raise UsageError for an unknown baseline, and for calibration examples that are missing or scored themselves.

    "zero" is refused for EAP-IG: its path would start with nothing in the residual, where a norm's derivative is its
    largest, 1/√ε; that one point would outweigh all others, and no number of steps in use averages it out.
    """
    if baseline not in BASELINES:
        raise UsageError(f"unknown baseline {baseline!r}", "", did_you_mean(baseline, BASELINES))
    if baseline == "zero" and method == "eap-ig":
        raise UsageError(
            "EAP-IG from the baseline 'zero' is undefined in practice",
            "its path starts with an empty residual, where a norm's derivative is 1/√ε and outweighs all other points",
            "use the baseline 'counterfactual' or 'mean', or the method 'eap'",
        )
    if baseline != "mean":
        return
    if not calibration:
        raise UsageError(
            "the baseline 'mean' without calibration examples",
            "means are taken from held-out examples",
            "give calibration examples, or use the baseline 'counterfactual'",
        )
    scored = {item.prompt_ids for item in items}
    both = sum(item.prompt_ids in scored for item in calibration)
    if both:
        raise UsageError(
            f"{both} of the {len(calibration)} calibration prompts are among the examples that are scored",
            "a baseline taken from the scored examples depends on their scores",
            "hold the calibration examples out",
        )


def baseline_writes(
    model: LoadedModel, baseline: str, calibration: Sequence[ItemLike], *, batch_size: int | None = None
) -> Writes | None:
    """What every unit writes under a baseline, broadcastable to [batch, length, features].

    None for "counterfactual", whose writes are each batch's own. A mean is one vector per place over all positions
    of all calibration prompts, every token counting once, summed in float64.
    """
    if baseline == "counterfactual":
        return None
    places = write_places(model)
    if baseline == "zero":
        return {place: torch.zeros((), dtype=model.dtype, device=model.device) for place in places}
    sums: dict[Place, torch.Tensor] = {}
    tokens = 0
    for batch in plan(calibration, model, batch_size=batch_size):
        seen = writes_on(model, batch.prompts(model.device))
        tokens += len(batch.rows) * batch.length
        for place in places:
            total = seen[place].sum((0, 1), dtype=torch.float64)
            sums[place] = sums[place] + total if place in sums else total
    return {place: (total / tokens).to(model.dtype) for place, total in sums.items()}

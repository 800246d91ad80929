"""What attribution compares the clean run with: the counterfactual prompt, nothing, or a mean over held-out examples.

The change of a unit's write is baseline − clean. The embedding is a unit like the others: under "zero" nothing enters
the blocks, under "mean" the mean embedding does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from circuittest.errors import UsageError, did_you_mean
from circuittest.measure.batches import ItemLike, plan
from circuittest.measure.trace import Place, Writes, write_places, writes_on
from circuittest.models.experts import Routed
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
    model: LoadedModel,
    baseline: str,
    calibration: Sequence[ItemLike],
    *,
    fine: Collection[str] = (),
    batch_size: int | None = None,
) -> Writes | None:
    """What every unit writes under a baseline, of units within MLPs where `fine` names their kinds.

    None for "counterfactual", whose writes are each batch's own. A mean is one vector per unit over all positions
    of all calibration prompts, every token counting once, summed in float64; an expert adds nothing where it was not
    chosen, and this counts.
    """
    if baseline == "counterfactual":
        return None
    experts = {
        layer: block.experts for layer, block in enumerate(model.blocks) if block.experts and "expert" in fine
    }
    if baseline == "zero":
        nothing = torch.zeros((), dtype=model.dtype, device=model.device)
        return Writes(
            dict.fromkeys(write_places(model, fine), nothing),
            {layer: nothing.expand(model.layout.count("expert", layer), model.width) for layer in experts},
        )
    sums: dict[Place, torch.Tensor] = {}
    tokens = 0
    for batch in plan(calibration, model, batch_size=batch_size):
        seen = writes_on(model, batch.prompts(model.device), fine)
        tokens += len(batch.rows) * batch.length
        for place, values in seen.at.items():
            values = values.cpu() if values.device.type == "mps" else values  # which has no float64
            _add(sums, place, values.sum((0, 1), dtype=torch.float64))
        for layer, call in seen.calls.items():
            number, module = model.layout.count("expert", layer), experts[layer]
            if isinstance(call, Routed) and module is not None:
                with torch.no_grad():
                    _add(sums, ("expert", layer), call.sums(module, number).sum(0))
    means = {place: (total / tokens).to(model.dtype).to(model.device) for place, total in sums.items()}
    calls = {layer: means.pop(("expert", layer)) for layer in experts}
    return Writes(means, calls)


def _add(sums: dict[Place, torch.Tensor], place: Place, total: torch.Tensor) -> None:
    sums[place] = sums[place] + total if place in sums else total

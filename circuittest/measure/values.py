"""What ablated units are replaced by: nothing, a mean over calibration examples, or the value on another prompt.

Values are those of single parts at their site, where the unit is replaced (a head's slice before the output
projection, what an MLP gives before any post-norm); KV groups and attention layers have those of their heads. An
expert's value at a token is what it adds, nothing where it was not chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.measure.batches import Batch, ItemLike, describe, plan
from circuittest.measure.sites import Site, Values, record
from circuittest.models.loaded import LoadedModel

VALUES = ("zero", "mean", "mean-positions", "counterfactual", "resample")
#: Those that are taken from calibration examples.
CALIBRATED = ("mean", "mean-positions", "resample")
#: Calibrations (of mean-positions: lengths of their prompts) whose means a model keeps.
KEPT = 64


@dataclass(frozen=True)
class Source:
    """Where values come from.

    Attributes
    ----------
    of:
        The values on one batch.
    choices:
        What could change them, plain JSON types.
    """

    of: Callable[[Batch], Values]
    choices: Mapping[str, Any] = field(default_factory=dict)


def check_value(value: str, items: Sequence[ItemLike], calibration: Sequence[ItemLike]) -> None:
    """Raise UsageError for an unknown value, and for calibration examples that are missing or judged themselves."""
    if value not in VALUES:
        raise UsageError(f"unknown ablation value {value!r}", "", f"known are {', '.join(VALUES)}")
    if value not in CALIBRATED:
        return
    if not calibration:
        raise UsageError(
            f"ablation value {value!r} without calibration examples",
            "it is taken from held-out examples",
            "give calibration examples (a lab's are its discovery examples), or use the value 'zero'",
        )
    judged = {tuple(item.prompt_ids) for item in items}
    both = sum(tuple(item.prompt_ids) in judged for item in calibration)
    if both:
        raise UsageError(
            f"{both} of the {len(calibration)} calibration prompts are among the examples that are judged",
            "what calibrates an intervention must not be judged by it",
            "hold the calibration examples out",
        )


def source(
    model: LoadedModel,
    value: str,
    sites: Sequence[Site],
    items: Sequence[ItemLike],
    *,
    calibration: Sequence[ItemLike] = (),
    start: Callable[[int], int] = lambda length: 0,
    batch_size: int | None = None,
    seed: int = 0,
) -> Source:
    """The source of an ablation's values, checked by `check_value`. Runs the model where means are asked for.

    Parameters
    ----------
    sites:
        Those whose units are ablated.
    start:
        From the length of a prompt to its first ablated position: means are over the ablated positions.
    """
    if value == "zero":
        return Source(lambda batch: zeros(model, sites))
    if value == "counterfactual":
        return Source(lambda batch: record(model, batch.counterfactuals(model.device), sites))
    if value == "resample":
        donors = draw(items, calibration, seed)

        def resampled(batch: Batch) -> Values:
            ids = [donors[row].prompt_ids for row in batch.rows]
            return record(model, torch.tensor(ids, device=model.device), sites)

        return Source(resampled, {"seed": seed, "donors": [donor.index for donor in donors]})
    if value == "mean-positions":
        lengths = Counter(len(item.prompt_ids) for item in items)
        calibration = [item for item in calibration if len(item.prompt_ids) in lengths]
        for length, count in sorted(lengths.items()):
            if not any(len(item.prompt_ids) == length for item in calibration):
                _no_such_length(length, count, "a mean per position is over prompts of one length")
    batches = plan(calibration, model, batch_size=batch_size)
    choices = {"calibration": describe(batches)}
    if value == "mean":
        means = _kept(model, sites, batches, start)
        return Source(lambda batch: means, choices)
    by_length = {
        length: _kept(model, sites, [batch for batch in batches if batch.length == length], None)
        for length in {batch.length for batch in batches}
    }
    return Source(lambda batch: by_length[batch.length], choices)


def zeros(model: LoadedModel, sites: Iterable[Site]) -> Values:
    """Zero for every unit of some sites."""
    nothing = lambda site: torch.zeros((1, 1, 1, 1), dtype=model.dtype, device=site.device(model))
    return Values({site: nothing(site) for site in sites})


def draw(items: Sequence[ItemLike], calibration: Sequence[ItemLike], seed: int) -> list[ItemLike]:
    """For every item a calibration example of the same length, at random.

    A draw depends on the seed, the item's index and the examples of its length alone, not on the other items. Raises
    UsageError where an item has no such example.
    """
    by_length: dict[int, list[ItemLike]] = {}
    for one in calibration:
        by_length.setdefault(len(one.prompt_ids), []).append(one)
    lengths = Counter(len(item.prompt_ids) for item in items)
    donors = []
    for item in items:
        length = len(item.prompt_ids)
        if length not in by_length:
            _no_such_length(length, lengths[length], "values are taken position by position")
        among = by_length[length]
        donors.append(among[int(np.random.default_rng([seed, item.index]).integers(len(among)))])
    return donors


def _kept(
    model: LoadedModel,
    sites: Sequence[Site],
    batches: Sequence[Batch],
    start: Callable[[int], int] | None,
) -> Values:
    """`_means`, each taken once for every model: claims ask for many tables under the same ablation."""
    cuts = None if start is None else tuple(start(batch.length) for batch in batches)
    ids = tuple(tuple(map(tuple, batch.prompts(torch.device("cpu")).tolist())) for batch in batches)
    means: dict[Any, dict[Site, Tensor]] = model.kept.setdefault("means", {})
    if (ids, cuts) not in means and len(means) >= KEPT:
        means.clear()
    kept = means.setdefault((ids, cuts), {})
    if missing := [site for site in sites if site not in kept]:
        kept |= _means(model, _others(model, missing), batches, start)
    return Values({site: kept[site] for site in sites})


def _others(model: LoadedModel, sites: Sequence[Site]) -> list[Site]:
    """The same kinds in every layer, which one forward shows as well; experts' means are work, and only those asked."""
    kinds = {site.kind for site in sites if site.kind != "expert"}
    every = [Site(layer, kind) for layer in range(model.layout.n_layers) for kind in sorted(kinds)]
    return [site for site in every if site.units(model)] + [site for site in sites if site.kind == "expert"]


def _means(
    model: LoadedModel,
    sites: Sequence[Site],
    batches: Sequence[Batch],
    start: Callable[[int], int] | None,
) -> dict[Site, Tensor]:
    """Site → mean over examples and positions from `start` on, every token counting once [1, 1, units, size].

    Without `start` the mean over examples of one length, position by position [1, length, units, size].
    """
    sums: dict[Site, Tensor] = {}
    count = 0
    for batch in batches:
        cut = start(batch.length) if start else 0
        count += len(batch.rows) * (batch.length - cut if start else 1)
        for site, total in _sums(model, sites, batch).items():
            part = total[cut:].sum(0, keepdim=True) if start else total
            sums[site] = sums[site] + part if site in sums else part
    return {site: (total / count).to(site.device(model), model.dtype)[None] for site, total in sums.items()}


def _sums(model: LoadedModel, sites: Sequence[Site], batch: Batch) -> dict[Site, Tensor]:
    """Site → sum over a batch's examples [length, units, size], in float64, so that batches make no difference."""
    run = record(model, batch.prompts(model.device), sites)
    # MPS has no float64.
    here = lambda tensor: tensor.cpu() if tensor.device.type == "mps" else tensor
    sums = {site: here(values).sum(0, dtype=torch.float64) for site, values in run.at.items()}
    experts = {site: call.sums(site.module(model), site.units(model)) for site, call in run.routed.items()}
    return sums | experts


def _no_such_length(length: int, count: int, why: str) -> None:
    raise UsageError(
        f"no calibration example has the {length} prompt tokens of {count} of the examples",
        why,
        "give calibration examples of every length (more of them, or from the same templates), or use the value 'mean'",
    )

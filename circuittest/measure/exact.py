"""Exact activation patching, one unit at a time: what the approximations of `attribution` estimate.

The score of a unit is m(patched) − m(clean), where in the clean run the unit's own output is replaced by its value on
the counterfactual prompt (noising; Zhang & Nanda, arXiv 2309.16042), by zero or by a mean. It has the sign of EAP and
EAP-IG, which are first-order estimates of it, and costs a partial forward pass per unit instead of one backward.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circuittest.errors import UsageError
from circuittest.measure.ablation import ablate
from circuittest.measure.batches import ItemLike
from circuittest.measure.metrics import OUTCOME_METRICS, check_metric
from circuittest.models.loaded import LoadedModel
from circuittest.tables import ScoreTable


def activation_patching(
    model: LoadedModel,
    items: Sequence[ItemLike],
    *,
    metric: str,
    kinds: Sequence[str] = ("head", "mlp"),
    value: str = "counterfactual",
    calibration: Sequence[ItemLike] = (),
    batch_size: int | None = None,
) -> ScoreTable:
    """The change of the metric [examples × units] as each unit alone is replaced.

    Parameters
    ----------
    metric:
        "log_prob", "logit_diff" or "prob_diff".
    kinds:
        Which kinds of unit to patch; those that `ablate` can.
    value:
        Any value of `ablate`: "counterfactual", "zero", "mean", …
    calibration:
        Held-out examples, for values that need them.

    Raises
    ------
    UsageError
        For metrics that are no outcome, and as `ablate`.
    UnitError
        For unknown kinds.
    InterventionError
        Where a unit's replacement is not proven at its site.
    """
    check_metric(metric, items)
    if metric not in OUTCOME_METRICS:
        raise UsageError(
            f"exact patching by the metric {metric!r}",
            "it is computed from the outcomes of interventions, and this is none",
            f"use one of {', '.join(OUTCOME_METRICS)}",
        )
    units = model.layout.units(kinds)
    if not units:
        raise UsageError(f"the model has no units of kind {', '.join(kinds)}", "", "use other kinds")
    table = ablate(
        model,
        items,
        [(), *((unit,) for unit in units)],
        value=value,
        calibration=calibration,
        batch_size=batch_size,
    )
    measured = table.measure(metric)
    values = np.ascontiguousarray((measured[1:] - measured[0]).T, dtype=np.float32)
    choices = {
        "method": "exact",
        "metric": metric,
        "baseline": value,
        "level": "units",
        "score": "exact",
        **table.choices,
    }
    return ScoreTable(values, units, table.examples, choices)

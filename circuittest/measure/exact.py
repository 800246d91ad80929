"""Exact activation patching, one unit or edge at a time: what the approximations of `attribution` estimate.

The score of a unit is m(patched) − m(clean), where in the clean run the unit's own output is replaced by its value on
the counterfactual prompt (noising; Zhang & Nanda, arXiv 2309.16042), by zero or by a mean; of an edge the same, where
its reader alone reads the replaced value. It has the sign of EAP and EAP-IG, which are first-order estimates of it,
and costs a forward pass per unit or edge (of units only from their layer on) instead of one backward for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circuittest.errors import UsageError
from circuittest.measure.ablation import ablate
from circuittest.measure.batches import ItemLike
from circuittest.measure.edges import edges as every_edge
from circuittest.measure.metrics import OUTCOME_METRICS, check_metric
from circuittest.measure.patching import patch
from circuittest.models.loaded import LoadedModel
from circuittest.tables import Member, ScoreTable
from circuittest.units import Edge


def activation_patching(
    model: LoadedModel,
    items: Sequence[ItemLike],
    *,
    metric: str,
    level: str = "units",
    kinds: Sequence[str] = ("head", "mlp"),
    edges: Sequence[Edge] | None = None,
    value: str = "counterfactual",
    calibration: Sequence[ItemLike] = (),
    batch_size: int | None = None,
) -> ScoreTable:
    """The change of the metric [examples × members] as each unit (or edge) alone is replaced.

    Parameters
    ----------
    metric:
        "log_prob", "logit_diff" or "prob_diff".
    level:
        "units", or "edges".
    kinds:
        Which kinds of unit to patch; those that `ablate` can.
    edges:
        Which edges to patch; by default all of them, of which even small models have tens of thousands.
    value:
        Any value of `ablate`: "counterfactual", "zero", "mean", …; of edges one of `patch`.
    calibration:
        Held-out examples, for values that need them.

    Raises
    ------
    UsageError
        For metrics that are no outcome, and as `ablate` and `patch`.
    UnitError
        For unknown kinds, and edges that the model does not have.
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
    members: tuple[Member, ...]
    how: dict[str, Any] = {"value": value, "calibration": calibration, "batch_size": batch_size}
    if level == "edges":
        chosen = every_edge(model.layout)[0] if edges is None else set(edges)
        members = tuple(sorted(chosen, key=lambda edge: edge.order))
        table = patch(model, items, [(), *((edge,) for edge in members)], keep=False, **how)
    else:
        units = model.layout.units(kinds)
        if not units:
            raise UsageError(f"the model has no units of kind {', '.join(kinds)}", "", "use other kinds")
        members = units
        table = ablate(model, items, [(), *((unit,) for unit in units)], **how)
    measured = table.measure(metric)
    values = np.ascontiguousarray((measured[1:] - measured[0]).T, dtype=np.float32)
    choices = {
        **table.choices,
        "method": "exact",
        "metric": metric,
        "baseline": value,
        "level": level,
        "score": "exact",
    }
    return ScoreTable(values, members, table.examples, choices)

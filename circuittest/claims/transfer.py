"""Transfer: does a circuit that was found elsewhere do its work here?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims.clusters import Cluster, cluster_labels
from circuittest.claims.gates import competent, usable_circuit
from circuittest.claims.kept import Ablation
from circuittest.claims.ranges import Count
from circuittest.claims.specificity import overlap
from circuittest.claims.universe import circuit_universe
from circuittest.errors import CircuittestError, UsageError
from circuittest.find.ranking import per_example
from circuittest.find.recipe import recipe_of, scoring_of
from circuittest.find.shared import shared
from circuittest.stats import Estimate
from circuittest.stats.resampling import Floats, generator

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

#: Random cuts of the target's discovery examples, for what its own circuit agrees with itself.
CUTS = 20


def transfer(
    lab: Lab,
    circuit: Circuit,
    *,
    to: str | None = None,
    where: str | None = None,
    function: Literal["necessity", "graded_necessity", "sufficiency"] = "necessity",
    controls: Count = 40,
    match: Literal["kind", "layer"] | None = None,
    ablation: Ablation | None = None,
    metric: Literal["log_prob", "logit_diff"] | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
    decide: float | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Function of a circuit found on one task, subtask or model, on another.

    Estimand: that of `function`, for the given circuit, on the evaluation examples of the target. The target is the
    task `to` and the subtask `where` of this lab's model, or, without both, this lab itself: then the circuit comes
    from another lab (a file, another model of the same architecture).

    Beside it, in ``details``: the same function of the circuit that the target itself gives by the same recipe
    (``own``), and the structure: Jaccard index of the two circuits with its expectation for random sets of their sizes,
    what two random halves of the target's discovery examples agree on (no circuit found elsewhere can be expected to
    agree more), and the rank correlation of mean absolute scores where both were found on this model.

    Parameters
    ----------
    to:
        Another task.
    where:
        A predicate on features, such as ``template == 0``.
    function, controls, match, ablation, metric, cluster, seed:
        Which claim, and its options; those left out are the claim's own.
    decide, confidence:
        As for `necessity`, where the claim has controls to stop at; ``own`` then has all of them.

    Invalid when the claim is, when the circuit was found on the very task and model that it is to be transferred to,
    and when the model is not competent where the circuit comes from.
    """
    from circuittest.claims import claim_kind

    kind = claim_kind(function)
    given: dict[str, Any] = {
        "controls": controls,
        "match": match,
        "ablation": ablation,
        "metric": metric,
        "cluster": None if cluster == "none" else cluster,
        "seed": seed,
    }
    options = {key: value for key, value in given.items() if value is not None and key in kind.options}
    if unused := sorted(key for key, value in given.items() if value is not None and key not in kind.options):
        raise UsageError(f"transfer of {function} has no option {unused[0]!r}", "", "leave it out")
    choices: dict[str, Any] = {"function": function, "to": to, "where": where, **options}

    def invalid(reason: str, at: Lab = lab) -> Estimate:
        return at.estimate("transfer", circuit, choices=choices, invalid=reason)

    if reason := usable_circuit(circuit):
        return invalid(reason)
    target = lab if to is None else lab.on(to)
    if where is not None:
        target = target.where(where)
    source, came_from = _source(lab, circuit, target)
    choices["from"] = came_from
    if came_from["task"] is None and source is None:
        return invalid(
            "where the circuit comes from is not known: give 'to' or 'where', or a circuit with an origin"
        )
    if came_from["task"] == target.data.task and came_from["fingerprint"] == target.fingerprint:
        return invalid(
            f"the circuit was found on {target.data.task} and this model: claim its {function} there"
        )
    gate = None
    if source is not None:
        judged = cluster_labels(source.data.evaluate, cluster)
        universe = source.layout.universe(circuit_universe(circuit))
        gate = competent(source, universe, source.accuracy, groups=judged)
        if not gate.passed:
            return invalid(f"where it comes from ({source.data.task}): {gate.reason}")
    early = {"decide": decide, "confidence": confidence}
    early = {name: value for name, value in early.items() if name in kind.reserved}
    measured: Estimate = kind.function(target, circuit, **options, **early)
    details = {
        **measured.details,
        "from": {**came_from, "acc_base": None if gate is None else gate.accuracy},
        "structure": _structure(circuit, source, target, seed),
        "own": _own(circuit, target, kind.function, options),
    }
    return replace(measured, claim="transfer", choices={**measured.choices, **choices}, details=details)


def _source(lab: Lab, circuit: Circuit, target: Lab) -> tuple[Lab | None, dict[str, Any]]:
    """The lab that the circuit comes from, if it can be had, and what its origin says."""
    origin = circuit.origin
    told = {key: origin.get(key) for key in ("model", "fingerprint", "task")}
    if told["fingerprint"] == lab.fingerprint and told["task"] not in (None, lab.data.task):
        task, _, predicate = str(told["task"]).partition("[")
        try:
            found = lab if task == lab.data.task else lab.on(task)
            found = found.where(predicate.removesuffix("]")) if predicate else found
            return (found, told) if found.data.evaluate else (None, told)
        except (CircuittestError, KeyError):  # a task that has no name here
            return None, told
    if target is not lab and told["fingerprint"] in (None, lab.fingerprint):
        # given by its units, or found on this lab
        return lab, {"model": lab.model.name, "fingerprint": lab.fingerprint, "task": lab.data.task}
    return None, told


def _own(circuit: Circuit, target: Lab, function: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """The same function of the target's own circuit; None where there is nothing to find it by."""
    recipe = recipe_of(circuit.origin)
    if recipe is None or not target.data.discover:
        return None
    own = target.shared(**recipe)
    found: dict[str, Any] = {"units": [str(unit) for unit in own.units]}
    measured: Estimate = function(target, own, **options)
    if measured.invalid:
        return found | {"value": None, "interval": None, "undefined": measured.invalid}
    interval = measured.interval or (np.nan, np.nan)
    return found | {
        "value": measured.value,
        "interval": [float(end) if np.isfinite(end) else None for end in interval],
    }


def _structure(circuit: Circuit, source: Lab | None, target: Lab, seed: int) -> dict[str, Any] | None:
    """How alike the circuit and the target's own are; None where there is nothing to find that by."""
    recipe = recipe_of(circuit.origin)
    if recipe is None or not target.data.discover:
        return None
    own = target.shared(**recipe)
    table = target.scores(**scoring_of(recipe))
    found: dict[str, Any] = {"rediscovered": [str(unit) for unit in own.units]}
    if own.units:
        found |= overlap(circuit, own, len(table.members))
    membership = per_example(table, recipe["top"])
    rng, count = generator(seed), len(table.examples)
    agreed = []
    for _ in range(CUTS if count >= 4 else 0):
        order = rng.permutation(count)
        halves = [shared(membership.inside[order[part::2]], recipe["at"]) for part in (0, 1)]
        if union := int((halves[0] | halves[1]).sum()):
            agreed.append(float((halves[0] & halves[1]).sum()) / union)
    found["jaccard_of_halves"] = float(np.mean(agreed)) if agreed else None
    found["rank_correlation"] = None
    if source is not None and source.layout == target.layout:
        there = source.scores(**scoring_of(recipe))
        found["rank_correlation"] = _spearman(_mean_size(there.values), _mean_size(table.values))
    return found


def _mean_size(values: Any) -> Floats:
    found: Floats = np.abs(values).mean(0, dtype=np.float64)
    return found


def _spearman(a: Floats, b: Floats) -> float | None:
    """None where all scores are equal."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])

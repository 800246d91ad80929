"""Drift: what a fine-tune changed in behaviour, in what a circuit does, and in which circuit the model has.

A tuned model is compared with the lock of its base (`circuittest.claims.pairing`). Each claim has its own margin, which
a person gives: "no drift" is shown by an interval inside the margins (two one-sided tests, Schuirmann 1987), never by a
difference that is not significant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from circuittest.circuit import Circuit, prompt_digest
from circuittest.claims import within
from circuittest.claims.locked_rows import measured_kept
from circuittest.claims.pairing import (
    Measure,
    Pair,
    SameWeights,
    Side,
    checked_margin,
    found_again,
    other_metric,
    pair,
)
from circuittest.find.ranking import per_example
from circuittest.find.recipe import recipe_of, scoring_of
from circuittest.find.shared import shared
from circuittest.stats import Estimate, Inference, MeanInference
from circuittest.stats.absolute import AbsoluteInference
from circuittest.stats.resampling import Floats, generator
from circuittest.units import parse
from circuittest.weights import placed_circuit

if TYPE_CHECKING:
    from circuittest.lab import Lab

#: The largest change of no interest.
Margin = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: Random cuts of the discovery examples, for what the base's circuit agrees with itself.
CUTS = 200


def _change_of(metric: Measure, side: Side, most: float) -> tuple[float, float]:
    """Between what a change lies: of accuracies by up to `most`, of other measures by anything."""
    largest = most if metric == "accuracy" else math.inf
    return (0.0 if side == "both" else -largest), largest


@within(lambda options: _change_of(options["metric"], options["side"], 1.0))
def drift_behaviour(
    lab: Lab,
    *,
    baseline: str = "lock",
    margin: Margin,
    metric: Measure = "accuracy",
    side: Side = "both",
    seed: int = 0,
) -> Estimate:
    """How far a tuned model's accuracy or log-probability is from its base's, on the same examples.

    Estimand: |mean over examples of m(tuned) - m(base)|, to be at most the margin; with ``side="worse"`` the loss
    mean(m(base) - m(tuned)), so that an improvement of any size is no drift. Without another threshold a spec claims
    ``max`` = `margin`.

    Parameters
    ----------
    baseline:
        "lock": the one beside the spec; or a lock file.
    margin:
        The largest drift of no interest, in points of accuracy (0.05), nats or logits.
    metric:
        "accuracy" (as the task counts it), "log_prob" or "logit_diff".
    seed:
        Of the resampling.

    Invalid when the examples are not those of the lock, and when the base was not competent. A tuned model that lost
    the task is no reason: it drifted.
    """
    checked_margin(margin, 1.0 if metric == "accuracy" else math.inf)
    both = pair(lab, None, baseline)
    choices = {**both.choices(), "margin": margin, "metric": metric, "side": side, "seed": seed}
    if reason := both.reason:
        return lab.estimate("drift.behaviour", None, choices=choices, invalid=reason)
    column = both.column(metric)
    before = both.rows_of_base(column).nothing
    after = before if both.same else both.ends(column)[0]
    bounds = (-1.0, 1.0) if metric == "accuracy" else None
    details = {"m_base": float(before.mean()), "m_tuned": float(after.mean()), **both.relation()}
    return _drift(both, "drift.behaviour", None, after - before, bounds, side, seed, choices, details)


@within(lambda options: _change_of(options["metric"], options["side"], 2.0))
def drift_function(
    lab: Lab,
    circuit: Circuit,
    *,
    baseline: str = "lock",
    margin: Margin,
    part: Literal["necessity", "sufficiency"] = "necessity",
    found: Literal["base", "tuned"] = "base",
    base: str | None = None,
    metric: Measure = "accuracy",
    side: Side = "both",
    seed: int = 0,
) -> Estimate:
    """How far what a circuit does in a tuned model is from what it does in the base.

    Estimand: |D(tuned) - D(base)| on the same examples. For ``part="necessity"`` D is the damage beyond controls, mean
    over the lock's control sets C of m(C) - m(S), conditional on those sets; for "sufficiency" it is what the circuit
    alone restores, m(circuit kept) - m(nothing kept), where all other units of the universe give what they give on the
    counterfactual prompt. They are the numerators of `necessity` and `sufficiency`, in points of accuracy (nats,
    logits), not divided by what the base can lose, which the fine-tune may change. With ``side="worse"`` only a fall
    counts. Without another threshold a spec claims ``max`` = `margin`.

    Parameters
    ----------
    baseline, metric, seed:
        As for `drift.behaviour`.
    margin:
        The largest drift of no interest.
    found:
        "base": the circuit of the lock; "tuned": the circuit that the same recipe finds in the tuned model, whose work
        the base is then asked for as well. For that the base is loaded.
    base:
        With ``found="tuned"``, a name or directory of the base model; by default the name in the lock.

    Invalid as `drift.behaviour`; when the controls left the base too little to lose; when the circuit was chosen on
    evaluation examples; and where the weights have nothing in common with the base's, as in a model from another
    training run, because units are compared by their position.
    """
    checked_margin(margin, 2.0 if metric == "accuracy" else math.inf)
    both = pair(lab, circuit, baseline)
    choices = {**both.choices(), "margin": margin, "metric": metric, "side": side, "seed": seed}
    choices |= {"part": part, "found": found}
    reason = both.no_pair(circuit)
    if not reason and found == "tuned":
        circuit, both, reason = found_again(both, base)
    if not reason and part == "sufficiency" and both.base.outcomes is not None:
        reason = both.base.outcomes.no_kept
    if reason:
        return lab.estimate(
            "drift.function", circuit, choices=choices, details=both.relation(), invalid=reason
        )
    column = both.column(metric)
    measured = _restored if part == "sufficiency" else _damage
    values, details = measured(both, column)
    details |= {"circuit": [str(unit) for unit in circuit.units], **both.relation()}
    bounds = (-2.0, 2.0) if metric == "accuracy" else None
    return _drift(both, "drift.function", circuit, values, bounds, side, seed, choices, details)


def _damage(both: Pair, column: str) -> tuple[Floats, dict[str, Any]]:
    """[n] change of the damage beyond controls, and what it was made of."""
    before = both.rows_of_base(column)
    after = before if both.same else both.rows(column)
    return after.beyond - before.beyond, {
        "beyond_base": float(before.beyond.mean()),
        "beyond_tuned": float(after.beyond.mean()),
        "m_base": [float(row.mean()) for row in (before.nothing, before.circuit, before.controls)],
        "m_tuned": [float(row.mean()) for row in (after.nothing, after.circuit, after.controls)],
        "controls": [[str(unit) for unit in units] for units in both.controls],
    }


def _restored(both: Pair, column: str) -> tuple[Floats, dict[str, Any]]:
    """[n] change of what the circuit alone restores, and what it was made of."""
    before = both.kept_of_base(column)
    after = before
    if not both.same:
        after = measured_kept(both.lab, both.universe, both.base.circuit.units).measure(column)
    return (after[1] - after[0]) - (before[1] - before[0]), {
        "restored_base": float((before[1] - before[0]).mean()),
        "restored_tuned": float((after[1] - after[0]).mean()),
        "m_base": [float(row.mean()) for row in before],
        "m_tuned": [float(row.mean()) for row in after],
    }


@within((0.0, 1.0))
def drift_structure(
    lab: Lab, circuit: Circuit, *, baseline: str = "lock", margin: Margin, seed: int = 0
) -> Estimate:
    """How much of each example's own circuit a fine-tune replaced.

    Estimand: mean over discovery examples of 1 - |C_i(tuned) ∩ C_i(base)| / K, C_i the K highest-scoring members on
    example i. The examples are the same, so that no noise of re-discovery on other data is in it, and equal weights
    give 0. Without another threshold a spec claims ``max`` = `margin`.

    Beside it, in ``details``: Jaccard index of the locked circuit and the one found again; of the mean absolute scores
    of all members, as shares of their sum, the weighted Jaccard index (``weighted_overlap``: sum of the smaller over
    sum of the larger) and the rank correlation; what independent circuits would give (``replaced_by_chance``); and
    over random halves A, B of the examples the mean Jaccard index of the base's circuits of A and B (``floor``) beside
    that of the base's of A and the tuned's of B (``across``).

    Invalid when the circuit was not found by `Lab.shared`, when the discovery examples are not those of the lock, when
    the lock holds no ranking of so many members, and where the weights have nothing in common with the base's, as in a
    model from another training run: units are compared by their position.
    """
    checked_margin(margin, 1.0)
    both = pair(lab, circuit, baseline)
    choices: dict[str, Any] = {**both.choices(), "margin": margin, "seed": seed}

    def invalid(reason: str) -> Estimate:
        return lab.estimate("drift.structure", circuit, choices=choices, invalid=reason)

    ranking, recipe = both.base.ranking, recipe_of(both.base.circuit.origin)
    if ranking is None or recipe is None:
        return invalid(
            "the lock holds no ranking: the circuit was given by its members, or the universe is too large"
        )
    here = tuple(prompt_digest(item.prompt_ids) for item in lab.data.discover)
    if here != both.lock.discover:
        return invalid(
            "the discovery examples are not those of the lock: use the sizes, seed and prefix of the spec"
        )
    if reason := both.stranger or other_metric(lab, both.base.circuit):
        return invalid(reason)
    choices |= recipe
    inside, size = ranking.inside, ranking.mean
    if not both.same:
        table = lab.scores(**scoring_of(recipe))
        if tuple(map(str, table.members)) != ranking.members:
            return invalid("the lock ranks other members than the model has in this universe")
        inside = per_example(table, recipe["top"]).inside
        size = np.abs(table.values).mean(0, dtype=np.float64)
    k = int(ranking.inside[0].sum())
    replaced = 1.0 - (inside & ranking.inside).sum(1) / k
    masks = [shared(one, recipe["at"]) for one in (ranking.inside, inside)]
    again = [member for member, keep in zip(ranking.members, masks[1], strict=True) if keep]
    details = {
        "rediscovered": [str(member) for member in placed_circuit(Circuit.of(map(parse, again)), both.moved)],
        "jaccard": _jaccard(*masks),
        "replaced_by_chance": 1.0 - k / len(ranking.members),
        "weighted_overlap": _weighted(ranking.mean, size),
        "rank_correlation": _spearman(ranking.mean, size),
        "k": k,
        **halves(ranking.inside, inside, recipe["at"], seed),
        **both.relation(),
    }
    inference: Inference = (
        SameWeights(both.moved) if both.same else MeanInference(replaced, bounds=(0.0, 1.0), seed=seed)
    )
    return lab.estimate(
        "drift.structure",
        circuit,
        inference=inference,
        n_examples=len(here),
        choices=choices,
        details=details,
        hints=both.hints(circuit),
    )


def halves(base: Any, tuned: Any, at: Any, seed: int) -> dict[str, Any]:
    """Mean Jaccard indices over random halves A, B: base(A)-base(B) and base(A)-tuned(B); None where all were empty."""
    rng, count = generator(seed), base.shape[0]
    within, across = [], []
    for _ in range(CUTS if count >= 4 else 0):
        order = rng.permutation(count)
        first, second = order[::2], order[1::2]
        own = shared(base[first], at)
        within.append(_jaccard(own, shared(base[second], at)))
        across.append(_jaccard(own, shared(tuned[second], at)))
    mean = lambda values: (
        float(np.mean([v for v in values if v is not None])) if any(v is not None for v in values) else None
    )
    return {"floor": mean(within), "across": mean(across), "cuts": len(within)}


def _drift(
    both: Pair,
    claim: str,
    circuit: Circuit | None,
    values: Floats,
    bounds: tuple[float, float] | None,
    side: Side,
    seed: int,
    choices: Mapping[str, Any],
    details: Mapping[str, Any],
) -> Estimate:
    """The estimate from tuned minus base, [n]."""
    signed: Inference = SameWeights(both.moved)
    if not both.same:
        signed = MeanInference(values if side == "both" else -values, bounds=bounds, seed=seed)
    return both.lab.estimate(
        claim,
        circuit,
        inference=AbsoluteInference(signed) if side == "both" else signed,
        choices=choices,
        details={**details, "signed": float(values.mean())},
        hints=both.hints(circuit),
    )


def _jaccard(a: Any, b: Any) -> float | None:
    """None for two empty sets."""
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else None


def _weighted(a: Floats, b: Floats) -> float | None:
    """Jaccard index of sizes as shares of their sum; None where all are zero."""
    if not a.any() or not b.any():
        return None
    p, q = a / a.sum(), b / b.sum()
    return float(np.minimum(p, q).sum() / np.maximum(p, q).sum())


def _spearman(a: Floats, b: Floats) -> float | None:
    """None where all scores are equal."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])

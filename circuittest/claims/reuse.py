"""Reuse@P: how much of each example's circuit is the circuit that (nearly) all examples share?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.claims.gates import competent
from circuittest.find.ranking import Membership, per_example
from circuittest.find.shared import coverage, reuse_curve, shared, shared_members, why_empty
from circuittest.stats import Estimate, MeanInference

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab


def reuse(lab: Lab, circuit: Circuit, *, folds: int = 5, seed: int = 0) -> Estimate:
    """Coverage of per-example circuits by the shared circuit S_P, on examples that did not choose S_P.

    Estimand: mean |S_P ∩ C_i| / |C_i| over new examples i, for the K, P, universe and score rule that `circuit` was
    found with (Li & Subramani, arXiv 2605.08348, Eq. 1 and 2), by cross-fitting: S_P comes from all folds but
    one and is scored on that one. The in-sample value of Eq. 2, which papers print, stands in
    ``details["in_sample"]``. For a circuit given by its units use `coverage`.

    Invalid when the circuit was not found by `Lab.shared` on this lab's examples, when there are fewer than two
    examples a fold, and when the model is not competent.
    """
    recipe = circuit.origin
    choices: dict[str, Any] = {"folds": folds, "seed": seed}

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("reuse", circuit, choices=choices, details=details or {}, invalid=reason)

    if recipe.get("method") is None or "top" not in recipe:
        return invalid(
            "the circuit was not found by lab.shared, so there is no S_P to cross-fit: claim its coverage instead"
        )
    choices |= {key: recipe[key] for key in ("method", "score", "universe", "top", "at", "metric")}
    if recipe.get("fingerprint") != lab.fingerprint or recipe.get("task") != lab.data.task:
        return invalid(
            f"the circuit was found on {recipe.get('model')} and task {recipe.get('task')}; "
            "reuse re-discovers it, so find it with this lab, or claim its coverage"
        )
    if folds < 2 or len(lab.data.discover) < 2 * folds:
        return invalid(
            f"{len(lab.data.discover)} discovery examples in {folds} folds; at least 2 folds of 2 are needed"
        )
    gate = competent(lab, lab.layout.universe(recipe["universe"]), lab.accuracy)
    if not gate.passed:
        return invalid(gate.reason)
    table = lab.scores(universe=recipe["universe"], score=recipe["score"], method=recipe["method"])
    membership = per_example(table, recipe["top"])
    values = _cross_fitted(membership, recipe["at"], folds)
    mask = shared(membership.inside, recipe["at"])
    details = {
        "shared": [str(m) for m in shared_members(membership, recipe["at"])],
        "k": membership.k,
        "n_units": len(membership.members),
        "curve": {str(p): value for p, value in reuse_curve(membership).items()},
        "in_sample": float(coverage(membership.inside, mask).mean()),
        "chance": float(mask.sum() / len(membership.members)),
        "ties": membership.ties,
        "zero_scores": membership.zeros,
        "acc_base": gate.accuracy,
    }
    hints = () if mask.any() else (why_empty(membership, recipe["at"]),)
    return lab.estimate(
        "reuse",
        circuit,
        inference=MeanInference(values, seed=seed),
        n_examples=len(values),
        choices=choices,
        details=details,
        hints=hints,
    )


def _cross_fitted(membership: Membership, at: str, folds: int) -> np.ndarray:
    """[examples] each example's coverage by the S_P of the other folds; example i is in fold i mod `folds`."""
    n = membership.inside.shape[0]
    fold = np.arange(n) % folds
    values = np.empty(n)
    for held_out in range(folds):
        mask = shared(membership.inside[fold != held_out], at)
        values[fold == held_out] = coverage(membership.inside[fold == held_out], mask)
    return values

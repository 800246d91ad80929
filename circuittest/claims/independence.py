"""Independence: does what is left without the circuit still know which examples the model finds easy?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.claims import within
from circuittest.claims.kept import Ablation, Graded, Where, keep
from circuittest.stats import Estimate
from circuittest.stats.absolute import AbsoluteInference
from circuittest.stats.concordance import ConcordanceInference
from circuittest.stats.hsic import hsic_test

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab


@within((0.0, 1.0))
def independence(
    lab: Lab,
    circuit: Circuit,
    *,
    ablation: Ablation = "counterfactual",
    positions: Where = "all",
    metric: Graded | None = None,
    universe: str | None = None,
    seed: int = 0,
) -> Estimate:
    """How closely the score without the circuit follows the model's score over examples; less is more independent.

    If only the circuit did the task, the score s(M∖C) of the model without it would have nothing to do with the
    score s(M) of the model (Shi et al., arXiv 2410.13032, section 3.1). Estimand: |τ|, the absolute value of
    Kendall's τ_a between the two over examples, ties (differences within rounding) counting as neither; 0 where
    the score without the circuit is the same everywhere. ``independence <= 0.2`` is supported when the upper
    bound of |τ| is at most 0.2, refuted when the lower bound is above.

    Their own test, HSIC with permutations, is ``details["hsic"]``. It can refute independence, of any form;
    that it does not reject shows nothing, so no verdict rests on it. And independence is cheap: an ablation
    that destroys the model makes its scores independent of anything. Read it beside `necessity`, which has
    controls.

    Invalid when the circuit is empty, holds edges, leaves the universe, or was chosen on evaluation examples;
    when the model is not competent; and when the model's score is the same on every example, so that nothing
    could follow it.
    """
    kept, reason = keep(
        lab, circuit, universe=universe, ablation=ablation, positions=positions, metric=metric, whole=True
    )
    choices = kept.choices | {"seed": seed}

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("independence", circuit, choices=choices, details=details or {}, invalid=reason)

    if reason:
        return invalid(reason)
    full, without = kept.outcomes([(), kept.circuit])
    noise = kept.noise(full, without)
    details: dict[str, Any] = {
        "m_full": float(full.mean()),
        "m_without": float(without.mean()),
        "spread": {"full": float(np.std(full)), "without": float(np.std(without))},
        "noise": noise,
    }
    if float(np.ptp(full)) <= noise:
        return invalid(
            f"the model's {kept.metric} is the same on all {full.size} examples, so that no score can depend on it; "
            "use examples that differ",
            details,
        )
    signed = ConcordanceInference(full, without, (noise, noise), seed=seed)
    test = hsic_test(_rounded(full, noise), _rounded(without, noise), seed=seed)
    details |= {
        "tau": signed.value,
        "hsic": {"statistic": test.statistic, "p": test.p, "permutations": test.permutations},
    }
    hints = []
    if test.p <= 0.05:
        hints.append(f"HSIC refutes independence (permutation p = {test.p:.3g}), whatever the size of τ")
    return lab.estimate(
        "independence",
        circuit,
        inference=AbsoluteInference(signed),
        choices=choices,
        details=details,
        hints=tuple(hints),
    )


def _rounded(scores: np.ndarray, noise: float) -> np.ndarray:
    """Scores whose spread is rounding are one score."""
    return np.full_like(scores, scores.mean()) if float(np.ptp(scores)) <= noise else scores

"""Drift: what a fine-tune changed in behaviour, in what a circuit does, and in which circuit the model has.

A tuned model is compared with the lock of its base (`circuittest.lock`), on the same examples, the same circuit and the
same control sets, so that everything is paired and the base need not be loaded. Each claim has its own margin, which a
person gives: "no drift" is shown by an interval inside the margins (two one-sided tests, Schuirmann 1987), never by a
difference that is not significant. Where the weights are the base's own, the drift is zero and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.circuit import prompt_digest
from circuittest.claims.gates import controls_leave_headroom, majority
from circuittest.errors import SpecError, UsageError
from circuittest.find.ranking import per_example
from circuittest.find.recipe import recipe_of, scoring_of
from circuittest.find.shared import shared
from circuittest.lock import Lock, Locked, scored_digest
from circuittest.stats import Competence, Estimate, Inference, MeanInference, competence
from circuittest.stats.absolute import AbsoluteInference
from circuittest.stats.inference import Op, nothing_needed
from circuittest.stats.resampling import Floats, generator
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

Measure = Literal["accuracy", "log_prob", "logit_diff"]
Side = Literal["both", "worse"]
#: Random cuts of the discovery examples, for what the base's circuit agrees with itself.
CUTS = 200


class SameWeights:
    """A drift of exactly zero: the model is its base. An `Inference`."""

    value = 0.0
    method = "the weights are the base's: nothing was measured"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Zero."""
        return 0.0, 0.0

    def p_value(self, op: Op, threshold: float) -> float:
        """0 where the claim holds of zero, else 1."""
        holds = {
            ">=": threshold <= 0,
            ">": threshold < 0,
            "<=": threshold >= 0,
            "<": threshold > 0,
        }
        return 0.0 if holds[op] else 1.0

    def needed(self, op: Op, threshold: float) -> Mapping[str, Any]:
        """Nothing would change it."""
        return nothing_needed()


@dataclass(frozen=True)
class Rows:
    """One measure with nothing, the universe, and the circuit ablated, and its mean over the control sets; each [n]."""

    nothing: Floats
    universe: Floats
    circuit: Floats
    controls: Floats

    @property
    def beyond(self) -> Floats:
        """[n] damage beyond the controls."""
        return self.controls - self.circuit


@dataclass(frozen=True)
class Pair:
    """A lab and the lock of its base.

    Attributes
    ----------
    lab:
        The tuned model.
    lock, base:
        The file, and what it holds of the circuit.
    """

    lab: Lab
    lock: Lock
    base: Locked
    _rows: dict[str, Rows] = field(default_factory=dict, repr=False)

    @property
    def same(self) -> bool:
        """Is the model its base?"""
        return self.lock.model["fingerprint"] == self.lab.fingerprint

    @cached_property
    def reason(self) -> str:
        """Why nothing can be paired, or ""."""
        if self.base.outcomes is None:
            return f"the lock holds no outcomes of the base: {self.base.missing or 'it was made without'}"
        here = tuple(prompt_digest(item.prompt_ids) for item in self.lab.data.evaluate)
        if here != self.lock.evaluate:
            known = len(set(here) & set(self.lock.evaluate))
            return (
                f"the evaluation examples are not those of the lock ({known} of {len(here)} are in it): drift is "
                "paired, so use the sizes, seed and prefix of the spec"
            )
        if self.lock.scored and self.lock.scored != scored_digest(self.lab.data.evaluate):
            return (
                "the evaluation examples have other answers or foils than in the lock, so that outcomes are no pairs: "
                "use the task's file as it was, or write the lock again on the base model"
            )
        gate = self.competence_of(self.rows_of_base(self.lab.accuracy))
        return f"the base: {gate.reason}" if not gate.passed else ""

    def column(self, measure: Measure) -> str:
        """What outcome tables call a measure."""
        return self.lab.accuracy if measure == "accuracy" else measure

    def rows_of_base(self, column: str) -> Rows:
        """What the lock holds. Raises UsageError where it does not hold the measure."""
        if self.base.outcomes is None:
            raise UsageError("the lock holds no outcomes", self.base.missing)
        return Rows(*self.base.outcomes.rows(column))

    def ends(self, column: str) -> tuple[Floats, Floats]:
        """[n] and [n]: the tuned model with nothing and with the universe ablated."""
        table = self.lab.outcomes([(), self.universe]).measure(column)
        return table[0], table[1]

    def rows(self, column: str) -> Rows:
        """The same rows of the tuned model, measured by the same calls."""
        if column not in self._rows:
            rows, _ = measured_rows(self.lab, self.universe, self.base.circuit.units, self.controls, column)
            self._rows[column] = Rows(*rows)
        return self._rows[column]

    @cached_property
    def universe(self) -> tuple[Unit, ...]:
        """What the controls were drawn from."""
        return () if self.base.outcomes is None else tuple(map(Unit.parse, self.base.outcomes.universe))

    @cached_property
    def controls(self) -> tuple[tuple[Unit, ...], ...]:
        """The control sets."""
        sets = () if self.base.outcomes is None else self.base.outcomes.controls
        return tuple(tuple(map(Unit.parse, one)) for one in sets)

    def competence_of(self, rows: Rows) -> Competence:
        """The competence gate on outcomes of these examples."""
        return competence(
            rows.nothing,
            chance=self.lab.data.chance,
            majority=majority(self.lab),
            ablated=rows.universe,
            headroom=self.lab.headroom,
        )

    def choices(self) -> dict[str, Any]:
        """For the record."""
        return {
            "baseline": self.lock.digest[:16],
            "base": {key: self.lock.model[key] for key in ("name", "fingerprint")},
        }


def measured_rows(
    lab: Lab,
    universe: Sequence[Unit],
    circuit: Sequence[Unit],
    controls: Sequence[Sequence[Unit]],
    column: str,
) -> tuple[Floats, Floats]:
    """[4 × n] rows of `Rows`, and [R × n] of the controls.

    Locks are made and compared by the same calls, so that equal models give equal bits.
    """
    ends = lab.outcomes([(), universe]).measure(column)
    ablated = lab.outcomes([circuit]).measure(column)
    table = lab.outcomes(controls).measure(column)
    return np.vstack((ends, ablated, table.mean(0))), table


def pair(lab: Lab, circuit: Circuit | None, baseline: str) -> Pair:
    """The lab beside the lock of its base.

    Raises
    ------
    UsageError
        There is no lock, or it does not hold the circuit.
    """
    if baseline == "lock":
        raise UsageError(
            "no lock is given",
            "only a spec has one beside it",
            "give the path of a .circuit.lock as baseline",
        )
    try:
        lock = Lock.load(baseline)
    except SpecError as error:
        raise UsageError(error.what, error.why, error.do) from error
    if lab.layout != lock.layout:
        raise UsageError("the lock is of another architecture", f"{lock.layout.describe()}", "give another")
    if circuit is None:
        every = [one for one in lock.circuits.values() if one.outcomes is not None] or list(
            lock.circuits.values()
        )
        if not every:
            raise UsageError("the lock holds no circuit", "the spec gives none", "add 'circuit' to the spec")
        return Pair(lab, lock, every[0])
    found = lock.of(circuit)
    if found is None:
        raise UsageError(
            f"the lock does not hold the circuit {circuit.name}",
            "what the base does with it is not known",
            "write the lock again on the base model with --circuit-update=all, or claim drift of the locked circuit",
        )
    return Pair(lab, lock, found)


def drift_behaviour(
    lab: Lab,
    *,
    baseline: str = "lock",
    margin: float,
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
    both = pair(lab, None, baseline)
    choices = {**both.choices(), "margin": margin, "metric": metric, "side": side, "seed": seed}
    if reason := both.reason:
        return lab.estimate("drift.behaviour", None, choices=choices, invalid=reason)
    column = both.column(metric)
    before = both.rows_of_base(column).nothing
    after = before if both.same else both.ends(column)[0]
    bounds = (-1.0, 1.0) if metric == "accuracy" else None
    details = {"m_base": float(before.mean()), "m_tuned": float(after.mean())}
    return _drift(both, "drift.behaviour", None, after - before, bounds, side, seed, choices, details)


def drift_function(
    lab: Lab,
    circuit: Circuit,
    *,
    baseline: str = "lock",
    margin: float,
    metric: Measure = "accuracy",
    side: Side = "both",
    seed: int = 0,
) -> Estimate:
    """How far the damage that a circuit's ablation does is from what it did in the base.

    Estimand: |D(tuned) - D(base)|, D the damage beyond controls, mean over the lock's control sets C of m(C) - m(S), on
    the same examples, circuit and control sets; conditional on those sets. It is the numerator of `necessity`, in
    points of accuracy (nats, logits), not divided by the base accuracy, which the fine-tune may change. With
    ``side="worse"`` only a fall counts. Without another threshold a spec claims ``max`` = `margin`.

    Parameters
    ----------
    baseline, metric, seed:
        As for `drift.behaviour`.
    margin:
        The largest drift of no interest.

    Invalid as `drift.behaviour`, and when the controls left the base too little to lose.
    """
    both = pair(lab, circuit, baseline)
    choices = {**both.choices(), "margin": margin, "metric": metric, "side": side, "seed": seed}
    if reason := both.reason or controls_reason(both):
        return lab.estimate("drift.function", circuit, choices=choices, invalid=reason)
    column = both.column(metric)
    before = both.rows_of_base(column)
    after = before if both.same else both.rows(column)
    bounds = (-2.0, 2.0) if metric == "accuracy" else None
    details = {
        "beyond_base": float(before.beyond.mean()),
        "beyond_tuned": float(after.beyond.mean()),
        "m_base": [float(row.mean()) for row in (before.nothing, before.circuit, before.controls)],
        "m_tuned": [float(row.mean()) for row in (after.nothing, after.circuit, after.controls)],
        "controls": [[str(unit) for unit in units] for units in both.controls],
    }
    values = after.beyond - before.beyond
    return _drift(both, "drift.function", circuit, values, bounds, side, seed, choices, details)


def drift_structure(
    lab: Lab, circuit: Circuit, *, baseline: str = "lock", margin: float, seed: int = 0
) -> Estimate:
    """How much of each example's own circuit a fine-tune replaced.

    Estimand: mean over discovery examples of 1 - |C_i(tuned) ∩ C_i(base)| / K, C_i the K highest-scoring members on
    example i. The examples are the same, so that no noise of re-discovery on other data is in it, and equal weights
    give 0. Without another threshold a spec claims ``max`` = `margin`.

    Beside it, in ``details``: Jaccard index of the locked circuit and the one found again; rank correlation of mean
    absolute scores; what independent circuits would give (``replaced_by_chance``); and over random halves A, B of the
    examples the mean Jaccard index of the base's circuits of A and B (``floor``) beside that of the base's of A and the
    tuned's of B (``across``).

    Invalid when the circuit was not found by `Lab.shared`, when the discovery examples are not those of the lock, and
    when the lock holds no ranking of so many members. Units are compared by position: for a model from another training
    run the value means nothing.
    """
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
    if reason := other_metric(lab, both.base.circuit):
        return invalid(reason)
    choices |= recipe
    table = lab.scores(**scoring_of(recipe))
    if tuple(map(str, table.members)) != ranking.members:
        return invalid("the lock ranks other members than the model has in this universe")
    found = per_example(table, recipe["top"])
    replaced = 1.0 - (found.inside & ranking.inside).sum(1) / found.k
    masks = [shared(inside, recipe["at"]) for inside in (ranking.inside, found.inside)]
    size = np.abs(table.values).mean(0, dtype=np.float64)
    details = {
        "rediscovered": [str(m) for m, keep in zip(table.members, masks[1], strict=True) if keep],
        "jaccard": _jaccard(*masks),
        "replaced_by_chance": 1.0 - found.k / len(table.members),
        "rank_correlation": _spearman(ranking.mean, size),
        "k": found.k,
        **halves(ranking.inside, found.inside, recipe["at"], seed),
    }
    inference: Inference = (
        SameWeights() if both.same else MeanInference(replaced, bounds=(0.0, 1.0), seed=seed)
    )
    return lab.estimate(
        "drift.structure",
        circuit,
        inference=inference,
        n_examples=len(here),
        choices=choices,
        details=details,
    )


def controls_reason(both: Pair) -> str:
    """The base's controls left something to lose, or why not."""
    rows = both.rows_of_base(both.lab.accuracy)
    gate = both.competence_of(rows)
    reason = controls_leave_headroom(gate, float(rows.controls.mean()), len(both.base.circuit.units))
    return f"the base: {reason}" if reason else ""


def other_metric(lab: Lab, circuit: Circuit) -> str:
    """Why the scores behind a locked circuit are no pair of this lab's, or ""."""
    found = circuit.origin.get("metric")
    if found in (None, lab.metric):
        return ""
    return (
        f"the base's scores are derivatives of {found}, and this lab's would be of {lab.metric}: what changed with the "
        f"metric would pass for drift; use metric={found!r}"
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
    signed: Inference = SameWeights()
    if not both.same:
        signed = MeanInference(values if side == "both" else -values, bounds=bounds, seed=seed)
    return both.lab.estimate(
        claim,
        circuit,
        inference=AbsoluteInference(signed) if side == "both" else signed,
        choices=choices,
        details={**details, "signed": float(values.mean())},
    )


def _jaccard(a: Any, b: Any) -> float | None:
    """None for two empty sets."""
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else None


def _spearman(a: Floats, b: Floats) -> float | None:
    """None where all scores are equal."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])

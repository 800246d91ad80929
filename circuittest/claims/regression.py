"""Regression: did a fine-tune keep, move, spread, weaken or break what the base's circuit does?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from circuittest.circuit import prompt_digest
from circuittest.claims import labels, within
from circuittest.claims.drift import CUTS
from circuittest.claims.gates import disjoint, majority
from circuittest.claims.locked_rows import Rows
from circuittest.claims.necessity import necessity
from circuittest.claims.pairing import (
    Pair,
    SameWeights,
    controls_reason,
    other_metric,
    pair,
)
from circuittest.claims.ranges import Count
from circuittest.errors import UsageError
from circuittest.find.ranking import per_example
from circuittest.find.recipe import recipe_of, scoring_of
from circuittest.find.shared import shared
from circuittest.stats import Estimate, Inference, MeanInference, PairedDifferenceInference
from circuittest.stats.labels import Label, established
from circuittest.stats.resampling import generator

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

#: One-sided level of every part of an outcome.
LEVEL = 0.025
NAMES = ("broken", "weakened", "kept", "moved", "spread")
#: The largest change of no interest, a difference of accuracies.
Margin = Annotated[float, Field(gt=0, lt=1)]


@labels(*NAMES)
@within((-1.0, 1.0))
def regression(
    lab: Lab,
    circuit: Circuit,
    *,
    baseline: str = "lock",
    margin: Margin,
    controls: Count = 40,
    seed: int = 0,
) -> Estimate:
    """What a fine-tune did to the base's circuit: kept, moved, spread, weakened or broken.

    The number is the change of accuracy, tuned minus base, on the same examples. An outcome needs all of its tests,
    each at the one-sided level 0.025; where none is established it is undecided, which counts as an alarm:

    - **broken**: accuracy fell by more than the margin, and is not far enough above its floor any more to be judged
      (`headroom`); this comes before, and in place of, an invalid claim;
    - **weakened**: accuracy fell by more than the margin, and the model is still competent;
    - **kept**: accuracy and the damage of ablating the circuit beyond controls are both equivalent to the base's,
      within ± the margin; with the note "reordered" where the circuit that the same recipe finds now is less like the
      old one than the base's circuits of random halves of the discovery examples are like each other;
    - **moved**: accuracy is equivalent, the damage fell by more than the margin, and the circuit that the same recipe
      finds in the tuned model is necessary there (above the margin) and less like the old one than the base's circuits
      of random halves of the discovery examples are like each other;
    - **spread**: accuracy is equivalent, and neither the old nor the new circuit is necessary (both below the margin).

    Parameters
    ----------
    baseline:
        As for `drift.behaviour`.
    margin:
        The largest change of no interest, in points of accuracy.
    controls, seed:
        Of `necessity` in the tuned model; `seed` also of the resampling.

    Invalid as `drift.function`, and when the circuit was not necessary in the base, beyond the margin: then there is
    nothing to follow. Behaviour that was lost is never invalid, not even where the weights have nothing in common
    with the base's. Where heads are the base's own in another order, it is kept, with the note "permuted".
    """
    if not 0 < margin < 1:
        raise UsageError(
            f"margin is {margin!r}", "it is a change of accuracy between 0 and 1", "use 0.1, or another"
        )
    both = pair(lab, circuit, baseline)
    choices = {
        **both.choices(),
        "margin": margin,
        "controls": controls,
        "seed": seed,
        "accuracy": lab.accuracy,
    }

    def invalid(reason: str, details: Mapping[str, Any] | None = None) -> Estimate:
        open_ = {name: Label("undecided", reason) for name in NAMES}
        return lab.estimate(
            "regression", circuit, choices=choices, details=details, invalid=reason, labels=open_
        )

    if reason := both.reason or disjoint(lab, circuit) or controls_reason(both):
        return invalid(reason)
    before = both.rows_of_base(lab.accuracy)
    in_base = MeanInference(before.beyond, bounds=(-1.0, 1.0), seed=seed)
    if in_base.p_value(">", margin) > LEVEL:
        low, high = in_base.interval()
        return invalid(
            f"the circuit was not necessary in the base beyond the margin: {in_base.value:.2f} [{low:.2f}, {high:.2f}] "
            f"points of accuracy beyond controls, margin {margin:g}; there is nothing to follow"
        )
    after = before if both.same else both.rows(lab.accuracy)
    behaviour: Inference = SameWeights(both.moved)
    function: Inference = SameWeights(both.moved)
    if not both.same:
        behaviour = MeanInference(after.nothing - before.nothing, bounds=(-1.0, 1.0), seed=seed)
        function = MeanInference(after.beyond - before.beyond, bounds=(-2.0, 2.0), seed=seed)
    p = {
        "fell": behaviour.p_value("<", -margin),
        "rose": behaviour.p_value(">", margin),
        "same": max(behaviour.p_value(">", -margin), behaviour.p_value("<", margin)),
        "function_same": max(function.p_value(">", -margin), function.p_value("<", margin)),
        "function_fell": function.p_value("<", -margin),
        "function_rose": function.p_value(">", margin),
        **_competence(lab, after, seed),
    }
    details: dict[str, Any] = {
        "acc_base": float(before.nothing.mean()),
        "acc_tuned": float(after.nothing.mean()),
        "beyond_base": float(before.beyond.mean()),
        "beyond_tuned": float(after.beyond.mean()),
        "behaviour": behaviour.value,
        "function": function.value,
    }
    elsewhere, notes = Elsewhere(), []
    if both.moved:
        notes.append("permuted")
    # the search for another circuit is the dear part, and of use only where behaviour was kept and the circuit is one
    if p["same"] <= LEVEL and p["function_same"] > LEVEL and not both.stranger:
        elsewhere = _elsewhere(both, circuit, margin, controls, seed)
        details |= elsewhere.details
    elif p["same"] <= LEVEL and not both.same and not both.stranger:
        new = _rediscovered(both)
        if isinstance(new, Found):
            differs, details["jaccard"] = _differs(new.before, new.now, new.at, seed)
            notes += ["reordered"] if differs <= LEVEL else []
    details |= {"p": {**p, **elsewhere.p}, "notes": notes, **both.relation()}
    labels = judge(p, elsewhere, margin)
    if both.stranger and established(labels) not in ("broken", "weakened"):
        return invalid(both.stranger, details)
    if "reordered" in notes and labels["kept"].outcome == "supported":
        why = "reordered: the circuit found now is another one than noise of re-discovery would make it"
        labels["kept"] = replace(labels["kept"], reason=f"{labels['kept'].reason}; {why}")
    return lab.estimate(
        "regression",
        circuit,
        inference=behaviour,
        n_controls=len(both.controls),
        choices=choices,
        details=details,
        labels=labels,
        hints=both.hints(circuit),
    )


@dataclass(frozen=True)
class Elsewhere:
    """Whether another circuit does the work in the tuned model.

    Attributes
    ----------
    p:
        ``new_necessary``, ``new_differs``, ``old_idle``, ``new_idle``: of the tests that establish these; 1 where there
        is nothing to test.
    reason:
        Why there is nothing to test, or "".
    details:
        For the record.
    """

    p: Mapping[str, float]
    reason: str
    details: Mapping[str, Any]

    def __init__(
        self, p: Mapping[str, float] | None = None, reason: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        none = dict.fromkeys(("new_necessary", "new_differs", "old_idle", "new_idle"), 1.0)
        object.__setattr__(self, "p", {**none, **(p or {})})
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "details", details or {})


def judge(p: Mapping[str, float], elsewhere: Elsewhere, margin: float) -> dict[str, Label]:
    """The outcome of every name, from the p-values of its parts."""
    parts: dict[str, dict[str, float]] = {
        "broken": {f"accuracy fell by more than {margin:g}": p["fell"], "not competent": p["incompetent"]},
        "weakened": {f"accuracy fell by more than {margin:g}": p["fell"], "competent": p["competent"]},
        "kept": {
            f"accuracy within ±{margin:g}": p["same"],
            f"function within ±{margin:g}": p["function_same"],
        },
        "moved": {
            f"accuracy within ±{margin:g}": p["same"],
            f"function fell by more than {margin:g}": p["function_fell"],
            "the new circuit is necessary": elsewhere.p["new_necessary"],
            "and another one": elsewhere.p["new_differs"],
        },
        "spread": {
            f"accuracy within ±{margin:g}": p["same"],
            "the old circuit is not necessary": elsewhere.p["old_idle"],
            "nor the new one": elsewhere.p["new_idle"],
        },
    }
    whole = {name: max(tests.values()) for name, tests in parts.items()}
    named = next((name for name in NAMES if whole[name] <= LEVEL), None)
    # what was established excludes other names, even where no name is established
    excluded: dict[str, str] = {}
    for test, names, words in (
        ("fell", ("kept", "moved", "spread"), "accuracy fell"),
        ("rose", NAMES, "accuracy rose"),
        ("same", ("broken", "weakened"), "accuracy is equivalent to the base's"),
        ("function_fell", ("kept",), "the damage of ablating the circuit fell"),
        ("function_rose", ("kept", "moved"), "the damage of ablating the circuit rose"),
    ):
        if p[test] <= LEVEL:
            excluded |= dict.fromkeys(names, f"{words} (p = {p[test]:.2g}, margin {margin:g})")
    found = {}
    for name in NAMES:
        why = ", ".join(f"{words}: p = {value:.2g}" for words, value in parts[name].items())
        why += f" (each must be at most {LEVEL})"
        if name in ("moved", "spread") and elsewhere.reason:
            why += f"; {elsewhere.reason}"
        if name == named:
            found[name] = Label("supported", why, whole[name])
        elif named is not None:
            found[name] = Label(
                "refuted", f"it is {named}: {_why(parts[named])}", max(whole[name], 2 * LEVEL)
            )
        elif name in excluded:
            found[name] = Label("refuted", excluded[name], whole[name])
        else:
            found[name] = Label("undecided", why, whole[name])
    return found


def _why(tests: Mapping[str, float]) -> str:
    return ", ".join(f"{words}: p = {value:.2g}" for words, value in tests.items())


def _competence(lab: Lab, rows: Rows, seed: int) -> dict[str, float]:
    """p of "far enough above every floor", and of "not so above some floor", corrected for their number."""
    against: list[Inference] = []
    levels = []
    for floor in (lab.data.chance, majority(lab), rows.universe):
        if isinstance(floor, float | int):
            against.append(MeanInference(rows.nothing, bounds=(0.0, 1.0), seed=seed))
            levels.append(float(floor) + lab.headroom)
        else:
            against.append(PairedDifferenceInference(rows.nothing, floor, seed=seed))
            levels.append(lab.headroom)
    above = [one.p_value(">=", level) for one, level in zip(against, levels, strict=True)]
    below = [one.p_value("<", level) for one, level in zip(against, levels, strict=True)]
    return {"competent": max(above), "incompetent": min(1.0, len(below) * min(below))}


@dataclass(frozen=True)
class Found:
    """What the lock's recipe finds in the tuned model on the same discovery examples.

    Attributes
    ----------
    circuit:
        The circuit.
    before:
        bool [examples × members]: the base's top K % of each example.
    now:
        bool [members]: the circuit as a mask.
    at:
        P of the recipe.
    """

    circuit: Circuit
    before: Any
    now: Any
    at: Any


def _rediscovered(both: Pair) -> Found | str:
    """The circuit found again, or why none can be."""
    lab, ranking, recipe = both.lab, both.base.ranking, recipe_of(both.base.circuit.origin)
    if recipe is None or ranking is None:
        return "the circuit was given by its members, so that no other can be found likewise"
    if tuple(prompt_digest(item.prompt_ids) for item in lab.data.discover) != both.lock.discover:
        return "the discovery examples are not those of the lock"
    if reason := other_metric(lab, both.base.circuit):
        return reason
    table = lab.scores(**scoring_of(recipe))
    now = shared(per_example(table, recipe["top"]).inside, recipe["at"])
    return Found(lab.shared(**recipe), ranking.inside, now, recipe["at"])


def _elsewhere(both: Pair, circuit: Circuit, margin: float, controls: int, seed: int) -> Elsewhere:
    """Find the tuned model's own circuit on the discovery examples, and judge both on the evaluation examples."""
    lab, found = both.lab, _rediscovered(both)
    if not isinstance(found, Found):
        return Elsewhere(reason=found)
    new = found.circuit
    p: dict[str, float] = {}
    details: dict[str, Any] = {"rediscovered": [str(unit) for unit in new.units]}
    for name, one in (("old", circuit), ("new", new)):
        if not one.units:  # what does not exist is not necessary
            p |= {"new_necessary": 1.0, "new_idle": 0.0}
            details["new"] = None
            continue
        measured = necessity(lab, one, controls=controls, seed=seed)
        if measured.invalid or measured.inference is None:
            details[name] = None
            return Elsewhere(
                p, f"the {name} circuit cannot be judged in this model: {measured.invalid}", details
            )
        # a value at the floor is a lower bound: it may show that a circuit is necessary, never that it is not
        p[f"{name}_idle"] = 1.0 if measured.censored else measured.inference.p_value("<", margin)
        if name == "new":
            p["new_necessary"] = measured.inference.p_value(">", margin)
        details[name] = {"necessity": measured.value, "interval": measured.interval}
    p["new_differs"], details["jaccard"] = _differs(found.before, found.now, found.at, seed)
    return Elsewhere(p, "", details)


def _differs(base: Any, found: Any, at: Any, seed: int) -> tuple[float, float | None]:
    """The rank of the overlap of old and new circuit among the overlaps of the base's circuits of random halves.

    Halves are noisier than the whole, so that the comparison is on the safe side. The overlap of empty sets is 1.
    """

    def overlap(a: Any, b: Any) -> float:
        union = int((a | b).sum())
        return int((a & b).sum()) / union if union else 1.0

    own = overlap(shared(base, at), found)
    rng, count = generator(seed), base.shape[0]
    if count < 4:
        return 1.0, own
    lower = 0
    for _ in range(CUTS):
        order = rng.permutation(count)
        lower += overlap(shared(base[order[::2]], at), shared(base[order[1::2]], at)) <= own
    return float(np.float64(1 + lower) / (1 + CUTS)), own

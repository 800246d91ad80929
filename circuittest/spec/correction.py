"""Holm's correction over the claims that one spec file declares.

``correction: holm`` in a spec asks that all verdicts of the file together are false as rarely as a single one: the
probability that any claim is supported wrongly is at most 0.025, and so is that of any being refuted wrongly. The
p-values of all declared claims in the claimed direction are adjusted by Holm's step-down procedure (1979), and those in
the other direction likewise; a claim is supported, or refuted, when its adjusted p-value is at most 0.025. Holm's
procedure needs nothing of how the claims depend on each other, which they do: they share examples and circuits.

The family is what the file says, on one model: claims that turn out invalid count, since declaring them was a chance to
pass. So every claim of the file is measured to judge any of them, and a claim has the same verdict whether it is run
alone, with the others, or on another worker; labs remember tables, so that this costs little more than judging each.
Measuring stops early at Bonferroni's level, 0.05/m, which no step can undo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from circuittest.circuit import Circuit
from circuittest.errors import CircuittestError
from circuittest.spec.schema import ClaimSpec, Spec
from circuittest.stats import Verdict, holm
from circuittest.stats.inference import Op

#: Two-sided confidence of every verdict.
CONFIDENCE = 0.95

#: p-values of a claim in the claimed direction and in the other; None where it is invalid.
Sides = tuple[float | None, float | None]

_OTHER: Mapping[str, Op] = {">=": "<", ">": "<=", "<=": ">", "<": ">="}
_known: WeakKeyDictionary[Any, dict[tuple[Any, ...], Sides]] = WeakKeyDictionary()


def bonferroni(spec: Spec) -> float:
    """The confidence at which measuring may stop early: what decides there is decided whatever the other claims do."""
    return 1.0 - (1.0 - CONFIDENCE) / len(spec.claims)


def corrected(
    spec: Spec, claim: ClaimSpec, lab: Any, verdict: Verdict, measure: Callable[[ClaimSpec], Any]
) -> Verdict:
    """The verdict on a claim with all claims of its file taken into account.

    Parameters
    ----------
    verdict:
        Of this claim by itself.
    measure:
        Judges another claim of the file by itself; called once for each claim and lab.
    """
    known = _known.setdefault(lab, {})
    known[_key(spec, claim)] = _sides(verdict)
    for other in spec.claims:
        key = _key(spec, other)
        if key not in known:
            try:
                found = measure(other)
            except CircuittestError:  # the item of that claim reports it
                found = None
            known[key] = _sides(found)
    sides = [known[_key(spec, other)] for other in spec.claims]
    place = [other.id for other in spec.claims].index(claim.id)
    adjusted = [holm([pair[side] for pair in sides])[place] for side in (0, 1)]
    return _judged(verdict, sides[place], adjusted, len(sides))


def _key(spec: Spec, claim: ClaimSpec) -> tuple[Any, ...]:
    """What the p-values of a claim follow from, but the lab: a file that was changed is another one."""
    about = spec.circuit if claim.of is None else spec.groups[claim.of]
    members = [str(one) for one in about] if isinstance(about, Circuit) else about
    lock = spec.lock.digest if spec.lock else ""
    return str(spec.path), repr(claim), repr(members), spec.rediscover, lock, len(spec.claims)


def _sides(verdict: Any) -> Sides:
    """The two p-values of a verdict; None for one that is invalid, for no verdict and for a claim with its own rule."""
    if not isinstance(verdict, Verdict) or verdict.outcome == "invalid":
        return None, None
    if isinstance(verdict.threshold, str):  # a named outcome is refuted by another one that excludes it
        labels = verdict.estimate.labels
        other = [label.p_value for label in labels.values() if label.outcome == "supported"]
        return verdict.p_value, other[0] if verdict.outcome == "refuted" and other else 1.0
    against = verdict.estimate.compare(_OTHER[verdict.op], verdict.threshold)
    return verdict.p_value, against.p_value


def _judged(verdict: Verdict, raw: Sides, adjusted: list[float | None], count: int) -> Verdict:
    details = {
        "method": "holm",
        "claims": count,
        "p": raw[0],
        "p_adjusted": adjusted[0],
        "p_other": raw[1],
        "p_other_adjusted": adjusted[1],
    }
    estimate = replace(
        verdict.estimate, confidence=CONFIDENCE, details={**verdict.estimate.details, "correction": details}
    )
    p, opposite = adjusted
    if verdict.outcome in ("invalid", "undecided") and p is None:
        return replace(verdict, estimate=estimate)
    if p is None:
        reason = (
            "it has no p-value that Holm's correction could count; judge it in a spec without 'correction'"
        )
        return replace(verdict, estimate=estimate, outcome="undecided", reason=reason)
    over = f"after Holm's correction over the {count} claims of the file"
    tail = (1.0 - CONFIDENCE) / 2.0 + 1e-12
    if p <= tail:
        return replace(
            verdict, estimate=estimate, outcome="supported", reason=f"p = {p:.2g} {over}", p_value=p
        )
    if opposite is not None and opposite <= tail:
        reason = f"the opposite has p = {opposite:.2g} {over}"
        return replace(verdict, estimate=estimate, outcome="refuted", reason=reason, p_value=p)
    shown = "none" if opposite is None else f"{opposite:.2g}"
    reason = f"p = {p:.2g} {over}, and {shown} for the opposite, where 0.025 decides"
    if verdict.outcome == "undecided" and verdict.reason:
        reason += f"; by itself: {verdict.reason}"
    return replace(verdict, estimate=estimate, outcome="undecided", reason=reason, p_value=p)

"""Verdicts: what a comparison of an estimate with a threshold amounts to.

The rule, for "theta >= t" and the two-sided interval [low, high]: supported iff low >= t, refuted iff
high < t, undecided otherwise. For ">" the ties go the other way (supported iff low > t, refuted iff
high <= t), and "<=" and "<" mirror the two. Invalid whenever the estimate is.

Claims with named outcomes are also judged by name ("closure is load-bearing"); see `circuittest.stats.labels`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from circuittest.digits import decimals
from circuittest.errors import CircuittestError
from circuittest.stats.inference import Op, nothing_needed
from circuittest.stats.listening import announce_judged

if TYPE_CHECKING:
    from circuittest.stats.estimate import Estimate

Outcome = Literal["supported", "refuted", "undecided", "invalid"]


class Undecided(CircuittestError):
    """The data neither support nor refute the claim. Not an AssertionError: nothing was shown to be false."""

    verdict: Verdict | None = None


class InvalidClaim(CircuittestError):
    """The claim cannot be judged: one of its gates failed."""

    verdict: Verdict | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """The outcome of "estimate `op` threshold", or of "estimate is NAME" (then `op` is "is", `threshold` the name).

    Its truth is True when supported and False when refuted; taking it raises `Undecided` or
    `InvalidClaim` otherwise, so that neither `assert v` nor `assert not v` passes on an open question.

    Attributes
    ----------
    reason:
        Why, in words; for an undecided verdict also what would decide it.
    p_value:
        One-sided p-value of the claim's negation (for ">=": of theta < t). Since the interval is the same
        test turned round, p <= (1 - confidence)/2 iff supported. None when invalid or without interval.
    needed:
        For undecided verdicts: {"n": examples or None, "controls": sets or None, "text": ...}, else None.
    """

    estimate: Estimate
    op: Op | Literal["is"]
    threshold: float | str
    outcome: Outcome
    reason: str = ""
    p_value: float | None = None
    needed: Mapping[str, Any] | None = field(default=None)

    def __bool__(self) -> bool:
        announce_judged(self)
        if self.outcome in ("supported", "refuted"):
            return self.outcome == "supported"
        kind = Undecided if self.outcome == "undecided" else InvalidClaim
        error = kind(self.headline(), self.reason, "; ".join(self.estimate.hints))
        error.verdict = self
        raise error

    def __eq__(self, other: object) -> bool:
        # `assert verdict == True` asks for the truth as much as `assert verdict` does
        if isinstance(other, bool):
            return bool(self) is other
        return self is other

    __hash__ = object.__hash__

    @cached_property
    def driven(self) -> Mapping[str, Any]:
        """What speaks most against a claim that is refuted or undecided (`Estimate.driving`); else nothing.

        The first look may run the model on a few examples.
        """
        estimate = self.estimate
        if self.outcome not in ("refuted", "undecided") or estimate.driving is None or estimate.undecided:
            return {}
        return estimate.driving(self.op, self.threshold)

    def would_change(self) -> str:
        """What would make a refuted or undecided verdict on a number another one; "" where nothing can be said."""
        if self.outcome == "undecided" and self.needed is not None:
            return str(self.needed["text"])
        interval = self.estimate.interval
        if self.outcome != "refuted" or isinstance(self.threshold, str) or interval is None:
            return ""
        upward = self.op in (">=", ">")
        end, side = (interval[0], "most") if upward else (interval[1], "least")
        if not math.isfinite(end) or (self.estimate.censored == "upper" and upward):
            return "another circuit or another model; more examples narrow the interval around the same value"
        return (
            f"another circuit or another model; these examples support a threshold of at {side} "
            f"{number(end, self.threshold)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As `Estimate.to_dict`, and what was asked and what came of it."""
        told = {"op": self.op, "threshold": self.threshold, "outcome": self.outcome}
        return {**self.estimate.to_dict(), **told, "p_value": self.p_value, "reason": self.reason}

    def claimed(self) -> str:
        """The claim in a few words: "necessity >= 0.3", "closure is load-bearing"."""
        return f"{self.estimate.claim} {self.op} {self._asked()}"

    def headline(self) -> str:
        """The claim and its outcome: "necessity >= 0.3 is refuted", "closure is load-bearing: refuted"."""
        return f"{self.claimed()}{':' if self.op == 'is' else ' is'} {self.outcome}"

    def _asked(self) -> str:
        return self.threshold if isinstance(self.threshold, str) else f"{self.threshold:g}"

    def _measured(self) -> str:
        return self.estimate.measured(None if isinstance(self.threshold, str) else self.threshold)

    def _chosen(self, known: Mapping[str, Any], where: str) -> str:
        """The choices in a line, without the interval's method, which has a line of its own."""
        shown = {"interval"} if self.outcome != "invalid" and self.estimate.inference is not None else set()
        choices = {key: value for key, value in self.estimate.choices.items() if key not in shown}
        own = {key: value for key, value in choices.items() if key not in known or known[key] != value}
        more = len(choices) - len(own)
        return "; ".join(part for part in (_pairs(own), f"{more} more as {where}" if more else "") if part)

    def _against(self) -> str:
        """What the p-value speaks against."""
        if self.op == "is":
            return f"{self.estimate.claim} is not {self._asked()}"
        return f"{self.estimate.claim} {_NEGATION[self.op]} {self._asked()}"

    def __repr__(self) -> str:
        where = ", ".join(part for part in (self.estimate.model, self.estimate.task) if part)
        lines = [self.headline() + (f" ({where})" if where else "")]
        if self.outcome != "invalid":
            lines.append(f"measured {self._measured()}")
        if self.reason:
            lines.append(self.reason)
        return "\n".join(lines)

    def explain(self, *, known: Mapping[str, Any] | None = None, where: str = "") -> str:
        """Everything there is to say: measurement, threshold, sample, units, details, hints, command.

        Choices that `known` holds with the same value were told at `where`: they are counted and not told again.
        """
        estimate = self.estimate
        rows: list[tuple[str, str]] = []
        if self.outcome != "invalid":
            rows.append(("measured", self._measured()))
            if estimate.inference is not None:
                rows.append(("interval", f"{100 * estimate.confidence:g} %, {estimate.inference.method}"))
        rows.append(("threshold", f"{self.op} {self._asked()}"))
        if self.p_value is not None:
            rows.append(("p-value", f"{self.p_value:.2g} against {self._against()}"))
        rows.append(("examples", str(estimate.n_examples)))
        if estimate.n_controls is not None:
            rows.append(("controls", str(estimate.n_controls)))
        if estimate.circuit is not None:
            rows.append(("circuit", _describe_circuit(estimate.circuit)))
        driven = self.driven
        rows += [(title, str(driven[title])) for title in ("control", "units") if driven.get(title)]
        rows += [("against it", text) for text in map(_shown, _listed(driven))]
        for name, label in estimate.labels.items():
            rows.append(
                ("outcome", f"{name} {label.outcome}" + (f": {label.reason}" if label.reason else ""))
            )
        if estimate.details:
            rows.append(("details", _pairs(estimate.details)))
        rows += [("choices", text) for text in [self._chosen(known or {}, where)] if text]
        if self.reason:
            rows.append(("reason", self.reason))
        if self.outcome == "refuted" and (change := self.would_change()):
            rows.append(("changed by", change))
        rows.extend(("what to do", hint) for hint in estimate.hints)
        if estimate.reproduce:
            rows.append(("reproduce", estimate.reproduce))
        where = ", ".join(part for part in (estimate.model, estimate.task) if part)
        head = self.headline() + (f" ({where})" if where else "")
        inner = "\n" + " " * 13
        return "\n".join([head, *(f"  {title:<11}{text.replace(chr(10), inner)}" for title, text in rows)])


_NEGATION: Mapping[Op, str] = {">=": "<", ">": "<=", "<=": ">", "<": ">="}


def decide(interval: tuple[float, float], op: Op, threshold: float) -> Outcome:
    """The rule of this module for an interval that may have infinite ends."""
    low, high = interval
    if op in ("<=", "<"):
        low, high, threshold = -high, -low, -threshold
    if op in (">=", "<="):
        return "supported" if low >= threshold else "refuted" if high < threshold else "undecided"
    return "supported" if low > threshold else "refuted" if high <= threshold else "undecided"


def judge(estimate: Estimate, op: Op, threshold: float) -> Verdict:
    """The verdict on an estimate; `threshold` is finite (checked by `Estimate.compare`)."""
    if estimate.invalid:
        return Verdict(estimate, op, threshold, "invalid", estimate.invalid)
    if estimate.undecided:
        return Verdict(estimate, op, threshold, "undecided", estimate.undecided)
    interval, inference = estimate.interval, estimate.inference
    if interval is None or inference is None:
        return Verdict(estimate, op, threshold, "undecided", "no interval was computed for this estimate")
    if math.isnan(interval[0]) or math.isnan(interval[1]):
        return Verdict(estimate, op, threshold, "invalid", "the interval is not a number")

    low, high = interval
    p_value = float(inference.p_value(op, threshold))
    if estimate.censored == "lower":
        high = math.inf
        p_value = 1.0 if op in ("<=", "<") else p_value
    elif estimate.censored == "upper":
        low = -math.inf
        p_value = 1.0 if op in (">=", ">") else p_value
    outcome = decide((low, high), op, threshold)
    span = f"[{number(interval[0], threshold)}, {number(interval[1], threshold)}]"
    if outcome != "undecided":
        side = "on the claimed side of" if outcome == "supported" else "on the other side of"
        return Verdict(
            estimate, op, threshold, outcome, f"the interval {span} is {side} {threshold:g}", p_value
        )
    if decide(interval, op, threshold) != "undecided":
        word = "at least" if estimate.censored == "lower" else "at most"
        reason = (
            f"the true value is {word} the one measured (a limit was reached), "
            f"which does not decide {op} {threshold:g}"
        )
        return Verdict(estimate, op, threshold, outcome, reason, p_value)
    needed = _needed(estimate, op, threshold)
    reason = f"the interval {span} contains {threshold:g}; what would decide it: {needed['text']}"
    return Verdict(estimate, op, threshold, outcome, reason, p_value, needed)


def judge_label(estimate: Estimate, name: str) -> Verdict:
    """The verdict on "estimate is `name`"; the name is one of the claim's (checked by `Estimate.labelled`)."""
    if estimate.invalid:
        return Verdict(estimate, "is", name, "invalid", estimate.invalid)
    if estimate.undecided:
        return Verdict(estimate, "is", name, "undecided", estimate.undecided)
    label = estimate.labels[name]
    return Verdict(estimate, "is", name, label.outcome, label.reason, label.p_value)


def _needed(estimate: Estimate, op: Op, threshold: float) -> Mapping[str, Any]:
    value, margin, inference = estimate.value, estimate.margin, estimate.inference
    if margin is not None and value is not None and abs(value - threshold) <= margin:
        return nothing_needed()
    # an inference from elsewhere may answer in words alone
    advice: Any = nothing_needed() if inference is None else inference.needed(op, threshold)
    return {"n": None, "controls": None, "text": advice} if isinstance(advice, str) else advice


def number(value: float | None, near: float | None = None) -> str:
    """A number in at least two decimals, and in as many as tell it from `near` (six at most)."""
    if value is None or math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    least = 2 if abs(value) >= 0.1 or value == 0 else 3
    return f"{value:.{decimals(value, near, least)}f}"


def _listed(driven: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The examples, or pairs of subtasks, that drive a verdict."""
    return [*driven.get("examples", ()), *driven.get("pairs", ())]


def _shown(one: Mapping[str, Any]) -> str:
    """One of them in words, on a few lines."""
    if "subtasks" in one:
        first, second = one["subtasks"]
        lines = [f"{first} and {second}: similarity {number(one['similarity'])}"]
        return "\n".join(lines + [f"such as {prompt!r}" for prompt in one["prompts"] if prompt])
    answers = " or ".join(map(repr, one["answers"]))
    lines = [f"example {one['index']} ({number(one['pull'])}): {one['prompt']!r} -> {answers}"]
    for key, words in (("before", "before"), ("after", "after")):
        if key in one:
            lines.append(f"{words:<8}" + ", ".join(f"{token!r} {share:.0%}" for token, share in one[key]))
    lines += [f"{key:<8}{', '.join(one[key]) or 'nothing'}" for key in ("missing",) if key in one]
    return "\n".join(lines)


def _describe_circuit(circuit: Any) -> str:
    name, units = getattr(circuit, "name", ""), getattr(circuit, "units", ())
    listed = [str(unit) for unit in units]
    text = " ".join(listed[:30]) + (f" and {len(listed) - 30} more" if len(listed) > 30 else "")
    if not name and not listed:
        return str(circuit)
    return f"{name}: {text}" if name and listed else str(name or text)


def _pairs(mapping: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_short(mapping[key])}" for key in mapping)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)) and len(value) > 4:
        return f"[{len(value)} values]"
    if isinstance(value, Mapping) and len(value) > 4:
        return f"{{{len(value)} entries}}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_short(value[key])}" for key in value) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return str(value)

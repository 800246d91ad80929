"""An estimate: a number with its interval, what it was measured on, and how to measure it again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, NoReturn

from circuittest.errors import UsageError
from circuittest.stats.inference import Inference, Op
from circuittest.stats.labels import Label, established, known
from circuittest.stats.verdict import InvalidClaim, Verdict, judge, judge_label, number

Censored = Literal["lower", "upper"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Estimate:
    """What a claim measured. Compare it with a finite number to get a `Verdict`.

    Parameters
    ----------
    claim:
        Name of the claim ("necessity").
    value:
        Point value, in the claim's own unit; None when it is undefined (then `invalid` says why).
    inference:
        Where interval and p-values come from (`circuittest.stats.inference.Inference`), or None.
    confidence:
        Two-sided confidence of `interval`; each end is a one-sided bound at 1 - (1 - confidence)/2.
    n_examples, n_controls:
        Evaluation examples; control sets, or None where the claim has no controls.
    circuit:
        The circuit judged (opaque here), or None.
    model, fingerprint, task:
        Which model and which task.
    examples:
        Indices in the task: {"discover": [...], "evaluate": [...]}.
    choices:
        Every analysis choice that could change the number.
    details:
        What the number was made of; JSON types only.
    invalid:
        Why the claim cannot be judged (a gate's reason and numbers); "" when it can.
    undecided:
        Why it was not measured although nothing is wrong (its budget); every verdict on it is undecided.
    censored:
        "lower": the true value is at least this one, so that it may support `>=` but never refute it;
        "upper": the mirror image.
    margin:
        Differences up to this are of no interest; only used to say when more data would not help.
    label:
        The named outcome that is established (kept, moved, load-bearing, ...), or None. Follows from `labels` where
        these are given.
    labels:
        Every name this claim knows, and what became of it; empty for claims that are numbers only.
    decide:
        The threshold this estimate was measured to decide, where measuring stopped early because of it;
        comparing with any other is refused.
    together:
        For claims that a search may try many times (`circuittest.stats.searching`): gives the estimate of "all of
        these", in which the search has no part.
    driving:
        ``(op, threshold)`` → which examples speak most against that, and what else explains it, in plain JSON types
        (`circuittest.claims.driving`). Asked for only where a verdict is refuted or undecided.
    hints:
        What the reader can do about a failure.
    reproduce:
        The command that measures this again.
    cost:
        ``(seconds, cached)``: how long measuring took, and whether every table that it needed was there already. To be
        shown; no part of what was measured, and of no record.
    """

    claim: str
    value: float | None
    inference: Inference | None = None
    confidence: float = 0.95
    n_examples: int = 0
    n_controls: int | None = None
    circuit: Any = None
    model: str = ""
    fingerprint: str = ""
    task: str = ""
    examples: Mapping[str, Sequence[int]] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    invalid: str = ""
    undecided: str = ""
    censored: Censored | None = None
    margin: float | None = None
    label: str | None = None
    labels: Mapping[str, Label] = field(default_factory=dict)
    decide: float | None = None
    together: Callable[[Sequence[Estimate]], Estimate] | None = None
    driving: Callable[[str, Any], Mapping[str, Any]] | None = None
    hints: tuple[str, ...] = ()
    reproduce: str = ""
    cost: tuple[float, bool] | None = None

    # numpy scalars on the left (np.float64(0.3) <= estimate) must hand over to the methods below
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        if not 0.5 < self.confidence < 1.0:
            raise UsageError(f"confidence is {self.confidence!r}", "it lies between 0.5 and 1", "say 0.95")
        if self.censored not in (None, "lower", "upper"):
            raise UsageError(f"censored is {self.censored!r}", 'it is None, "lower" or "upper"')
        if not self.invalid and not self.undecided and (self.value is None or not math.isfinite(self.value)):
            raise UsageError(
                f"an estimate of {self.claim} has the value {self.value!r}",
                "only an invalid estimate may be undefined",
                "give the reason as `invalid`",
            )
        if self.labels:
            object.__setattr__(self, "label", None if self.invalid else established(self.labels))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The two-sided confidence interval, or None when there is none. An end may be infinite."""
        if self.inference is None:
            return None
        low, high = self.inference.interval(self.confidence)
        return float(low), float(high)

    def __ge__(self, threshold: float) -> Verdict:
        return self.compare(">=", threshold)

    def __gt__(self, threshold: float) -> Verdict:
        return self.compare(">", threshold)

    def __le__(self, threshold: float) -> Verdict:
        return self.compare("<=", threshold)

    def __lt__(self, threshold: float) -> Verdict:
        return self.compare("<", threshold)

    def compare(self, op: Op, threshold: float) -> Verdict:
        """The verdict on "value `op` threshold".

        Raises
        ------
        TypeError
            The threshold is not a plain real number (a bool, an array, another estimate).
        ValueError
            The threshold is NaN or infinite, or this estimate was measured to decide another one.
        """
        value = _finite(threshold, self.claim)
        if self.decide is not None and value != self.decide:
            raise UsageError(
                f"{self.claim} was measured to decide {self.decide:g} and is compared with {value:g}",
                "measuring stopped as soon as that threshold was decided",
                f"measure it again with decide={value:g}, or without decide",
            )
        return judge(self, op, value)

    def labelled(self, name: str) -> Verdict:
        """The verdict on "this is `name`", one of the named outcomes of the claim.

        Supported where that name is established, refuted where another one is that excludes it, undecided otherwise.

        Raises
        ------
        UsageError
            The claim has no such outcome, or none at all.
        """
        return judge_label(self, known(self.claim, name, tuple(self.labels)))

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError(_EQUALITY.format(claim=self.claim))

    def __ne__(self, other: object) -> NoReturn:
        raise TypeError(_EQUALITY.format(claim=self.claim))

    # Identity: an estimate is one measurement, and equality, which a value hash would need, is refused.
    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"an estimate of {self.claim} is neither true nor false: compare it with a threshold, "
            f"as in `assert lab.{self.claim}(...) >= 0.3`"
        )

    def __float__(self) -> float:
        if self.invalid or self.value is None:
            raise InvalidClaim(
                f"{self.claim} has no value", self.invalid or self.undecided, "; ".join(self.hints)
            )
        return float(self.value)

    def __repr__(self) -> str:
        if self.invalid:
            text = f"{self.claim} invalid ({self.invalid})"
        elif self.undecided:
            text = f"{self.claim} undecided ({self.undecided})"
        else:
            text = f"{self.claim} {self.measured()}"
        return text if self.label is None else f"{text} {self.label}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values under one name each, a row of a data frame: ``pandas.DataFrame([e.to_dict() for e in …])``."""
        low, high = (None, None) if self.invalid else self.interval or (None, None)
        return {
            "claim": self.claim,
            "model": self.model,
            "task": self.task,
            "circuit": getattr(self.circuit, "name", None),
            "value": None if self.invalid else self.value,
            "low": low,
            "high": high,
            "confidence": self.confidence,
            "n_examples": self.n_examples,
            "n_controls": self.n_controls,
            "label": self.label,
            "censored": self.censored,
            "invalid": self.invalid,
            "undecided": self.undecided,
        }

    def measured(self, near: float | None = None) -> str:
        """Value, interval and sample sizes in one line; digits enough to tell them from `near`."""
        text = number(self.value, near)
        if self.censored is not None:
            text = f"{'at least' if self.censored == 'lower' else 'at most'} {text}"
        interval = self.interval
        if interval is not None:
            text += f" [{number(interval[0], near)}, {number(interval[1], near)}]"
        text += f" n={self.n_examples}"
        return text if self.n_controls is None else f"{text} R={self.n_controls}"


_EQUALITY = (
    "an estimate of {claim} cannot be tested with == or !=: it is measured with error. "
    "Compare it with a threshold (>=, >, <=, <), or use float(estimate) for the point value"
)


def _finite(threshold: object, claim: str) -> float:
    if isinstance(threshold, Estimate):
        raise TypeError(
            f"{claim} is compared with another estimate: compare it with a number; a difference of two "
            "measurements needs a claim of its own"
        )
    if isinstance(threshold, bool) or type(threshold).__name__ in {"bool_", "bool"}:
        raise TypeError(f"{claim} is compared with {threshold!r}: compare it with a number, such as 0.3")
    if not isinstance(threshold, Real):
        raise TypeError(
            f"{claim} is compared with a {type(threshold).__name__}: compare it with a number, such as 0.3"
        )
    value = float(threshold)
    if not math.isfinite(value):
        raise ValueError(f"{claim} is compared with {value}: a threshold is a finite number")
    return value

"""Claims, one module each, found by name: functions of a lab, a circuit and options that give an Estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, TypeVar

from circuittest.errors import UsageError, did_you_mean

#: Claims of this package: name → module. The function has the claim's name, with _ for a dot.
_BUILT_IN = {
    "adversarial_controls": "circuittest.claims.adversarial_controls",
    "closure": "circuittest.claims.closure",
    "completeness": "circuittest.claims.completeness",
    "concentration": "circuittest.claims.concentration",
    "coverage": "circuittest.claims.coverage",
    "drift.behaviour": "circuittest.claims.drift",
    "drift.function": "circuittest.claims.drift",
    "drift.structure": "circuittest.claims.drift",
    "equivalence": "circuittest.claims.equivalence",
    "independence": "circuittest.claims.independence",
    "minimality": "circuittest.claims.minimality",
    "graded_necessity": "circuittest.claims.graded_necessity",
    "families": "circuittest.claims.families",
    "necessity": "circuittest.claims.necessity",
    "path": "circuittest.claims.path",
    "regression": "circuittest.claims.regression",
    "reuse": "circuittest.claims.reuse",
    "role": "circuittest.claims.role",
    "selective": "circuittest.claims.selective",
    "specificity": "circuittest.claims.specificity",
    "specificity_matrix": "circuittest.claims.specificity_matrix",
    "stability": "circuittest.claims.stability",
    "stability_difference": "circuittest.claims.stability_difference",
    "sufficiency": "circuittest.claims.sufficiency",
    "transfer": "circuittest.claims.transfer",
}

#: Keywords of a claim function that are no options: the lab knows them from the threshold it is asked to decide.
RESERVED = ("decide", "confidence")

F = TypeVar("F", bound=Callable[..., Any])


def labels(*names: str) -> Callable[[F], F]:
    """Say which named outcomes the estimate of a claim may have, so that specs can be checked before anything runs."""

    def mark(function: F) -> F:
        function.__dict__["__labels__"] = names
        return function

    return mark


#: Least and largest value that an estimate can have.
Range = tuple[float, float]
EVERYTHING: Range = (-math.inf, math.inf)


def within(limits: Range | Callable[[Mapping[str, Any]], Range]) -> Callable[[F], F]:
    """Say between which values the estimate of a claim lies, so that a spec's threshold beyond them (20 for 20 %) is
    refused before anything runs: it would hold, or fail, whatever is measured.

    `limits` may follow from the options: all of them, by name, defaults included.
    """

    def mark(function: F) -> F:
        function.__dict__["__limits__"] = limits
        return function

    return mark


@dataclass(frozen=True)
class ClaimKind:
    """A registered claim.

    Attributes
    ----------
    name:
        What specs and `Lab.measure` call it.
    function:
        ``function(lab, circuit, *, option: type = default, …) -> Estimate``, or without `circuit` for a claim
        about the task as a whole. Its keyword-only parameters are the options that a spec may set.
    """

    name: str
    function: Callable[..., Any]

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def takes_circuit(self) -> bool:
        """Is the claim about a circuit, and not about the task as a whole?"""
        kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        return sum(p.kind in kinds for p in signature(self.function).parameters.values()) > 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The named outcomes it may have; empty for a claim that is a number only. See `labels`."""
        return getattr(self.function, "__labels__", ())

    def limits(self, options: Mapping[str, Any]) -> Range:
        """Between which values its estimate lies with these options. See `within`."""
        found: Range | Callable[[Mapping[str, Any]], Range]
        found = getattr(self.function, "__limits__", EVERYTHING)
        if not callable(found):
            return found
        parameters = signature(self.function).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind is Parameter.KEYWORD_ONLY}
        limits: Range = found({**defaults, **options})
        return limits

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the keyword-only options."""
        return tuple(name for name in self._keywords() if name not in RESERVED)

    @property
    def reserved(self) -> tuple[str, ...]:
        """Which of `RESERVED` it takes; the lab gives them."""
        return tuple(name for name in self._keywords() if name in RESERVED)

    def _keywords(self) -> list[str]:
        parameters = signature(self.function).parameters.values()
        return [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]


#: Claims of this process.
_OWN: dict[str, Callable[..., Any]] = {}


def register_claim(name: str, function: Callable[..., Any]) -> None:
    """Make a claim known in this process. Raises UsageError for a name that is taken."""
    if name in claim_kinds():
        raise UsageError(f"there is a claim {name!r} already", "", "choose another name")
    _OWN[name] = function
    claim_kinds.cache_clear()


def unregister_claim(name: str) -> None:
    """Forget a claim of `register_claim`."""
    _OWN.pop(name, None)
    claim_kinds.cache_clear()


@cache
def claim_kinds() -> Mapping[str, ClaimKind]:
    """Every claim by name: this package's, those of the entry points ``circuittest.claims`` and of this process."""
    kinds = {
        name: ClaimKind(name, getattr(import_module(module), name.replace(".", "_")))
        for name, module in _BUILT_IN.items()
    }
    for entry in entry_points(group="circuittest.claims"):
        if entry.name in kinds:
            raise UsageError(
                f"the claim {entry.name!r} of {entry.value} exists already",
                "",
                "give it another entry-point name",
            )
        kinds[entry.name] = ClaimKind(entry.name, entry.load())
    kinds |= {name: ClaimKind(name, function) for name, function in _OWN.items()}
    return MappingProxyType(dict(sorted(kinds.items())))


def claim_kind(name: str) -> ClaimKind:
    """A claim by name. Raises UsageError."""
    kinds = claim_kinds()
    if name not in kinds:
        raise UsageError(f"unknown claim {name!r}", "", did_you_mean(name, kinds))
    return kinds[name]

"""A tuned model beside the lock of its base: the same examples, circuit and control sets, so that all is paired.

The base need not be loaded. Where the weights are the base's own, or its own but for the order of heads within layers,
the drift is zero and nothing is measured. Where they have nothing in common with the base's, units are not the same
units, and nothing that names one can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from circuittest.circuit import prompt_digest
from circuittest.claims.gates import competence_of, controls_leave_headroom, disjoint, usable_circuit
from circuittest.claims.locked_rows import CONTROLS, SEED, Rows, measured_rows, outcomes_of
from circuittest.claims.universe import circuit_universe
from circuittest.controls import matched_controls
from circuittest.errors import ControlError, LoadError, SpecError, UsageError
from circuittest.find.recipe import recipe_of
from circuittest.lock import Lock, Locked, scored_digest
from circuittest.stats import Competence
from circuittest.stats.inference import Op, nothing_needed
from circuittest.stats.resampling import Floats
from circuittest.units import Unit
from circuittest.weights import RELATED, Weights, correlation, exchanged, placed_circuit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

Measure = Literal["accuracy", "log_prob", "logit_diff"]
Side = Literal["both", "worse"]


class SameWeights:
    """A drift of exactly zero: the model is its base, or is so but for the order of its heads. An `Inference`."""

    value = 0.0
    method = "the weights are the base's: nothing was measured"

    def __init__(self, moved: Mapping[Unit, Unit] | None = None) -> None:
        if moved:
            self.method = "the weights are the base's with heads in another order: nothing was measured"

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
        """Is the model its base, but perhaps for the order of its heads? One with hooks in it is measured."""
        if altered(self.lab):
            return False
        return self.lock.model["fingerprint"] == self.lab.fingerprint or bool(self.moved)

    @cached_property
    def moved(self) -> dict[Unit, Unit]:
        """Where heads and KV groups of the base are here, where the models differ in no more than their order."""
        return moved(self.lock, self.lab)

    @cached_property
    def related(self) -> float | None:
        """Correlation of sampled weights with the base's; None where it is not known."""
        here = weights_of_lab(self.lab)
        return None if here is None or self.lock.weights is None else correlation(self.lock.weights, here)

    @cached_property
    def stranger(self) -> str:
        """Why units cannot be compared by their position, or ""."""
        if self.same or self.related is None or self.related >= RELATED:
            return ""
        return (
            f"the weights are not those of a model trained from the base: {self.related:.2f} is their correlation with "
            f"the base's, and below {RELATED:g} a head has nothing in common with the one at its place; compare "
            "drift.behaviour, or find a circuit in this model and give it a lock of its own"
        )

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

    def kept_of_base(self, column: str) -> Floats:
        """[2 × n] of the base: nothing of the universe kept, the circuit alone. Raises UsageError where missing."""
        outcomes = self.base.outcomes
        if outcomes is None or column not in outcomes.kept:
            raise UsageError(f"the lock holds no outcomes in {column} with the circuit kept")
        return outcomes.kept[column]

    @cached_property
    def universe(self) -> tuple[Unit, ...]:
        """What the controls were drawn from."""
        return () if self.base.outcomes is None else tuple(map(Unit.parse, self.base.outcomes.universe))

    @cached_property
    def controls(self) -> tuple[tuple[Unit, ...], ...]:
        """The control sets."""
        sets = () if self.base.outcomes is None else self.base.outcomes.controls
        return tuple(tuple(map(Unit.parse, one)) for one in sets)

    def no_pair(self, circuit: Circuit) -> str:
        """Why what a circuit does cannot be paired, or ""."""
        return self.reason or disjoint(self.lab, circuit) or self.stranger or controls_reason(self)

    def competence_of(self, rows: Rows) -> Competence:
        """The competence gate on outcomes of these examples."""
        return competence_of(self.lab, rows.nothing, rows.universe)

    def choices(self) -> dict[str, Any]:
        """For the record."""
        return {
            "baseline": self.lock.digest[:16],
            "base": {key: self.lock.model[key] for key in ("name", "fingerprint")},
        }

    def relation(self) -> dict[str, Any]:
        """For the record: how much the weights have in common, and which heads changed places."""
        shown = ("head", "kv") if self.lock.layout.group_size > 1 else ("head",)  # else a group is its head
        places = {str(old): str(new) for old, new in sorted(self.moved.items()) if old.kind in shown}
        return {"weights_correlation": self.related, **({"permuted": places} if places else {})}

    def hints(self, circuit: Circuit | None = None) -> tuple[str, ...]:
        """For the reader, where heads changed places."""
        if not self.moved:
            return ()
        where = "" if circuit is None else f": {', '.join(map(str, placed_circuit(circuit, self.moved)))}"
        return (
            f"permuted: heads of the base are in another order here; the circuit is found at its places{where}",
        )


def altered(lab: Lab) -> bool:
    """Does the model compute something else than its weights say, as where somebody put hooks into it?"""
    module = vars(lab.model).get("module")
    if module is None:
        return False
    from circuittest.models import hooks

    return hooks.altered(module)


def moved(lock: Lock, lab: Lab) -> dict[Unit, Unit]:
    """Where heads and KV groups of the base are in a model that differs from it in no more than their order."""
    if lock.weights is None or lock.model["fingerprint"] == lab.fingerprint:
        return {}
    here = weights_of_lab(lab)
    return {} if here is None else exchanged(lock.weights, here, lock.layout) or {}


def weights_of_lab(lab: Lab) -> Weights | None:
    """Traces of the weights, where they can be read."""
    if getattr(lab.model, "identity", None) is None and getattr(lab.model, "module", None) is None:
        return None
    from circuittest.lab.kept import weights_of

    return weights_of(lab.store, lab.model)


def checked_margin(margin: float, most: float = math.inf) -> float:
    """The margin. Raises UsageError for one that is no size of a change."""
    if not 0 <= margin < most:
        upto = "" if math.isinf(most) else f", below {most:g}"
        raise UsageError(
            f"margin is {margin!r}", f"it is the largest change of no interest: 0 or more{upto}", "say 0.1"
        )
    return margin


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


def found_again(both: Pair, base: str | None) -> tuple[Circuit, Pair, str]:
    """The circuit that the lock's recipe finds in the tuned model, paired with what the base does with it.

    Returns the circuit, the pair, and why it cannot be judged, or "". The base is loaded, by its name in the lock or
    the one that is given. Raises UsageError where that is another model.
    """
    lab, locked = both.lab, both.base.circuit
    if both.same:
        return locked, both, ""
    recipe = recipe_of(locked.origin)
    if recipe is None:
        return locked, both, "the circuit was given by its members, so that no other can be found likewise"
    if tuple(prompt_digest(item.prompt_ids) for item in lab.data.discover) != both.lock.discover:
        return locked, both, "the discovery examples are not those of the lock"
    if reason := other_metric(lab, locked):
        return locked, both, reason
    circuit = lab.shared(**recipe)
    if reason := usable_circuit(circuit):
        return circuit, both, f"in the tuned model {reason}"
    name = base or both.lock.model["name"]
    try:
        there = lab.with_model(name)
        fingerprint = there.fingerprint
    except LoadError as error:
        return circuit, both, f"the base is needed for what it does with another circuit: {error}"
    if fingerprint != both.lock.model["fingerprint"]:
        raise UsageError(
            f"{name} is not the base of the lock",
            f"its fingerprint is {fingerprint[:12]}, the lock's {both.lock.model['fingerprint'][:12]}",
            "give the base model as base",
        )
    universe = lab.layout.universe(circuit_universe(circuit))
    try:
        drawn = matched_controls(circuit.units, universe, lab.layout, count=CONTROLS, seed=SEED)
    except ControlError as error:
        return circuit, both, str(error)
    outcomes = outcomes_of(there, circuit, universe, drawn.sets)
    again = Pair(lab, both.lock, Locked(circuit, outcomes))
    return circuit, again, again.reason or controls_reason(again)

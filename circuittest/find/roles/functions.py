"""Form and function side by side: which heads have a role, which the model needs, and which both.

Discovery examples choose: the heads that score at least `least` for a role (form), and the `carriers`, the heads with
the largest attribution, whatever they look at. Evaluation examples judge: what ablating each of them costs, and closure
of each role's heads together and of the carriers without a role. Only closure calls heads load-bearing, and a group
that is may hold idle heads; a score never does, and neither does the size of one head's effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UsageError
from circuittest.find.roles.kinds import ROLES
from circuittest.stats import MeanInference, holm
from circuittest.units import Unit

#: Roles that are asked about where none are named: those that a head seldom has by resting somewhere.
USUAL = ("previous-token", "induction", "duplicate-token", "answer-token", "copy", "copy-suppression")
#: What the group of carriers without a role is called.
OTHERS = "no role"


@dataclass(frozen=True)
class Effect:
    """What ablating a head costs, as a mean over evaluation examples with its 95 % interval.

    The interval is infinite where all examples lose the same log-probability: nothing is known of the spread.
    """

    value: float
    low: float
    high: float

    def to_list(self) -> list[float | None]:
        """[value, low, high]; None for an end that is infinite."""
        return [number if isfinite(number) else None for number in (self.value, self.low, self.high)]


@dataclass(frozen=True)
class Head:
    """One head.

    Attributes
    ----------
    scores:
        Role → mean over discovery examples; no entry where it is undefined.
    roles:
        Those that it has, by score.
    carrier:
        Is it among the heads with the largest attribution?
    effects:
        Measure → what its ablation costs.
    closure:
        Its own outcome where single heads were judged, else None.
    """

    unit: Unit
    scores: Mapping[str, float]
    roles: tuple[str, ...]
    carrier: bool
    effects: Mapping[str, Effect]
    closure: str | None = None

    @property
    def kind(self) -> str:
        """ "form" (it has a role), "function" (closure of this head alone calls it load-bearing), "both" or ""."""
        found = (bool(self.roles), self.closure == "load-bearing")
        return {(True, True): "both", (True, False): "form", (False, True): "function"}.get(found, "")


@dataclass(frozen=True)
class Judged:
    """Heads that were ablated together.

    Attributes
    ----------
    name, units:
        The role, several where they have the same heads, or `OTHERS`.
    label:
        "load-bearing", "redundant", "interfering", "none" or "undecided"; "invalid" where it could not be judged.
    beyond:
        Loss of log-probability beyond matched controls, in nats, with its interval; None where invalid.
    p:
        Of "load-bearing", and `adjusted` by Holm over all groups that were judged; None where invalid.
    reason:
        Why it is undecided or invalid.
    """

    name: str
    units: tuple[Unit, ...]
    label: str
    beyond: Effect | None = None
    p: float | None = None
    adjusted: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Side:
    """Form and function of the heads of one model on one task.

    Attributes
    ----------
    heads:
        Those that have a role, are carriers or were asked for, in canonical order.
    groups:
        Closure of each role's heads, and of the carriers without a role.
    undefined:
        Role → why some or all examples have no score.
    choices:
        Everything that could change it, plain JSON types.
    """

    heads: tuple[Head, ...]
    groups: tuple[Judged, ...]
    undefined: Mapping[str, str]
    choices: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "heads": [
                {
                    "head": str(head.unit),
                    "scores": dict(head.scores),
                    "roles": list(head.roles),
                    "carrier": head.carrier,
                    "effects": {name: effect.to_list() for name, effect in head.effects.items()},
                    "closure": head.closure,
                    "is": head.kind,
                }
                for head in self.heads
            ],
            "groups": [
                {
                    "group": group.name,
                    "units": [str(unit) for unit in group.units],
                    "closure": group.label,
                    "beyond": None if group.beyond is None else group.beyond.to_list(),
                    "p": group.p,
                    "p_holm": group.adjusted,
                    "reason": group.reason,
                }
                for group in self.groups
            ],
            "undefined": dict(self.undefined),
            "choices": dict(self.choices),
        }


def form_and_function(
    lab: Any,
    kinds: Iterable[str] = USUAL,
    *,
    least: float = 0.4,
    carriers: int = 8,
    also: Iterable[Unit] = (),
    positions: str = "all",
    ablation: str = "zero",
    controls: int = 100,
    single: bool = False,
) -> Side:
    """Scores, effects and closure of a lab's heads, side by side.

    Parameters
    ----------
    kinds:
        Roles; see `circuittest.find.roles.kinds`.
    least:
        Mean score from which on a head has a role.
    carriers:
        How many heads with the largest attribution (mean over examples of `Lab.scores`) are looked at whatever their
        scores.
    also:
        Further heads to look at, whatever they score; they change nothing else.
    positions:
        As for `Lab.roles`.
    ablation, controls:
        As for `circuittest.claims.closure`.
    single:
        Judge every head by itself, too. In a model of few heads there may be too few controls to decide it.

    Raises
    ------
    UsageError
        For no kinds, unknown ones, a `least` outside (0, 1], fewer than no carriers, and as `Lab.roles`.
    """
    wanted = tuple(dict.fromkeys(kinds))
    having, carrying = looked_at(lab, wanted, least=least, carriers=carriers, positions=positions)
    tables = lab.roles(wanted, split="discover", positions=positions)
    means = {kind: table.means() for kind, table in tables.items()}
    asked = tuple(sorted(set(also)))
    lab.layout.check(asked)
    own_heads = {unit for circuit in having.values() for unit in circuit.units}
    shown = sorted({*own_heads, *carrying, *asked})
    effects = _effects(lab, shown, ablation)
    how: dict[str, Any] = {"ablation": ablation, "controls": controls, "universe": "heads"}
    own = {unit: _label(lab.closure(_alone(lab, unit), **how)) if single else None for unit in shown}
    heads = tuple(
        Head(
            unit,
            {kind: found[unit] for kind, found in means.items() if unit in found},
            tuple(kind for kind, circuit in having.items() if unit in circuit.units),
            unit in carrying,
            effects[unit],
            own[unit],
        )
        for unit in shown
    )
    rest = tuple(head.unit for head in heads if head.carrier and not head.roles)
    names: dict[tuple[Unit, ...], list[str]] = {}
    for kind, circuit in having.items():
        if circuit.units:
            names.setdefault(circuit.units, []).append(kind)
    if rest:
        names[rest] = [OTHERS]
    groups = [_chosen(lab, units, ", ".join(kinds)) for units, kinds in names.items()]
    judged = [_judged(circuit, lab.closure(circuit, **how)) for circuit in groups]
    choices = {
        "kinds": list(wanted),
        "least": least,
        "carriers": carriers,
        "role_positions": positions,
        **how,
        "metric": lab.metric,
        "discover": len(lab.data.discover),
        "evaluate": len(lab.data.evaluate),
        "seed": lab.data.seed,
    }
    if asked:
        choices["also"] = [str(unit) for unit in asked]
    undefined = {kind: table.undefined for kind, table in tables.items() if table.undefined}
    return Side(heads, _adjusted(judged), undefined, choices)


def looked_at(
    lab: Any, kinds: Sequence[str], *, least: float, carriers: int, positions: str
) -> tuple[dict[str, Circuit], tuple[Unit, ...]]:
    """The heads that have each role (no entry where no example can show it), and the carriers.

    Raises as `form_and_function`.
    """
    if not kinds:
        raise UsageError("no roles were asked for", "", f"name some of {', '.join(ROLES)}")
    if not 0 < least <= 1 or carriers < 0:
        raise UsageError(
            f"least is {least:g} and {carriers} carriers are asked for",
            "scores lie between 0 and 1",
            "use least=0.4 and carriers=8",
        )
    tables = lab.roles(kinds, split="discover", positions=positions)
    scored = [kind for kind in kinds if tables[kind].means()]
    having = {kind: lab.with_role(kind, least=least, positions=positions) for kind in scored}
    return having, _carriers(lab, carriers)


def _carriers(lab: Any, count: int) -> tuple[Unit, ...]:
    """The heads with the largest mean attribution; ties in canonical order."""
    if not count:
        return ()
    table = lab.scores("discover", universe="heads")
    mean = dict(zip(table.members, table.values.mean(0, dtype="float64").tolist(), strict=True))
    return tuple(sorted(mean, key=lambda unit: (-mean[unit], unit.order))[:count])


def _effects(lab: Any, units: Sequence[Unit], ablation: str) -> dict[Unit, dict[str, Effect]]:
    """What ablating each of some heads costs in log-probability and accuracy."""
    if not units:
        return {}
    table = lab.outcomes([(), *((unit,) for unit in units)], value=ablation)
    found: dict[Unit, dict[str, Effect]] = {unit: {} for unit in units}
    for measure, bounds in (("log_prob", None), (lab.accuracy, (-1.0, 1.0))):
        rows = table.measure(measure)
        for unit, row in zip(units, rows[1:], strict=True):
            inference = MeanInference(rows[0] - row, bounds=bounds)
            found[unit][measure] = Effect(inference.value, *inference.interval())
    return found


def _alone(lab: Any, unit: Unit) -> Circuit:
    return _chosen(lab, (unit,), str(unit))


def _chosen(lab: Any, units: Iterable[Unit], name: str) -> Circuit:
    """A circuit that the discovery examples chose."""
    prompts = [prompt_digest(item.prompt_ids) for item in lab.data.discover]
    return Circuit.of(units, name=name, layout=lab.layout, origin={"method": "roles", "prompts": prompts})


def _judged(circuit: Circuit, estimate: Any) -> Judged:
    name, label = circuit.name, _label(estimate)
    if label == "invalid":
        return Judged(name, circuit.units, label, reason=estimate.invalid)
    low, high = estimate.interval
    bearing = estimate.labels["load-bearing"]
    reason = bearing.reason if label == "undecided" else ""
    return Judged(
        name, circuit.units, label, Effect(estimate.value, low, high), bearing.p_value, reason=reason
    )


def _label(estimate: Any) -> str:
    return "invalid" if estimate.invalid else str(estimate.label or "undecided")


def _adjusted(groups: Sequence[Judged]) -> tuple[Judged, ...]:
    """With p-values adjusted over all groups; one that could not be judged counts as one of them."""
    adjusted = holm([group.p for group in groups])
    return tuple(replace(group, adjusted=p) for group, p in zip(groups, adjusted, strict=True))

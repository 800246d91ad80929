"""Closure: is a set of heads load-bearing, redundant, interfering, or none of it?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from circuittest.claims import labels
from circuittest.claims.beyond import Ablations, Damage, draw_controls, drawn_details, ends, exchangeable_p
from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters, said
from circuittest.claims.driving import by_examples, control_text
from circuittest.claims.gates import competent, controls_destroy, disjoint, usable_circuit
from circuittest.claims.kept import Ablation
from circuittest.claims.looks import Sets, Tables, measure_controls, planned
from circuittest.claims.ranges import Count
from circuittest.claims.universe import circuit_universe
from circuittest.controls import Controls
from circuittest.stats import Estimate
from circuittest.stats.labels import Label
from circuittest.stats.two_way import TwoWayInference

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

#: One-sided level of every part of a label.
LEVEL = 0.025
NAMES = ("load-bearing", "redundant", "interfering", "none")
GRADED = ("log_prob", "logit_diff")


@labels(*NAMES)
def closure(
    lab: Lab,
    circuit: Circuit,
    *,
    controls: Count = 100,
    match: Literal["kind", "layer", "sink"] = "kind",
    metric: Literal["log_prob", "logit_diff", "accuracy", "loss"] = "log_prob",
    text: str | None = None,
    ablation: Ablation = "zero",
    positions: Literal["all", "not-first", "answer"] = "all",
    tolerance: float = 0.1,
    complement: list[str] | None = None,
    universe: str | None = None,
    accuracy: Literal["argmax", "candidates"] | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
    decide: float | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Damage that ablating the circuit does beyond matched controls, and what that makes of it.

    Estimand: mean over all matched sets C of m(C) - m(S), in the unit of `metric`, on evaluation examples. The label
    follows Xu, arXiv 2606.09607, with tests against many matched controls in place of z-scores of five sets. All tests
    of a label must hold, each at the one-sided level 0.025, so that none needs a correction:

    - **load-bearing**: in log-probability, logit difference and accuracy alike ablation does damage, more than controls
      do on average, and ranks among the most harmful (rank p, corrected for the share of the universe that the
      circuit holds: `circuittest.claims.beyond.exchangeable_p`);
    - **interfering**: in both graded measures ablation *improves* the model, more than controls do, and ranks so;
    - **none**: equivalent to controls in all three: the interval of the damage beyond controls, as a share of what
      ablating the whole universe costs (of the base accuracy), lies within ± `tolerance`. A smaller effect is of no
      interest, however significant;
    - **redundant**: none by itself, but load-bearing once its `complement` is removed, too.

    Parameters
    ----------
    controls, match, universe, seed:
        As for `necessity`; with "sink" controls are heads that rest as much on the first token as the circuit's do
        (`circuittest.lab.signals.sink_levels`). Rank p cannot fall below 1/(controls + 1), so fewer than 39 sets
        establish neither of the first two labels, and a circuit of a tenth of the universe needs 72.
    metric:
        What the number is measured in; the label always uses log-probability, logit difference and accuracy.
    text:
        A text file, on which ``details["loss"]`` and ``metric="loss"`` are measured: how much the loss on *true next
        tokens* rises beyond controls, in nats. Another number from other data, and no part of the label.
    ablation, positions:
        As for `necessity`.
    tolerance:
        The largest share that counts as no difference.
    complement:
        Units of the same role. They are left out of the controls.
    accuracy:
        "argmax" or "candidates"; by default the task's.
    cluster:
        Which examples of the task are drawn together (`circuittest.claims.clusters`); pieces of a text are not.
    decide, confidence:
        The threshold of the number, as for `necessity`. A name is judged on all controls: ranks of a few establish
        nothing, nor do a few rule out, at the share of the error probability that an early look may spend, that one set
        in ten is harmful. Where a threshold ended measuring early, names stay undecided.

    Invalid when the circuit is empty or was chosen on evaluation examples, when the model is not competent, when no
    matched control exists, when ablating everything costs nothing in a graded measure, when the controls are near the
    floor, too, in any measure (whatever is ablated is then equivalent to them), and when the complement shares units
    with the circuit.
    """
    measure = accuracy or lab.accuracy
    name = universe or circuit_universe(circuit)
    choices: dict[str, Any] = {
        "ablation": ablation,
        "positions": positions,
        "match": match,
        "controls": controls,
        "universe": name,
        "accuracy": measure,
        "metric": metric,
        **({"text": Path(text).name} if text else {}),
        "tolerance": tolerance,
        "complement": list(complement or ()),
        **said(cluster),
        "seed": seed,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        open_ = {one: Label("undecided", reason) for one in NAMES}
        return lab.estimate(
            "closure", circuit, choices=choices, details=details or {}, invalid=reason, labels=open_
        )

    if metric == "loss" and text is None:
        return invalid("a loss is measured on text: give a file as 'text'")
    if text is not None and ablation == "counterfactual":
        return invalid("running text has no counterfactual prompts: use another ablation, or no text")
    if not 0 < tolerance < 1:
        return invalid(f"tolerance is {tolerance!r}: it is a share between 0 and 1, such as 0.1")
    if reason := usable_circuit(circuit) or disjoint(lab, circuit):
        return invalid(reason)
    if without := sum(not item.foil_ids for item in lab.data.evaluate):
        return invalid(
            f"{without} of {len(lab.data.evaluate)} evaluation examples have no foils, so that there is no logit "
            "difference; claim graded_necessity in log_prob instead"
        )
    backup = lab.circuit(complement, name="complement").units if complement else ()
    if common := set(lab.layout.expand(backup)) & set(lab.layout.expand(circuit.units)):
        return invalid(f"{min(common)} is in the circuit and in its complement")
    units = lab.layout.universe(name)
    levels = None
    if match == "sink":
        if any(unit.kind != "head" for unit in units):
            return invalid(
                "controls are matched by their rest on the first token among heads: use universe: heads"
            )
        levels = lab.sink_levels()
        choices["sink_levels"] = max(levels.values()) + 1
    found = draw_controls(
        lab, circuit.units, units, count=controls, match=match, seed=seed, outside=backup, levels=levels
    )
    if isinstance(found, str):
        return invalid(found)
    drawn, share = found
    groups = cluster_labels(lab.data.evaluate, cluster)
    gate = competent(lab, units, measure, value=ablation, positions=positions, groups=groups)
    if not gate.passed:
        return invalid(gate.reason)

    measures = (*GRADED, measure)
    how: dict[str, Any] = {"ablation": ablation, "positions": positions, "seed": seed}
    conditions = [Ablations(lab, circuit.units, units, measures, groups=groups, **how)]
    usable = not any(span.reason for span in conditions[0].reaches())
    if not usable:  # invalid, whatever the controls
        decide = None
    if backup and usable:
        conditions.append(
            Ablations(lab, circuit.units, units, measures, removed=backup, groups=groups, **how)
        )
    if text is not None and usable:
        elsewhere = lab.on_text(text)
        conditions.append(Ablations(elsewhere, circuit.units, units, ["log_prob"], **how))

    def outcomes(sets: Sets) -> Tables:
        return tuple(table for one in conditions for table in one.of_controls(sets))

    def damages_of(tables: Tables, sets: Controls) -> list[list[Damage]]:
        rest, found = list(tables), []
        for one in conditions:
            count = len(one.measures)
            found.append(one.damages(rest[:count], sets))
            rest = rest[count:]
        return found

    def destroyed(tables: Tables, sets: Controls) -> str:
        found = (destroyed_by(one, gate.floor) for one in damages_of(tables, sets)[0])
        return next(filter(None, found), "")

    def infer(tables: Tables, sets: Controls) -> TwoWayInference:
        damages = damages_of(tables, sets)
        if metric == "loss":
            return damages[-1][0].beyond
        return damages[0][measures.index(measure if metric == "accuracy" else metric)].beyond

    choices |= planned(drawn, decide)
    runs = sum(one.n for one in conditions)
    looked = measure_controls(
        drawn,
        outcomes,
        infer,
        decide=decide,
        forwards=(3 * runs, runs),
        confidence=confidence,
        seed=seed,
        blocked=lambda tables: bool(destroyed(tables, drawn)),
    )
    drawn = looked.drawn
    parts = [
        {
            one.measure: Part(one, tolerance, share, gate.floor, looked.share, looked.complete)
            for one in damages
        }
        for damages in damages_of(looked.tables, drawn)
    ]
    alone, jointly = parts[0], parts[1] if backup and usable else None
    details: dict[str, Any] = {
        "acc_base": gate.accuracy,
        **{name: part.details() for name, part in alone.items()},
        "share": share,
        **clustered(groups, cluster),
        **drawn_details(drawn),
        **looked.details,
    }
    for part in alone.values():
        if part.unusable:
            return invalid(part.unusable, details)
    if jointly is not None:
        details["with_complement_removed"] = {name: part.details() for name, part in jointly.items()}
    damage = alone[measure if metric == "accuracy" else "log_prob" if metric == "loss" else metric].damage
    if text is not None:
        on_text = parts[-1]["log_prob"].damage
        details["loss"] = _loss(on_text, elsewhere.data.digest)
        damage = on_text if metric == "loss" else damage
    of_label = alone["log_prob"].damage
    beyond = of_label.controls.mean(0) - of_label.ablated
    pulls = beyond if text is not None else damage.controls.mean(0) - damage.ablated
    driving = by_examples(
        lab,
        pulls,
        after=circuit.units,
        value=ablation,
        positions=positions,
        named={
            "load-bearing": beyond,
            "redundant": beyond,
            "interfering": -beyond,
            "none": -abs(beyond),
        },
        told={"control": control_text(of_label.of_controls, "damage in log_prob")},
    )
    return lab.estimate(
        "closure",
        circuit,
        driving=driving,
        inference=looked.inference,
        n_examples=damage.base.size,
        n_controls=len(drawn.sets),
        choices=choices,
        details=details,
        labels=judge(alone, jointly, drawn, planned=looked.planned),
        hints=(*_hints(drawn, match), *few_clusters(groups, cluster), *looked.hints),
    )


@dataclass(frozen=True)
class Part:
    """What one measure says of a set.

    Attributes
    ----------
    damage, tolerance:
        See `closure`.
    share:
        The largest share of a stratum that the set holds.
    floor:
        Of accuracies; that of graded measures is the universe ablated.
    spent:
        Part of the error probability that equivalence may spend at this look.
    complete:
        Whether all planned controls are in: ranks are judged once, then.
    """

    damage: Damage
    tolerance: float
    share: float
    floor: float = 0.0
    spent: float = 1.0
    complete: bool = True

    @cached_property
    def unusable(self) -> str:
        """Why nothing follows from the measure, or ""."""
        return self.damage.reach.reason or destroyed_by(self.damage, self.floor)

    @cached_property
    def p_harm(self) -> float:
        """Of "ablation does no more damage than controls do": the largest p of the tests that must all reject it."""
        own, beyond = self.damage.own_share, self.damage.beyond_share
        return max(own.p_value(">", 0.0), beyond.p_value(">", 0.0), self._rank("low"))

    @cached_property
    def p_help(self) -> float:
        """The mirror image: damage below zero, below that of controls, and among the lowest."""
        own, beyond = self.damage.own_share, self.damage.beyond_share
        return max(own.p_value("<", 0.0), beyond.p_value("<", 0.0), self._rank("high"))

    def _rank(self, harmful_is: str) -> float:
        if not self.complete:
            return 1.0
        return exchangeable_p(self.damage.rank(harmful_is).p, self.share)

    @cached_property
    def p_equal(self) -> float:
        """Of "the damage beyond controls is at least the tolerance, up or down"."""
        beyond = self.damage.beyond_share
        p = max(beyond.p_value("<", self.tolerance), beyond.p_value(">", -self.tolerance))
        return min(1.0, p / self.spent)

    def details(self) -> dict[str, Any]:
        """For the record."""
        rank, of_controls = self.damage.rank(), self.damage.of_controls
        found: dict[str, Any] = {
            "effect": self.damage.effect,
            "controls": of_controls,
            "beyond": self.damage.effect - math.fsum(of_controls) / len(of_controls),
            "p": rank.p,
            "p_help": self.damage.rank("high").p,
            "p_resolution": rank.resolution,
        }
        if self.unusable:
            return found | {"undefined": self.unusable}
        own, share = self.damage.own_share, self.damage.beyond_share
        return found | {
            "own_share": {"value": own.value, "interval": ends(own)},
            "beyond_share": {"value": share.value, "interval": ends(share)},
            "p_load_bearing": self.p_harm,
            "p_interfering": self.p_help,
            "p_none": self.p_equal,
        }


def destroyed_by(damage: Damage, floor: float) -> str:
    """`controls_destroy` of a damage; `floor`: of accuracies."""
    least = float(damage.emptied.mean()) if damage.graded else floor
    return controls_destroy(damage.measure, float(damage.base.mean()), float(damage.controls.mean()), least)


def _loss(damage: Damage, digest: str) -> dict[str, Any]:
    """The rise of the loss on true next tokens, which is the fall of their log-probability."""
    rank = damage.rank()
    return {
        "base": -float(damage.base.mean()),
        "effect": damage.effect,
        "controls": damage.of_controls,
        "beyond": {"value": damage.beyond.value, "interval": ends(damage.beyond)},
        "p": rank.p,
        "p_resolution": rank.resolution,
        "n": damage.base.size,
        "digest": digest,
    }


def judge(
    alone: Mapping[str, Part],
    jointly: Mapping[str, Part] | None,
    drawn: Controls | None = None,
    *,
    planned: int = 0,
) -> dict[str, Label]:
    """The outcome of every name.

    `jointly`: the same with the complement removed; None where none was given. `drawn`, `planned`: the controls, and
    how many there would have been, for what is said of ranks.
    """
    graded = [alone[name] for name in GRADED]
    p = {
        "load-bearing": max(part.p_harm for part in alone.values()),
        "interfering": max(part.p_help for part in graded),
        "none": max(part.p_equal for part in alone.values()),
    }
    holds = {name: value <= LEVEL for name, value in p.items()}
    if holds["none"]:  # whatever else is significant is too small to be of interest
        holds["load-bearing"] = holds["interfering"] = False
    why = {
        "load-bearing": _told(alone, "p_harm"),
        "interfering": _told({part.damage.measure: part for part in graded}, "p_help"),
        "none": _told(alone, "p_equal"),
    }
    for name in ("load-bearing", "interfering"):
        if not holds[name] and drawn is not None:
            why[name] += _resolution(drawn, alone["log_prob"].share, planned)
    p["redundant"], holds["redundant"] = 1.0, False
    why["redundant"] = "no complement was given, so that it was not tested"
    if jointly is not None:
        if unusable := next((part.unusable for part in jointly.values() if part.unusable), ""):
            why["redundant"] = f"with the complement removed nothing is left to lose: {unusable}"
            why["none"] += "; it may yet be redundant"
            holds["none"] = False
        else:
            joint, equal = (max(getattr(q, of) for q in jointly.values()) for of in ("p_harm", "p_equal"))
            p["redundant"] = max(p["none"], joint)
            why["redundant"] = (
                f"alone, {why['none']}; with the complement removed, {_told(jointly, 'p_harm')}"
            )
            holds["redundant"] = p["redundant"] <= LEVEL and equal > LEVEL
            # none by itself is not the end of it: the complement could have stood in
            p["none"] = max(p["none"], equal)
            why["none"] += f"; with the complement removed, {_told(jointly, 'p_equal')}"
            holds["none"] = p["none"] <= LEVEL
    # a name that another one overrules has no p-value that would establish it
    p |= {name: 1.0 for name in NAMES if not holds[name] and p[name] <= LEVEL}
    named = next((name for name in NAMES if holds[name]), None)
    found = {}
    for name in NAMES:
        if named is None or (name == "redundant" and named == "none" and jointly is None):
            found[name] = Label("undecided", why[name], p[name])
        elif name == named:
            found[name] = Label("supported", why[name], p[name])
        else:
            found[name] = Label("refuted", f"it is {named}: {why[named]}", p[name])
    if jointly is None:
        found["redundant"] = Label(found["redundant"].outcome, found["redundant"].reason)
    return found


def _told(parts: Mapping[str, Part], of: str) -> str:
    """The measures that pass and those that do not, with their p-values."""
    words = {
        "p_harm": "damage beyond controls",
        "p_help": "improvement beyond controls",
        "p_equal": "equivalence to controls",
    }
    listed = ", ".join(f"{name} p = {getattr(part, of):.2g}" for name, part in parts.items())
    return f"{words[of]}: {listed} (each must be at most {LEVEL})"


def _resolution(drawn: Controls, share: float, planned: int) -> str:
    if len(drawn.sets) < planned:
        return f"; measuring stopped at {len(drawn.sets)} of {planned} controls, and ranks are judged on all of them"
    least = exchangeable_p(1 / (len(drawn.sets) + 1), share)
    if least <= LEVEL:
        return ""
    more = "all that exist" if drawn.enumerated else "draw more"
    return f"; with {len(drawn.sets)} controls ({more}) rank p cannot fall below {least:.2g}"


def _hints(drawn: Controls, match: str) -> tuple[str, ...]:
    if drawn.enumerated and len(drawn.sets) < 39 and match == "layer":
        return (
            "match: kind draws from more sets, but does not tell a layer's importance from the circuit's",
        )
    return ()

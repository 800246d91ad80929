"""Gates: what must hold before a claim may be judged at all (claims.md, "Gates").

A gate gives the reason why the claim is invalid, with its numbers, or an empty string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from circuittest.circuit import prompt_digest
from circuittest.stats import Competence, PairedDifferenceInference, competence
from circuittest.tables import CONTRASTS
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

#: Mean headroom of the controls below this share of the base's means that the controls destroy the model too.
CONTROL_HEADROOM = 0.25


def usable_circuit(circuit: Circuit) -> str:
    """The circuit has units, and an empty one says why it is empty."""
    if circuit.edges:
        return "the circuit holds edges; this claim judges units"
    if circuit.units:
        return ""
    return f"the circuit is empty: {circuit.origin.get('empty') or 'it was given without units'}"


def disjoint(lab: Lab, circuit: Circuit) -> str:
    """No evaluation prompt took part in choosing the circuit."""
    return unseen(lab, circuit.seen(), "the circuit")


def unseen(lab: Lab, seen: frozenset[str], what: str) -> str:
    """No evaluation prompt is among those that chose something, whose digests are `seen`."""
    both = sum(prompt_digest(item.prompt_ids) in seen for item in lab.data.evaluate)
    if not both:
        return ""
    return (
        f"{both} of the {len(lab.data.evaluate)} evaluation prompts chose {what}; what chose a circuit must not "
        "judge it: use the seed and sizes that it was found with, or find it again"
    )


def comparable(lab: Lab, measure: str) -> str:
    """Where a measure compares answers with foils, every example has some."""
    without = sum(not item.foil_ids for item in lab.data.evaluate)
    if measure not in CONTRASTS or not without:
        return ""
    return (
        f"{without} of {len(lab.data.evaluate)} evaluation examples have no foils, so that there is no {measure}: use "
        "log_prob or argmax, which every task has"
    )


def competent(
    lab: Lab,
    universe: Sequence[Unit],
    accuracy: str,
    *,
    value: str = "zero",
    positions: str = "all",
    groups: Sequence[str] | None = None,
) -> Competence:
    """Is the model far enough above the floor of its task?

    The floor is the largest of: chance among the candidates, the accuracy of always giving the most frequent
    answer, the accuracy with every unit of the universe ablated, in the way (`value`, `positions`) of the claim.
    `groups`: one label per evaluation example; examples of one label are drawn together.
    """
    outcomes = lab.outcomes([(), tuple(universe)], value=value, positions=positions).measure(accuracy)
    return competence_of(lab, outcomes[0], outcomes[1], groups)


def competence_of(
    lab: Lab, base: np.ndarray, emptied: np.ndarray, groups: Sequence[str] | None = None
) -> Competence:
    """The same from accuracies [n] on the evaluation examples: untouched, and with the whole universe ablated."""
    return competence(
        base,
        chance=lab.data.chance,
        majority=majority(lab),
        ablated=emptied,
        groups=groups,
        headroom=lab.headroom,
    )


def majority(lab: Lab) -> np.ndarray:
    """[n] which examples the answer that is most often right is right on."""
    answers = [set(item.answer_ids) for item in lab.data.evaluate]
    ids = sorted(set().union(*answers))
    best = max(ids, key=lambda i: sum(i in a for a in answers))
    return np.array([best in a for a in answers], dtype=np.float64)


def controls_leave_headroom(gate: Competence, mean_controls: float, size: int) -> str:
    """The controls must not destroy the model as well."""
    base, left = gate.accuracy - gate.floor, mean_controls - gate.floor
    if left >= CONTROL_HEADROOM * base:
        return ""
    return (
        f"the control destroys the model too: mean accuracy under controls {mean_controls:.2f}, floor {gate.floor:.2f} "
        f"({gate.floor_name}), base {gate.accuracy:.2f}; a circuit of {size} units is too large to judge: lower K, "
        "restrict the universe, or use mean ablation or a graded metric"
    )


def controls_destroy(measure: str, base: float, controls: float, least: float) -> str:
    """Why the controls leave too little of a measure to lose, or "": its means on the model and under controls.

    `least`: what can be left of it, the floor of an accuracy or a graded measure with the universe ablated.
    """
    if base > least and controls - least >= CONTROL_HEADROOM * (base - least):
        return ""
    return (
        f"the control destroys the model too: mean {measure} {controls:.2f} under controls, floor {least:.2f}, base "
        f"{base:.2f}, so that no set can be told from them: judge a smaller circuit, or use mean ablation"
    )


def at_floor(
    ablated: np.ndarray,
    emptied: np.ndarray,
    chance: float,
    accuracy: str,
    groups: Sequence[str] | None = None,
) -> bool:
    """Is the accuracy under an ablation indistinguishable from the lowest that ablation reaches?

    The argmax over a vocabulary can fall to the accuracy with the whole universe ablated (`emptied`); a choice between
    candidates cannot be expected to fall below chance. `groups`: examples of one label are drawn together.
    """
    if accuracy == "candidates" and chance >= float(emptied.mean()):
        return float(ablated.mean()) <= chance
    return PairedDifferenceInference(ablated, emptied, groups).interval(0.95)[0] <= 0

"""Making the lock of a spec on its base model, and finding out whether a lock still belongs to its spec and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import ControlError, SpecError, UsageError
from circuittest.find.recipe import propose
from circuittest.lock import Lock, Locked, Ranking, lock_path, scored_digest, tokenizer_digest
from circuittest.spec.schema import ClaimSpec, Spec, compares

if TYPE_CHECKING:
    from circuittest.lab import Lab

#: Rankings of more members are not kept: a lock is a file that people look at.
MOST_MEMBERS = 4096


def make_lock(spec: Spec, lab: Lab, measured: Mapping[str, Any] | None = None) -> Lock:
    """Measure everything that a tuned model will be compared with.

    Parameters
    ----------
    lab:
        The base model on the spec's task.
    measured:
        Estimates by claim id that are there already.

    Raises UsageError for a model into which somebody put hooks.
    """
    from circuittest.claims.pairing import altered, weights_of_lab
    from circuittest.report.records import environment, plain

    if altered(lab):
        raise UsageError(
            f"no lock is made of {lab.model.name}",
            "somebody put hooks into it or patched a part, so that it computes something else than its weights say",
            "a lock knows its base by the weights: save the model as what it computes, or take the hooks out",
        )
    circuits: dict[str, Locked] = {}
    if spec.circuit is not None:
        source = spec.circuit
        found = lab.circuit(source) if isinstance(source, Circuit) else propose(lab, source)
        circuits["circuit"] = _measure(lab, found)
    for name in dict.fromkeys(claim.of for claim in spec.claims if claim.of and _has_baseline(claim)):
        circuits[name] = _measure(lab, lab.circuit(spec.groups[name]))
    claims = {}
    for claim in spec.claims:
        if _has_baseline(claim):
            continue
        estimate = (measured or {}).get(claim.id)
        if estimate is None:
            estimate = _estimate(spec, claim, lab, circuits)
        claims[claim.id] = {
            "claim": claim.claim,
            "estimate": plain(estimate.value),
            "interval": None if estimate.invalid else plain(estimate.interval),
            "invalid": estimate.invalid,
        }
    return Lock(
        model={
            "name": lab.model.name,
            "fingerprint": lab.fingerprint,
            "tokenizer": tokenizer_digest(getattr(lab.model, "tokenizer", None)),
            "dtype": str(lab.model.dtype).removeprefix("torch."),
        },
        layout=lab.layout,
        spec=asked(spec),
        discover=tuple(prompt_digest(item.prompt_ids) for item in lab.data.discover),
        evaluate=tuple(prompt_digest(item.prompt_ids) for item in lab.data.evaluate),
        circuits=circuits,
        claims=claims,
        made={key: value for key, value in environment().items() if isinstance(value, str)},
        scored=scored_digest(lab.data.evaluate),
        weights=weights_of_lab(lab),
    )


def asked(spec: Spec) -> dict[str, Any]:
    """What of a spec a lock depends on, in plain JSON types."""
    circuit = spec.circuit
    members = [str(one) for one in circuit] if isinstance(circuit, Circuit) else circuit
    return {
        "task": spec.task,
        "task_options": dict(spec.task_options),
        "circuit": dict(members) if isinstance(members, Mapping) else members,
    }


def check_lock(spec: Spec, lock: Lock, lab: Lab) -> None:
    """Refuse a model that the lock's circuit and examples cannot belong to. Raises SpecError naming the lock."""
    file = lock_path(spec.file).as_posix()
    if lab.layout != lock.layout:
        there, here = (layout.describe().removeprefix("it has ") for layout in (lock.layout, lab.layout))
        raise SpecError(
            "the lock is of another architecture",
            f"its base has {there}; the model has {here}",
            "judge a model that was tuned from the base, or write a spec of its own for this one",
            file=file,
        )
    tokenizer = tokenizer_digest(getattr(lab.model, "tokenizer", None))
    if tokenizer != lock.model["tokenizer"]:
        raise SpecError(
            "the lock was made with another tokenizer",
            f"the vocabulary's digest is {tokenizer or 'missing'} here and {lock.model['tokenizer'] or 'missing'} "
            "there, so that examples are not the same",
            "give the model the tokenizer of its base, or write a spec of its own for this one",
            file=file,
        )


def changes(old: Lock | None, new: Lock) -> list[str]:
    """What a new lock would change, a line each; empty where the files are the same."""
    if old is None:
        return ["there is no lock yet"]
    lines = []
    for key in sorted({*old.model, *new.model}):
        if old.model.get(key) != new.model.get(key):
            lines.append(f"model {key}: {old.model.get(key)} → {new.model.get(key)}")
    for name, before, after in (
        ("discovery", old.discover, new.discover),
        ("evaluation", old.evaluate, new.evaluate),
    ):
        if before != after:
            lines.append(f"{name} examples: {len(set(after) - set(before))} of {len(after)} are new")
    if old.scored != new.scored:
        lines.append("answers or foils of the evaluation examples changed")
    lines += [
        f"{key}: {old.made.get(key)} → {new.made[key]}"
        for key in new.made
        if old.made.get(key) != new.made[key]
    ]
    if dict(old.spec) != dict(new.spec):
        lines.append("the spec's task or circuit changed")
    for name in sorted({*old.circuits, *new.circuits}):
        before_, after_ = (
            set(one.circuits[name].circuit) if name in one.circuits else set() for one in (old, new)
        )
        lines += [f"{name}: - {member}" for member in sorted(map(str, before_ - after_))]
        lines += [f"{name}: + {member}" for member in sorted(map(str, after_ - before_))]
    for id_ in sorted({*old.claims, *new.claims}):
        before__, after__ = (_told(one.claims.get(id_)) for one in (old, new))
        if before__ != after__:
            lines.append(f"{id_}: {before__} → {after__}")
    if not lines and old.digest != new.digest:
        lines.append("outcomes of single examples")
    return lines


def _told(claim: Mapping[str, Any] | None) -> str:
    if claim is None:
        return "not measured"
    if claim["invalid"] or claim["estimate"] is None:
        return "invalid"
    low, high = (
        ("-∞", "∞")[side] if end is None else f"{end:.4g}"
        for side, end in enumerate(claim["interval"] or (None, None))
    )
    return f"{claim['estimate']:.4g} [{low}, {high}]"


def _has_baseline(claim: ClaimSpec) -> bool:
    """Is the claim about a difference from a lock?"""
    from circuittest.claims import claim_kind

    return compares(claim_kind(claim.claim).function)


def _estimate(spec: Spec, claim: ClaimSpec, lab: Lab, circuits: Mapping[str, Locked]) -> Any:
    from circuittest.claims import claim_kind

    circuit = None
    if claim_kind(claim.claim).takes_circuit:
        circuit = circuits["circuit"].circuit if claim.of is None else lab.circuit(spec.groups[claim.of])
    return lab.measure(claim.claim, circuit, **claim.options)


def _measure(lab: Lab, circuit: Circuit) -> Locked:
    from circuittest.claims.gates import usable_circuit
    from circuittest.claims.locked_rows import CONTROLS, SEED, outcomes_of
    from circuittest.claims.universe import circuit_universe
    from circuittest.controls import matched_controls

    ranking = _ranking(lab, circuit)
    if reason := usable_circuit(circuit):
        return Locked(circuit, None, ranking, reason)
    universe = lab.layout.universe(circuit_universe(circuit))
    try:
        drawn = matched_controls(circuit.units, universe, lab.layout, count=CONTROLS, seed=SEED)
    except ControlError as error:
        return Locked(circuit, None, ranking, str(error))
    return Locked(circuit, outcomes_of(lab, circuit, universe, drawn.sets), ranking)


def _ranking(lab: Lab, circuit: Circuit) -> Ranking | None:
    from circuittest.find.ranking import per_example
    from circuittest.find.recipe import recipe_of, scoring_of

    recipe = recipe_of(circuit.origin)
    if recipe is None or not lab.data.discover:
        return None
    table = lab.scores(**scoring_of(recipe))
    if len(table.members) > MOST_MEMBERS:
        return None
    inside = per_example(table, recipe["top"]).inside
    mean = np.abs(table.values).mean(0, dtype=np.float64)
    return Ranking(tuple(str(member) for member in table.members), inside, mean)


def refuse_other_weights(old: Lock, lab: Lab, accept: bool, file: str) -> None:
    """Raise UsageError where a lock would be written anew on other weights than its base's and nobody agreed."""
    if accept or old.model["fingerprint"] == lab.fingerprint:
        return
    raise UsageError(
        f"{file} is not updated on {lab.model.name}",
        f"its base is {old.model['name']} with the fingerprint {old.model['fingerprint'][:12]}, and this model has "
        f"{lab.fingerprint[:12]}: what drifted would become the baseline",
        "give the base model, or --circuit-accept-model where this one is to be the new base",
    )

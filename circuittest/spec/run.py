"""Judging a claim of a spec on a lab."""

from __future__ import annotations

from typing import Any, NoReturn

from circuittest.circuit import Circuit
from circuittest.claims.groups import Group, split
from circuittest.errors import CircuitError, CircuittestError, SpecError, TaskError, UnitError, UsageError
from circuittest.find.recipe import propose
from circuittest.lock import Lock, lock_path
from circuittest.spec.lock import check_lock
from circuittest.spec.schema import ClaimSpec, Spec, compares, spelled


def judge(spec: Spec, claim: ClaimSpec, lab: Any) -> Any:
    """Measure one claim on a lab and compare it with its threshold.

    Parameters
    ----------
    spec, claim:
        The file and one of its claims.
    lab:
        A `Lab` on one of the spec's models and its task.

    Returns
    -------
    Verdict
        Its truth was not taken yet. A claim that brings its own rule gives what its function gave.

    Raises
    ------
    SpecError
        The file asks for what this model or task does not have (a unit, a task, a combination of options), with line
        and column.
    """
    if spec.correction is None:
        return _alone(spec, claim, lab)
    from circuittest.spec.correction import bonferroni, corrected
    from circuittest.stats import Verdict, announce
    from circuittest.stats.listening import silence

    level = {"confidence": bonferroni(spec)}
    with silence():
        verdict = _alone(spec, claim, lab, **level)
        if isinstance(verdict, Verdict):
            verdict = corrected(spec, claim, lab, verdict, lambda other: _alone(spec, other, lab, **level))
    announce(getattr(verdict, "estimate", verdict))  # the corrected one, and of this claim alone
    return verdict


def _alone(spec: Spec, claim: ClaimSpec, lab: Any, **level: float) -> Any:
    """The verdict on one claim, as if the file held no other."""
    from circuittest.claims import claim_kind

    kind = claim_kind(claim.claim)
    if spec.lock is not None:
        check_lock(spec, spec.lock, lab)
    circuit = _circuit_of(spec, claim, lab) if kind.takes_circuit else None
    options = dict(claim.options)
    for name, value in options.items():
        if isinstance(value, Group):
            _check_group(spec, claim, lab, name, value)
    if compares(kind.function):
        options["baseline"] = _baseline(spec, claim)
    try:
        # The threshold is known before anything is measured, so measuring may stop once it is decided.
        threshold = None if isinstance(claim.threshold, str) else claim.threshold
        estimate = lab.measure(claim.claim, circuit, decide=threshold, **level, **options)
    except SpecError:
        raise
    except (TaskError, UsageError, CircuitError, UnitError) as error:
        if isinstance(error, TaskError) and "data" not in vars(lab):
            _at(spec, "task", error)
        what, line, column = error.what, claim.line, claim.column
        raise SpecError(what, error.why, error.do, file=spec.file, line=line, column=column) from error
    if claim.op is None or claim.threshold is None:
        return estimate
    if claim.op == "is":
        return estimate.labelled(claim.threshold)
    return estimate.compare(claim.op, claim.threshold)


def _circuit_of(spec: Spec, claim: ClaimSpec, lab: Any) -> Circuit:
    source = spec.circuit if claim.of is None else spec.groups[claim.of]
    place = claim.of or "circuit"
    try:
        if claim.of is None and spec.lock is not None and not spec.rediscover:
            locked = spec.lock.circuits["circuit"].circuit
            # reuse is a number of the recipe, which it follows on the model at hand
            if claim.claim != "reuse" or isinstance(source, Circuit) or _is_base(spec.lock, lab):
                return lab.circuit(_at_its_places(locked, spec.lock, claim, lab))
        if isinstance(source, Circuit):
            _check_members(spec, source, lab, place)
            return lab.circuit(source)
        return propose(lab, source or {})
    except TaskError as error:
        _at(spec, "task", error)
    except (UnitError, CircuitError, UsageError) as error:
        _at(spec, place, error)


def _at_its_places(circuit: Circuit, lock: Lock, claim: ClaimSpec, lab: Any) -> Circuit:
    """The locked circuit where its heads are in this model; a claim that compares with the lock finds them itself."""
    from circuittest.claims import claim_kind
    from circuittest.claims.pairing import moved
    from circuittest.weights import placed_circuit

    places = {} if compares(claim_kind(claim.claim).function) else moved(lock, lab)
    return placed_circuit(circuit, places) if places else circuit


def _is_base(lock: Lock, lab: Any) -> bool:
    return bool(lock.model["fingerprint"] == lab.fingerprint)


def _baseline(spec: Spec, claim: ClaimSpec) -> str:
    """The file of the lock that a claim compares with."""
    given = claim.options.get("baseline", "lock")
    if given != "lock":
        return str(spec.path.parent / given)
    if spec.lock is None:
        raise SpecError(
            f"{claim.claim} has no lock to compare with",
            f"there is no {lock_path(spec.path).name} beside the spec",
            "write it on the base model: pytest --circuit-update=new",
            file=spec.file,
            line=claim.line,
            column=claim.column,
        )
    return str(lock_path(spec.path))


def _check_members(spec: Spec, circuit: Circuit, lab: Any, place: str) -> None:
    """Refuse the first unit or edge that the model lacks at the place where the file names it."""
    layout = lab.layout
    for member in circuit:
        try:
            Circuit.of([member], layout=layout)
        except UnitError as error:
            key = f"{place}:{member}"
            _at(spec, key if key in spec.places else place, error)


def _check_group(spec: Spec, claim: ClaimSpec, lab: Any, option: str, group: Group) -> None:
    """Refuse the first unit of a group that the model lacks where the file names it."""
    for member in group.members:
        try:
            lab.layout.check([member.unit])
        except UnitError as error:
            name = split(group.name)[0]
            keys = (f"{name}:{member.unit}", f"{claim.index}.{spelled(option)}:{member}")
            _at(spec, next((key for key in keys if key in spec.places), keys[0]), error)


def _at(spec: Spec, key: str, error: CircuittestError) -> NoReturn:
    line, column = spec.places.get(key, (1, 1))
    raise SpecError(error.what, error.why, error.do, file=spec.file, line=line, column=column) from error

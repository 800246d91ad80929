"""Tables that are measured once: in this lab, and where it has a store, once for all runs on the same inputs.

What is kept in the store is found by everything that could change it: the model's weights and how it computes, the
token ids of the examples, every choice, this package's code, the libraries, and the machine as far as it decides bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from circuittest.lab.packing import pack, unpack
from circuittest.store import Entry, key_of, versions
from circuittest.store.keys import unchanged
from circuittest.store.watch import note

if TYPE_CHECKING:
    from circuittest.models.loaded import LoadedModel
    from circuittest.store import Store
    from circuittest.weights import Weights

T = TypeVar("T")


def kept(
    store: Store | None,
    model: LoadedModel,
    what: Mapping[str, Any],
    items: Mapping[str, Iterable[Any]],
    make: Callable[[], T],
) -> T:
    """What `make` gives (a table, or plain JSON types), from the store where it is there.

    Parameters
    ----------
    what:
        The measurement's name ("kind") and all its choices, in plain JSON types.
    items:
        The examples that it reads, by what they are for ("items", "calibration").
    """
    from circuittest.measure.memory import Fallbacks

    identity = identity_of(model)
    made, before = False, Fallbacks.count

    def really() -> T:
        nonlocal made
        made = True
        return make()

    def packed(value: T) -> Entry | None:
        # batches that were halved for want of memory are another layout than this machine's key says
        return pack(value) if Fallbacks.count == before and unchanged() else None

    if store is None or identity is None:
        found = really()
    else:
        description = {
            **what,
            "model": identity,
            "items": {name: digest(those) for name, those in items.items()},
            **surroundings(model),
        }
        found = store.once(key_of(description), really, pack=packed, unpack=unpack)
    note(found=not made)
    return found


def identity_of(model: LoadedModel) -> str | None:
    """What results of a model are kept under; None where they are not, as where somebody put hooks into it, or made a
    part of it compute something else.

    Raises UsageError where the weights changed since they were hashed.
    """
    from circuittest.models.hooks import altered
    from circuittest.models.lazy import identity_now

    identity: str | None = getattr(model, "identity", None)
    module = vars(model).get("module")
    if module is None:  # weights that were not read are those of the files
        return identity
    model.check_unchanged()
    if identity is None:
        return None
    return None if altered(module) else identity_now(model)


def checked(store: Store | None, model: LoadedModel) -> None:
    """Raise InterventionError where the model's preflight fails; one that passed is remembered."""
    from circuittest.models.preflight import require

    def passed() -> list[str]:
        require(model.checks)
        return [check.name for check in model.checks]

    identity = identity_of(model)
    if store is None or identity is None:
        passed()
    else:
        key = key_of({"kind": "preflight", "model": identity, **surroundings(model)})
        store.once(key, passed, pack=pack, unpack=unpack)


def weights_of(store: Store | None, model: LoadedModel) -> Weights | None:
    """Traces of the weights (`circuittest.models.traces`), which are read where the store has no traces of them."""
    from circuittest.models import traces

    identity = identity_of(model)
    if store is None or identity is None:
        return traces.weights_of(model)
    key = key_of({"kind": "weights", "model": identity, "versions": versions()})
    return store.once(key, lambda: traces.weights_of(model), pack=pack, unpack=unpack)


def surroundings(model: LoadedModel) -> dict[str, Any]:
    """What changes numbers besides the model, its inputs and the choices."""
    from circuittest.models.machine import machine

    return {"versions": versions(), "machine": machine(model.device)}


def digest(items: Iterable[Any]) -> str:
    """A hash of examples as models and metrics see them: token ids, answers, features."""
    whole = hashlib.sha256()
    for item in items:
        told = (
            item.index,
            item.prompt_ids,
            item.counterfactual_ids,
            item.answer_ids,
            item.foil_ids,
            getattr(item, "counterfactual_answer_ids", ()),
            getattr(item, "answer_rest", ()),
            sorted(getattr(item, "ends", ())),
            sorted((str(name), repr(value)) for name, value in getattr(item, "features", {}).items()),
        )
        whole.update(json.dumps(told, separators=(",", ":")).encode() + b"\n")
    return whole.hexdigest()

"""Direct paths: the edges that lead from some units to the reading slots of others, and through nothing between.

Slots are written as in edges: ``L5.H1.q`` (of a head or a KV group), ``L5.KV0.k``, ``L5.KV0.v``, ``L5.ATTN.q``,
``L5.MLP``, ``logits``. A unit without a slot is all of its slots. Keys and values are read once per KV head: where
several query heads share them, none of those heads has keys or values of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from circuittest.errors import UnitError, UsageError
from circuittest.units import Edge, Layout, Unit

#: A unit and one of its reading slots, as in `Layout.readers`.
Reader = tuple[Unit, str | None]

SLOTS = ("q", "k", "v")
_HOW = "write L5.H1.q, L5.KV0.k, L5.KV0.v, L5.ATTN.q, L5.MLP, logits, or a unit alone for all of its slots"


@dataclass(frozen=True)
class Paths:
    """The direct paths from some units to some reading slots of one architecture.

    Attributes
    ----------
    senders:
        Embedding, heads and MLPs, in canonical order.
    receivers:
        In the order of `Layout.readers`.
    edges:
        From every sender to every receiver that sees it, in canonical order.
    missing:
        Pairs ``"L5.H0 to L4.H1.q"`` between which nothing can run, because the receiver reads before the sender writes.
    """

    senders: tuple[Unit, ...]
    receivers: tuple[Reader, ...]
    edges: tuple[Edge, ...]
    missing: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, layout: Layout, senders: Iterable[Unit | str], receivers: Iterable[Unit | str | Reader]
    ) -> Paths:
        """The direct paths between two groups.

        Parameters
        ----------
        senders:
            Units or their ids; a KV group or an attention layer stands for its heads.
        receivers:
            Slots or whole units: ids (``"L5.H1.q"``, ``"L5.MLP"``), units, or pairs of a unit and a slot.

        Raises
        ------
        UsageError
            For an empty group and for a unit that is in both.
        UnitError
            For ids that cannot be read or that the model does not have, for slots that a unit does not have, and where
            every receiver reads before any sender writes.
        """
        senders, receivers = list(senders), list(receivers)
        for name, group in (("senders", senders), ("receivers", receivers)):
            if not group:
                raise UsageError(
                    f"no {name} were given", "a path runs from units to units", "name at least one"
                )
        sending, reading = writers(layout, senders), readers(layout, receivers)
        reads = {part for unit, _ in reading for part in layout.parts(unit)}
        if both := sorted(set(sending) & reads):
            raise UsageError(
                f"{both[0]} is in both groups",
                "nothing runs directly from a unit to itself",
                "leave it out of one",
            )
        pairs = [(sender, reader) for sender in sending for reader in reading]
        edges = [Edge(sender, *reader) for sender, reader in pairs if layout.sees(reader[0], sender)]
        if not edges:
            raise UnitError(
                f"no path runs from {_listed(sending)} to {_listed(map(name_of, reading))}",
                "every receiver reads before any sender writes",
                "exchange the groups, or choose later receivers",
            )
        missing = [
            f"{sender} to {name_of(reader)}" for sender, reader in pairs if not layout.sees(reader[0], sender)
        ]
        return cls(sending, reading, tuple(sorted(edges)), tuple(missing))


def leaving(layout: Layout, senders: Iterable[Unit]) -> tuple[Edge, ...]:
    """Every edge from some units: with all of them replaced a unit is replaced for the whole model."""
    found = [
        Edge(unit, *reader) for unit in senders for reader in layout.readers if layout.sees(reader[0], unit)
    ]
    return tuple(sorted(found))


def entering(layout: Layout, receivers: Iterable[Reader], kinds: Iterable[str]) -> tuple[Edge, ...]:
    """Every edge into some slots from units of some kinds."""
    units = layout.units(kinds)
    found = [Edge(unit, *reader) for unit in units for reader in receivers if layout.sees(reader[0], unit)]
    return tuple(sorted(found))


def writers(layout: Layout, units: Iterable[Unit | str]) -> tuple[Unit, ...]:
    """The distinct embedding, heads and MLPs that units stand for. Raises UnitError for units that write no edge."""
    given = [unit if isinstance(unit, Unit) else Unit.parse(unit) for unit in units]
    layout.check(given)
    for unit in given:
        if unit.kind not in ("embed", "head", "kv", "attn", "mlp"):
            raise UnitError(
                f"no path starts at {unit}",
                "paths start at the embedding, at heads (KV groups, attention layers) and at MLPs",
                "name the MLP that it is part of" if unit.layer is not None else "name an earlier unit",
            )
    return layout.expand(given)


def readers(layout: Layout, receivers: Iterable[Unit | str | Reader]) -> tuple[Reader, ...]:
    """The distinct slots that receivers stand for. Raises UnitError for a slot that a unit does not have."""
    asked: list[Reader] = []
    for receiver in receivers:
        unit, slot = receiver if isinstance(receiver, tuple) else parse_receiver(receiver)
        layout.check([unit])
        asked += _slots(layout, unit, slot)
    wanted = set(asked)
    for unit, slot in asked:
        if unit.kind == "head" and slot != "q":
            group = layout.kv_group(unit)
            others = [head for head in layout.parts(group) if (head, slot) not in wanted]
            if others:
                what = "keys" if slot == "k" else "values"
                raise UnitError(
                    f"{unit} has no {what} of its own",
                    f"it shares those of {group} with {_listed(others)}",
                    f"name {group}.{slot}, which all of them read, or {unit}.q",
                )
    found = {
        (layout.kv_group(unit), slot) if unit.kind == "head" and slot != "q" else (unit, slot)
        for unit, slot in wanted
    }
    return tuple(reader for reader in layout.readers if reader in found)


def parse_receiver(text: Unit | str) -> Reader:
    """A unit with the slot behind its id, None where there is none. Raises UnitError."""
    if isinstance(text, Unit):
        return text, None
    unit, dot, slot = text.rpartition(".") if isinstance(text, str) else ("", "", "")
    if dot and slot in SLOTS:
        return Unit.parse(unit), slot
    try:
        return Unit.parse(text), None
    except UnitError as error:
        why = f"a slot is {', '.join(SLOTS[:-1])} or {SLOTS[-1]}" if dot and slot.islower() else error.why
        raise UnitError(f"not a receiver: {text!r}", why, _HOW) from None


def name_of(reader: Reader) -> str:
    """A slot as it is written in edges."""
    unit, slot = reader
    return f"{unit}.{slot}" if slot else str(unit)


def _slots(layout: Layout, unit: Unit, slot: str | None) -> list[Reader]:
    """What one receiver asks for: keys and values of heads still stand at the head."""
    if unit.kind in ("mlp", "logits"):
        if slot is not None:
            what = "the logits have" if unit.kind == "logits" else f"{unit} has"
            raise UnitError(
                f"{what} no slot {slot!r}", "MLPs and logits read without a slot", f"write {unit}"
            )
        return [(unit, None)]
    if unit.kind not in ("head", "kv", "attn"):
        why = (
            "it reads nothing" if unit.kind == "embed" else "a part of an MLP has no reading slot of its own"
        )
        raise UnitError(f"{unit} cannot be a receiver", why, _HOW)
    if slot not in (None, *SLOTS):
        raise UnitError(f"{unit} has no slot {slot!r}", "heads read q, k and v", _HOW)
    return [(head, one) for head in layout.parts(unit) for one in (SLOTS if slot is None else (slot,))]


def _listed(things: Iterable[object]) -> str:
    names = [str(thing) for thing in things]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

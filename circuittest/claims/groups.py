"""Groups of units that the options of a claim name, as in ``path: {from: induction, to: name_movers.q, …}``.

An option annotated with `Group` is, in a spec, the name of one of the file's groups or a list of unit ids, with the
slot at which they are read where that matters; in Python also a `Circuit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from circuittest.circuit import Circuit
from circuittest.errors import UnitError, UsageError
from circuittest.units import Unit

SLOTS = ("q", "k", "v")
_WITH_SLOTS = ("head", "kv", "attn")


class Member(NamedTuple):
    """A unit, and one of its reading slots; None for the unit as a whole."""

    unit: Unit
    slot: str | None = None

    def __str__(self) -> str:
        return f"{self.unit}.{self.slot}" if self.slot else str(self.unit)

    @classmethod
    def parse(cls, text: str) -> Member:
        """Read ``L5.H1`` or ``L5.H1.q``. Raises UnitError."""
        bare, slot = split(text)
        return cls.of(Unit.parse(bare), slot)

    @classmethod
    def of(cls, unit: Unit, slot: str | None = None) -> Member:
        """Raises UnitError for a slot that units of this kind do not have."""
        if slot is not None and unit.kind not in _WITH_SLOTS:
            raise UnitError(
                f"{unit} has no slot {slot!r}",
                "queries, keys and values are read by heads, KV groups and attention layers",
                f"write {unit}",
            )
        return cls(unit, slot)


@dataclass(frozen=True)
class Group:
    """Named units that a claim refers to.

    Attributes
    ----------
    name:
        What the file calls them, with the slot, or their ids.
    members:
        In canonical order, each once.
    seen:
        Digests of the prompts that chose them, where they come from a circuit that knows (`Circuit.seen`).
    """

    name: str
    members: tuple[Member, ...]
    seen: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units, without their slots."""
        return tuple(dict.fromkeys(member.unit for member in self.members))

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of(cls, source: Group | Circuit | str | Iterable[str | Unit | Member]) -> Group:
        """A group from a circuit of units, from one id, or from several.

        Raises
        ------
        UnitError
            For what is no id, and for slots that a unit does not have.
        UsageError
            For an empty group, and a circuit of edges.
        """
        if isinstance(source, Group):
            return source
        if isinstance(source, Circuit):
            return cls.named(source.name, source)
        listed = [source] if isinstance(source, str) else list(source)
        members = [_member(one) for one in listed]
        return cls(_listed(members), _sorted(members))

    @classmethod
    def named(cls, name: str, circuit: Circuit, slot: str | None = None) -> Group:
        """The units of a circuit, read at a slot, under a name. Raises as `of`."""
        if circuit.edges:
            raise UsageError(f"{name} holds edges", "it is to be a group of units", "list units")
        members = [Member.of(unit, slot) for unit in circuit.units]
        return cls(f"{name}.{slot}" if slot else name, _sorted(members), circuit.seen())

    def at(self, slot: str) -> Group:
        """The same units, read at a slot. Raises UnitError for units that do not have it."""
        members = _sorted(Member.of(unit, slot) for unit in self.units)
        bare = self.name == _listed(self.members)
        return Group(_listed(members) if bare else f"{self.name}.{slot}", members, self.seen)


def split(text: str) -> tuple[str, str | None]:
    """``name_movers.q`` → ``name_movers`` and ``q``; a text without slot and None."""
    bare, dot, slot = text.rpartition(".")
    return (bare, slot) if dot and bare and slot in SLOTS else (text, None)


def referenced(text: str | list[str], groups: Mapping[str, Circuit]) -> Group:
    """What a spec means by a text or a list: a group of the file by its name, or ids. Raises UnitError."""
    if isinstance(text, str):
        name, slot = split(text)
        if name in groups:
            return Group.named(name, groups[name], slot)
    return Group.of(text)


def _member(source: Any) -> Member:
    if isinstance(source, Member):
        return Member.of(*source)
    return Member(source) if isinstance(source, Unit) else Member.parse(source)


def _sorted(members: Iterable[Member]) -> tuple[Member, ...]:
    found = tuple(sorted(set(members), key=lambda member: (member.unit.order, member.slot or "")))
    if not found:
        raise UsageError("a group is empty", "there is nothing that the claim is about", "list its units")
    return found


def _listed(members: Iterable[Member]) -> str:
    return ", ".join(map(str, _sorted(members)))

"""Tables as a store keeps them: arrays, and the rest in plain JSON types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from circuittest.find.roles.table import RoleTable, RoleTables
from circuittest.measure.attention import AttentionTable
from circuittest.measure.routing import RoutingTable
from circuittest.measure.signals import Signals
from circuittest.store import Entry
from circuittest.tables import Member, OutcomeTable, ScoreTable
from circuittest.units import parse
from circuittest.weights import Weights


def pack(made: Any) -> Entry:
    """A table, or plain JSON types, as they are kept."""
    if isinstance(made, Signals):
        parts = {"largest": pack(made.largest), "first": pack(made.first)}
        arrays = {name: part.arrays["values"] for name, part in parts.items()}
        return Entry(arrays, {"kind": "signals", **{name: part.meta for name, part in parts.items()}})
    if isinstance(made, Weights):
        return Entry({}, {"kind": "weights", **asdict(made)})
    if isinstance(made, RoleTables):
        first = next(iter(made.by_kind.values()))
        told = {
            kind: {"undefined": one.undefined, "choices": dict(one.choices)}
            for kind, one in made.by_kind.items()
        }
        meta = {"kind": "roles", "heads": ids([first.heads])[0], "examples": list(first.examples), "of": told}
        return Entry({kind: one.values for kind, one in made.by_kind.items()}, meta)
    if not isinstance(made, (ScoreTable, OutcomeTable, AttentionTable, RoutingTable)):
        return Entry({}, {"kind": "plain", "value": made})
    about = {"examples": list(made.examples), "choices": dict(made.choices)}
    if isinstance(made, OutcomeTable):
        return Entry(dict(made.columns), {"kind": "outcomes", "sets": ids(made.sets), **about})
    if isinstance(made, AttentionTable):
        where = {"lengths": list(made.lengths), "queries": list(made.queries), "heads": ids([made.heads])[0]}
        return Entry({"rows": made.rows}, {"kind": "attention", **where, **about})
    if isinstance(made, RoutingTable):
        return Entry({"values": made.values}, {"kind": "routing", "layers": list(made.layers), **about})
    members = [str(member) for member in made.members]
    return Entry({"values": made.values}, {"kind": "scores", "members": members, **about})


def unpack(entry: Entry) -> Any:
    """What was kept. Raises ValueError, KeyError or TypeError for something else."""
    meta, kind = entry.meta, entry.meta["kind"]
    if kind == "plain":
        return meta["value"]
    if kind == "signals":
        return Signals(*(_scores(entry.arrays[name], meta[name]) for name in ("largest", "first")))
    if kind == "weights":
        heads = tuple(tuple(layer) for layer in meta["heads"])
        return Weights(heads, str(meta["rest"]), tuple(map(float, meta["sample"])))
    if kind == "scores":
        return _scores(entry.arrays["values"], meta)
    examples = tuple(meta["examples"])
    if kind == "roles":
        units: Any = _members(meta["heads"])
        tables = {
            role: RoleTable(role, entry.arrays[role], units, examples, told["undefined"], told["choices"])
            for role, told in meta["of"].items()
        }
        return RoleTables(tables)
    if kind == "outcomes":
        known: dict[str, Member] = {}
        sets = tuple(_members(one, known) for one in meta["sets"])
        return OutcomeTable(sets, dict(entry.arrays), examples, meta["choices"])
    if kind == "attention":
        units = _members(meta["heads"])
        where = tuple(meta["lengths"]), tuple(meta["queries"])
        return AttentionTable(entry.arrays["rows"], units, examples, *where, meta["choices"])
    if kind == "routing":
        return RoutingTable(entry.arrays["values"], tuple(meta["layers"]), examples, meta["choices"])
    raise ValueError(f"its kind is {kind!r}")


def ids(sets: Iterable[Iterable[Any]]) -> list[list[str]]:
    """Units or edges of sets by their ids."""
    return [[str(member) for member in members] for members in sets]


def _scores(values: Any, meta: Any) -> ScoreTable:
    return ScoreTable(values, _members(meta["members"]), tuple(meta["examples"]), meta["choices"])


def _members(texts: Iterable[str], known: dict[str, Member] | None = None) -> tuple[Member, ...]:
    """Units or edges by their ids; one that occurs again is read once."""
    found = {} if known is None else known
    return tuple(found[text] if text in found else found.setdefault(text, parse(text)) for text in texts)

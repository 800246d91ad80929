"""Circuit: a named, immutable set of units or edges that remembers where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from circuittest.errors import CircuitError, UnitError
from circuittest.units import Edge, Layout, Unit

SCHEMA = "circuittest-circuit/1"


@dataclass(frozen=True)
class Circuit:
    """A set of units, of edges, or of both, in canonical order.

    Attributes
    ----------
    units, edges:
        Sorted and without repeats, whatever was passed in. Ids given as strings are parsed.
    name:
        For reports; no part of equality.
    layout:
        The architecture that the ids belong to, checked where given. Circuits of different layouts do not mix.
    origin:
        How it was found (method, K, P, universe, task, digests of the prompts …), plain JSON types.
        Claims read it to know which examples chose the circuit and how; no part of equality.
    """

    units: tuple[Unit, ...] = ()
    edges: tuple[Edge, ...] = ()
    name: str = field(default="circuit", compare=False)
    layout: Layout | None = field(default=None, compare=False)
    origin: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        units = {u if isinstance(u, Unit) else Unit.parse(u) for u in self.units}
        edges = {e if isinstance(e, Edge) else Edge.parse(e) for e in self.edges}
        object.__setattr__(self, "units", tuple(sorted(units)))
        object.__setattr__(self, "edges", tuple(sorted(edges)))
        if self.layout is not None:
            self.layout.check(self.units)
            for edge in self.edges:
                self.layout.check((edge.source, edge.target))
                if not self.layout.sees(edge.target, edge.source):
                    raise UnitError(
                        f"the model has no edge {edge}", "its target reads before its source writes"
                    )

    @classmethod
    def of(cls, ids: Iterable[str | Unit | Edge], **more: Any) -> Circuit:
        """A circuit from ids of units and edges in any order.

        >>> circuit = Circuit.of(["L4.H1", "L0.H3", "L4.H1"])
        >>> circuit.units
        (L0.H3, L4.H1)
        >>> (circuit - Circuit.of(["L0.H3"])).units
        (L4.H1,)
        """
        listed = [ids] if isinstance(ids, str) else list(ids)
        is_edge = [isinstance(i, Edge) or (isinstance(i, str) and "->" in i) for i in listed]
        edges = [i for i, edge in zip(listed, is_edge, strict=True) if edge]
        units = [i for i, edge in zip(listed, is_edge, strict=True) if not edge]
        return cls(tuple(units), tuple(edges), **more)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.units) + len(self.edges)

    def __iter__(self) -> Iterator[Unit | Edge]:
        yield from self.units
        yield from self.edges

    def __contains__(self, item: object) -> bool:
        return item in self.units or item in self.edges

    def __le__(self, other: Circuit) -> bool:
        """Is every member of this circuit one of the other's?"""
        self._check_mixes(other)
        return set(self) <= set(other)

    def __or__(self, other: Circuit) -> Circuit:
        return self._combine(other, "|", set(self) | set(other))

    def __and__(self, other: Circuit) -> Circuit:
        return self._combine(other, "&", set(self) & set(other))

    def __sub__(self, other: Circuit) -> Circuit:
        return self._combine(other, "-", set(self) - set(other))

    def __xor__(self, other: Circuit) -> Circuit:
        return self._combine(other, "^", set(self) ^ set(other))

    def _check_mixes(self, other: Circuit) -> None:
        if self.layout is not None and other.layout is not None and self.layout != other.layout:
            raise CircuitError(
                f"{self.name} and {other.name} belong to different architectures",
                f"{self.layout} and {other.layout}",
                "compare circuits of one architecture only",
            )

    def _combine(self, other: Circuit, sign: str, members: set[Unit | Edge]) -> Circuit:
        self._check_mixes(other)
        # Whatever chose either part has seen its examples, so the result must not be judged on them.
        origin = {
            "method": f"({self.name} {sign} {other.name})",
            "parts": [dict(self.origin), dict(other.origin)],
        }
        name = f"({self.name} {sign} {other.name})"
        return Circuit.of(members, name=name, layout=self.layout or other.layout, origin=origin)

    def counts(self) -> dict[str, int]:
        """How many units of each kind, kinds sorted by name."""
        kinds = sorted(unit.kind for unit in self.units)
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}

    def seen(self) -> frozenset[str]:
        """Digests of every prompt that took part in choosing this circuit (see `prompt_digest`)."""
        return frozenset(_seen(self.origin))

    def renamed(self, name: str) -> Circuit:
        """The same circuit under another name."""
        return Circuit(self.units, self.edges, name, self.layout, self.origin)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, members as ids; `from_dict` reads it back."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "layout": None if self.layout is None else self.layout.to_dict(),
            "units": [str(u) for u in self.units],
            "edges": [str(e) for e in self.edges],
            "origin": dict(self.origin),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Circuit:
        """Read what `to_dict` wrote. Raises CircuitError or UnitError."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise CircuitError(f"not a circuit file of schema {SCHEMA!r}", f"found {found!r}")
        unknown = set(data) - {"schema", "name", "layout", "units", "edges", "origin"}
        if unknown:
            raise CircuitError(f"unknown key {min(unknown)!r} in a circuit file", "", "remove it")
        try:
            layout = None if data.get("layout") is None else Layout(**data["layout"])
        except TypeError as error:
            raise CircuitError("a circuit file is malformed", str(error)) from error
        units, edges = data.get("units", []), data.get("edges", [])
        for name, ids in (("units", units), ("edges", edges)):
            if not isinstance(ids, list) or not all(isinstance(i, str) for i in ids):
                raise CircuitError(f"{name} of a circuit file must be a list of ids", f"found {ids!r:.60}")
        origin = data.get("origin") or {}
        if not isinstance(origin, Mapping):
            raise CircuitError(
                "origin of a circuit file must be a mapping", f"it is a {type(origin).__name__}"
            )
        return cls(tuple(units), tuple(edges), str(data.get("name", "circuit")), layout, origin)

    def save(self, path: str | Path) -> None:
        """Write the circuit as JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Circuit:
        """Read a circuit file. Raises CircuitError naming the file."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise CircuitError(
                f"cannot read the circuit file {path}", error.strerror or str(error)
            ) from error
        except (ValueError, RecursionError) as error:  # bad JSON and bad UTF-8 alike
            raise CircuitError(f"the circuit file {path} is not JSON", str(error)) from error
        try:
            return cls.from_dict(data)
        except (CircuitError, UnitError) as error:
            raise CircuitError(f"the circuit file {path} cannot be used", str(error)) from error

    def __repr__(self) -> str:
        members = ", ".join(str(m) for m in list(self)[:12])
        return f"Circuit({self.name}: {members}{', …' if len(self) > 12 else ''})"


def prompt_digest(prompt_ids: Iterable[int]) -> str:
    """Twelve hex digits that identify a prompt by its token ids, kept in `Circuit.origin["prompts"]`."""
    return sha256(",".join(str(int(i)) for i in prompt_ids).encode()).hexdigest()[:12]


def _seen(origin: Mapping[str, Any]) -> Iterator[str]:
    for part in origin.get("parts", ()):
        yield from _seen(part)
    yield from origin.get("prompts", ())

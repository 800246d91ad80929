"""Units and edges of a decoder's computation graph, their ids, and the layout of one architecture.

Ids are the same everywhere (files, errors, reports, API): ``L3.H5`` query head, ``L3.KV1`` KV group,
``L3.ATTN`` attention layer, ``L3.E12`` expert, ``L3.MLP``, ``L3.N401`` MLP neuron, ``embed``, ``logits``.
An edge is a unit and a reading slot of a later unit: ``L0.H3->L4.H1.q``, ``L0.MLP->L4.KV0.k``,
``embed->L2.MLP``, ``L9.H2->logits``. Keys and values are read once per KV head, so k and v edges end in
KV groups, q edges in heads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from circuittest.errors import UnitError, did_you_mean

KINDS = ("embed", "head", "kv", "attn", "expert", "mlp", "neuron", "logits")
_TAGS = {"head": "H", "kv": "KV", "attn": "ATTN", "expert": "E", "mlp": "MLP", "neuron": "N"}
_KIND_OF_TAG = {tag: kind for kind, tag in _TAGS.items()}
_UNIT = re.compile(r"L(0|[1-9]\d{0,8})\.(?:(H|KV|E|N)(0|[1-9]\d{0,8})|(ATTN|MLP))")
_HOW = "write L3.H5 (head), L3.KV1 (KV group), L3.ATTN, L3.MLP, L3.E12 (expert), L3.N401 (neuron), embed or logits"

#: What a universe may be called in specs and calls, and the kinds it ranks.
UNIVERSES: Mapping[str, tuple[str, ...]] = {
    "all": ("head", "mlp"),
    "heads": ("head",),
    "mlps": ("mlp",),
    "kv": ("kv",),
    "attn": ("attn",),
    "experts": ("expert",),
    "neurons": ("neuron",),
}
_UNIVERSE_HOW = f"use one of {', '.join(UNIVERSES)}"


@dataclass(frozen=True, slots=True)
class Unit:
    """A node of the computation graph. `layer` and `index` are None where the kind has none."""

    kind: str
    layer: int | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        layered, indexed = (
            self.kind not in ("embed", "logits"),
            self.kind in ("head", "kv", "expert", "neuron"),
        )
        if (
            self.kind not in KINDS
            or layered != (self.layer is not None)
            or indexed != (self.index is not None)
        ):
            raise UnitError(
                f"no such unit: kind {self.kind!r}, layer {self.layer}, index {self.index}",
                "a kind has a layer and an index exactly where its id shows one",
                _HOW,
            )
        if (self.layer or 0) < 0 or (self.index or 0) < 0:
            raise UnitError(f"no such unit: layer {self.layer}, index {self.index}", "both count from 0")

    @classmethod
    def parse(cls, text: str) -> Unit:
        """Read a unit id. Raises UnitError where it is not one."""
        if text in ("embed", "logits"):
            return cls(text)
        match = _UNIT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UnitError(f"not a unit id: {text!r}", "", _HOW)
        layer, tag, index, bare = match.groups()
        return cls(_KIND_OF_TAG[tag or bare], int(layer), None if index is None else int(index))

    def __str__(self) -> str:
        if self.layer is None:
            return self.kind
        return f"L{self.layer}.{_TAGS[self.kind]}{'' if self.index is None else self.index}"

    __repr__ = __str__

    @property
    def order(self) -> tuple[int, int, int]:
        """Canonical order: embed, then layer by layer heads, KV groups, attention, experts, MLP, neurons; logits."""
        layer = {"embed": -1, "logits": 1 << 30}.get(self.kind, self.layer)
        return (layer if layer is not None else 0, KINDS.index(self.kind), self.index or 0)

    def __lt__(self, other: Unit) -> bool:
        return self.order < other.order


@dataclass(frozen=True, slots=True)
class Edge:
    """`source` writes what `target` reads in `slot` (q of a head, k or v of a KV group, else None)."""

    source: Unit
    target: Unit
    slot: str | None = None

    def __post_init__(self) -> None:
        slots = {"head": ("q",), "kv": ("k", "v"), "mlp": (None,), "logits": (None,)}.get(
            self.target.kind, ()
        )
        if self.slot not in slots or self.source.kind == "logits":
            raise UnitError(
                f"no such edge: {self.source} to {self.target}, slot {self.slot!r}",
                "heads read q, KV groups read k and v, MLPs and logits read without a slot",
                "write L0.H3->L4.H1.q, L0.MLP->L4.KV0.k, embed->L2.MLP or L9.H2->logits",
            )

    @classmethod
    def parse(cls, text: str) -> Edge:
        """Read an edge id. Raises UnitError where it is not one."""
        source, arrow, rest = text.partition("->") if isinstance(text, str) else (text, "", "")
        if not arrow:
            raise UnitError(
                f"not an edge id: {text!r}", "it has no '->'", "write L0.H3->L4.H1.q or L9.H2->logits"
            )
        target, slot = (rest[:-2], rest[-1]) if rest.endswith((".q", ".k", ".v")) else (rest, None)
        return cls(Unit.parse(source), Unit.parse(target), slot)

    def __str__(self) -> str:
        return f"{self.source}->{self.target}" + (f".{self.slot}" if self.slot else "")

    __repr__ = __str__

    @property
    def order(self) -> tuple[object, ...]:
        """Canonical order: by source, then target, then slot."""
        return (self.source.order, self.target.order, self.slot or "")

    def __lt__(self, other: Edge) -> bool:
        return self.order < other.order


def parse(text: str) -> Unit | Edge:
    """Read the id of a unit or of an edge. Raises UnitError.

    >>> parse("L3.H5").layer
    3
    >>> parse("L0.H3->L4.KV0.k").target
    L4.KV0
    """
    return Edge.parse(text) if isinstance(text, str) and "->" in text else Unit.parse(text)


@dataclass(frozen=True)
class Layout:
    """All units of one architecture.

    Attributes
    ----------
    n_layers, n_heads, n_kv_heads:
        Blocks, query heads per block and KV heads per block.
    parallel:
        True where attention and MLP of a block read the same residual (GPT-NeoX, GPT-J, Phi), so that no
        edge runs from a head to the MLP of its own block.
    n_neurons, n_experts:
        Hidden units of an MLP and experts of a mixture, 0 where there are none or they are not addressable: one
        number for all layers, or where they differ one for each.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    parallel: bool = False
    n_neurons: int | tuple[int, ...] = 0
    n_experts: int | tuple[int, ...] = 0

    def __post_init__(self) -> None:
        sizes = [self.n_layers, self.n_heads, self.n_kv_heads]
        for name in ("n_neurons", "n_experts"):
            given = getattr(self, name)
            each = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            sizes += each
            if isinstance(given, (tuple, list)) and len(given) != self.n_layers:
                raise UnitError(
                    f"no such layout: {name} of {len(given)} layers", f"it has {self.n_layers} layers"
                )
            # Equal layouts are equal however they were written.
            object.__setattr__(self, name, each[0] if len(set(each)) == 1 else each)
        if any(isinstance(size, bool) or not isinstance(size, int) for size in sizes) or min(sizes) < 0:
            raise UnitError(f"no such layout: sizes {sizes}", "sizes are whole numbers, none below zero")
        if min(self.n_layers, self.n_heads, self.n_kv_heads) < 1 or self.n_heads % self.n_kv_heads:
            raise UnitError(
                f"no such layout: {self.n_layers} layers, {self.n_heads} heads, {self.n_kv_heads} KV heads",
                "all are at least 1 and each KV head serves the same number of query heads",
            )

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head."""
        return self.n_heads // self.n_kv_heads

    def count(self, kind: str, layer: int) -> int:
        """How many units of a kind the block of some layer has."""
        own = {"expert": self.n_experts, "neuron": self.n_neurons}
        if kind in own:
            number = own[kind]
            return number if isinstance(number, int) else number[layer]
        return {"head": self.n_heads, "kv": self.n_kv_heads, "attn": 1, "mlp": 1}[kind]

    def units(self, kinds: Iterable[str] = ("head", "mlp")) -> tuple[Unit, ...]:
        """All units of the given kinds in canonical order. Raises UnitError for an unknown kind."""
        wanted = set(kinds)
        if unknown := wanted - set(KINDS):
            raise UnitError(f"unknown kind of unit {min(unknown)!r}", "", did_you_mean(min(unknown), KINDS))
        found = [Unit("embed")] if "embed" in wanted else []
        for layer in range(self.n_layers):
            for kind in KINDS:
                if kind not in wanted or kind in ("embed", "logits"):
                    continue
                bare = kind in ("attn", "mlp")
                found += [Unit(kind, layer, None if bare else i) for i in range(self.count(kind, layer))]
        return tuple(found + ([Unit("logits")] if "logits" in wanted else []))

    def universe(self, name: str | Iterable[str]) -> tuple[Unit, ...]:
        """The units that discovery ranks: a name ('all', 'heads', 'mlps', …) or a list of kinds or names."""
        names = [name] if isinstance(name, str) else list(name)
        kinds: list[str] = []
        for one in names:
            if not isinstance(one, str):
                raise UnitError(f"a universe is a name or a list of kinds, not {one!r}", "", _UNIVERSE_HOW)
            if one in UNIVERSES:
                kinds += UNIVERSES[one]
            elif one in KINDS and one not in ("embed", "logits"):
                kinds.append(one)
            else:
                raise UnitError(f"unknown universe {one!r}", "", did_you_mean(one, UNIVERSES))
        units = self.units(kinds)
        if not units:
            raise UnitError(
                f"the universe {name!r} is empty", self._without(kinds[0] if kinds else ""), _UNIVERSE_HOW
            )
        return units

    def __contains__(self, unit: object) -> bool:
        if not isinstance(unit, Unit):
            return False
        if unit.layer is None:
            return True
        return unit.layer < self.n_layers and (unit.index or 0) < self.count(unit.kind, unit.layer)

    def check(self, units: Iterable[Unit]) -> None:
        """Raise UnitError for the first unit that this architecture does not have."""
        for unit in units:
            if unit not in self:
                some = unit.kind not in ("expert", "neuron") or any(
                    self.count(unit.kind, layer) for layer in range(self.n_layers)
                )
                why = self.describe() if some else self._without(unit.kind)
                raise UnitError(f"the model has no {unit}", why, "correct the id")

    def describe(self) -> str:
        """The sizes in words, for messages."""
        text = f"it has layers L0 to L{self.n_layers - 1}, heads H0 to H{self.n_heads - 1}"
        text += f" and KV groups KV0 to KV{self.n_kv_heads - 1} in each"
        for word, kind, tag in (("experts", "expert", "E"), ("MLP neurons", "neuron", "N")):
            where: dict[int, list[str]] = {}
            for layer in range(self.n_layers):
                where.setdefault(self.count(kind, layer), []).append(f"L{layer}")
            for number, layers in where.items():
                if number:
                    text += f", {word} {tag}0 to {tag}{number - 1}"
                    text += f" in {', '.join(layers)}" if len(where) > 1 else ""
        return text

    @staticmethod
    def _without(kind: str) -> str:
        """Why an architecture has no units of a kind."""
        return {
            "expert": "none of its layers is a mixture of experts whose experts are known one by one",
            "neuron": "no projection is known whose input are its MLPs' neurons",
        }.get(kind, "this architecture has no such units")

    def kv_group(self, head: Unit) -> Unit:
        """The KV group that a query head belongs to."""
        return Unit("kv", head.layer, (head.index or 0) // self.group_size)

    def parts(self, unit: Unit) -> tuple[Unit, ...]:
        """What an intervention on a unit touches: a KV group or attention layer is its heads, others themselves."""
        if unit.kind == "kv":
            first = (unit.index or 0) * self.group_size
            return tuple(Unit("head", unit.layer, first + i) for i in range(self.group_size))
        if unit.kind == "attn":
            return tuple(Unit("head", unit.layer, i) for i in range(self.n_heads))
        return (unit,)

    def expand(self, units: Iterable[Unit]) -> tuple[Unit, ...]:
        """The distinct parts of all units, in canonical order."""
        return tuple(sorted({part for unit in units for part in self.parts(unit)}))

    @cached_property
    def readers(self) -> tuple[tuple[Unit, str | None], ...]:
        """Every reading slot in the order of the forward pass: per block q of heads, k and v of KV groups, MLP."""
        slots: list[tuple[Unit, str | None]] = []
        for layer in range(self.n_layers):
            slots += [(Unit("head", layer, i), "q") for i in range(self.n_heads)]
            slots += [(Unit("kv", layer, i), "k") for i in range(self.n_kv_heads)]
            slots += [(Unit("kv", layer, i), "v") for i in range(self.n_kv_heads)]
            slots.append((Unit("mlp", layer), None))
        return (*slots, (Unit("logits"), None))

    @cached_property
    def writers(self) -> tuple[Unit, ...]:
        """Every unit that adds to the residual, in canonical order: embed, then heads and MLP of each block."""
        return self.units(("embed", "head", "mlp"))

    def sees(self, target: Unit, source: Unit) -> bool:
        """True where `target` reads a residual that `source` has already written to."""
        if source.kind == "embed" or target.kind == "logits":
            return source.kind != "logits"
        if target.layer is None or source.layer is None:
            return False
        if source.layer != target.layer:
            return source.layer < target.layer
        return source.kind == "head" and target.kind == "mlp" and not self.parallel

    def edges(self) -> Iterator[Edge]:
        """Every edge, in canonical order."""
        for source in self.writers:
            for target, slot in sorted(self.readers, key=lambda reader: (reader[0].order, reader[1] or "")):
                if self.sees(target, source):
                    yield Edge(source, target, slot)

    def to_dict(self) -> dict[str, int | bool | list[int]]:
        """Plain JSON types; `Layout(**d)` reads it back."""
        plain = lambda number: number if isinstance(number, int) else list(number)
        return {
            "n_layers": self.n_layers,
            "n_heads": self.n_heads,
            "n_kv_heads": self.n_kv_heads,
            "parallel": self.parallel,
            "n_neurons": plain(self.n_neurons),
            "n_experts": plain(self.n_experts),
        }

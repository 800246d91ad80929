"""What a lock remembers of a model's weights: enough to tell heads that changed places, and another training run.

Drift is positional: it compares L2.H1 of one model with L2.H1 of another. That means something where one was trained
from the other. It means nothing where the heads of a layer changed places, nor between runs that began from other
random weights. `circuittest.models.traces` reads all this off a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from circuittest.circuit import Circuit
from circuittest.units import Edge, Layout, Unit

#: Numbers in a sample of weights: the standard error of a correlation of zero is 0.03.
SAMPLE = 1024
#: Weights that correlate less than this are of runs with nothing in common (docs/fine-tunes.md has what was measured).
RELATED = 0.2


@dataclass(frozen=True)
class Weights:
    """Traces of a model's weights.

    Attributes
    ----------
    heads:
        Layer by layer, a digest of everything that belongs to each head: its query, its group's key and value, and what
        it writes with. Empty where heads may not be exchanged (their place enters the attention itself).
    rest:
        A digest of all other weights and of the configuration.
    sample:
        [SAMPLE] single weights of the blocks, each relative to the root mean square of its matrix, always from the same
        places.
    """

    heads: tuple[tuple[str, ...], ...]
    rest: str
    sample: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `from_dict` reads them back."""
        return {
            "heads": [" ".join(layer) for layer in self.heads],
            "rest": self.rest,
            "sample": " ".join(f"{value:.3g}" for value in self.sample),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Weights:
        """Raises KeyError, TypeError, ValueError or AttributeError for what is no such thing."""
        sample = tuple(float(word) for word in data["sample"].split())
        if len(sample) != SAMPLE or not np.isfinite(sample).all():
            raise ValueError(f"a sample of weights has {len(sample)} numbers, or some that are not finite")
        return cls(tuple(tuple(layer.split()) for layer in data["heads"]), str(data["rest"]), sample)


def correlation(one: Weights, other: Weights) -> float | None:
    """Of the samples: near 1 after a fine-tune, near 0 for another run; None where one is constant."""
    a, b = np.array(one.sample), np.array(other.sample)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def exchanged(base: Weights, here: Weights, layout: Layout) -> dict[Unit, Unit] | None:
    """Where each head and KV group of the base is here: {} where all are in their place.

    None where the models differ in more than the order of heads within layers, or where no whole KV group is found.
    """
    if not base.heads or base.rest != here.rest or len(base.heads) != len(here.heads):
        return None
    moved: dict[Unit, Unit] = {}
    size = layout.group_size
    for layer, (before, after) in enumerate(zip(base.heads, here.heads, strict=True)):
        if sorted(before) != sorted(after):
            return None
        places: dict[str, list[int]] = {}
        for index, digest in enumerate(after):
            places.setdefault(digest, []).append(index)
        # equal heads, as two that write nothing, stay where they are if they can
        stays = {i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old == new}
        for index in stays:
            places[before[index]].remove(index)
        now = [index if index in stays else places[digest].pop(0) for index, digest in enumerate(before)]
        for index, to in enumerate(now):
            if index != to:
                moved[Unit("head", layer, index)] = Unit("head", layer, to)
        for group in range(layout.n_kv_heads):
            homes = {to // size for to in now[group * size : (group + 1) * size]}
            if len(homes) > 1:  # its heads went to several: groups with equal keys and values, mixed anew
                return None
            if homes != {group}:
                moved[Unit("kv", layer, group)] = Unit("kv", layer, homes.pop())
    return moved


def placed_circuit(circuit: Circuit, moved: Mapping[Unit, Unit]) -> Circuit:
    """A circuit of units and edges of the base, where they are now."""
    at = lambda unit: moved.get(unit, unit)
    units = tuple(sorted(map(at, circuit.units)))
    edges = tuple(sorted(Edge(at(edge.source), at(edge.target), edge.slot) for edge in circuit.edges))
    return Circuit(units, edges, circuit.name, circuit.layout, circuit.origin)

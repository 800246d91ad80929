"""Scans of single units and greedy orders: what each head, KV group or MLP does when it alone is ablated, and how the
damage grows when they are ablated one after the other (Venkatesh, arXiv 2605.08853).

The effect of a unit is the fall of the metric, example by example, when it is ablated; no gradient is involved. An
order that comes from a scan was chosen by its examples, so that its damage is measured on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from circuittest.errors import UsageError, did_you_mean
from circuittest.stats.crossing import CrossingInference
from circuittest.stats.mean import MeanInference
from circuittest.stats.resampling import Floats
from circuittest.units import Layout, Unit

#: Every size up to this many members is measured; beyond, each is at least a tenth larger than the last.
EVERY_SIZE = 32
#: What one member of a scan can be.
PER = ("head", "kv", "group", "attn", "mlp")

#: The metric [sets × examples] with each set of units ablated.
Measure = Callable[[Sequence[tuple[Unit, ...]]], Floats]


@dataclass(frozen=True)
class Member:
    """What is ablated as one: a head, a KV group, some neighbouring heads of a layer, an attention layer, an MLP."""

    name: str
    units: tuple[Unit, ...]
    layer: int


def members_of(layout: Layout, per: str, size: int = 0) -> tuple[Member, ...]:
    """All heads, KV groups, attention layers or MLPs, or all runs of `size` neighbouring heads, layer by layer.

    Raises UsageError for another kind, and for a size that does not divide the heads of a layer.
    """
    if per not in PER:
        raise UsageError(f"unknown member {per!r}", "", did_you_mean(per, PER))
    if (per == "group") != (size > 0) or (size and layout.n_heads % size):
        raise UsageError(
            f"size is {size} for per = {per!r}",
            f"groups have a size that divides the {layout.n_heads} heads of a layer, and nothing else has one",
        )
    if per != "group":
        return tuple(Member(str(unit), (unit,), unit.layer or 0) for unit in layout.units((per,)))
    found = []
    for layer in range(layout.n_layers):
        for first in range(0, layout.n_heads, size):
            heads = tuple(Unit("head", layer, first + i) for i in range(size))
            found.append(Member(f"L{layer}.H{first}-{first + size - 1}", heads, layer))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Scan:
    """What every member does by itself.

    Attributes
    ----------
    members:
        In canonical order.
    base:
        [n] the metric of the untouched model.
    lost:
        [members × n] how much of it each member's ablation takes.
    emptied:
        [n] the metric with everything ablated.
    order:
        Positions of members, in which they are ablated one after the other.
    choices:
        Everything that could have changed the numbers, plain JSON types.
    """

    members: tuple[Member, ...]
    base: Floats
    lost: Floats
    emptied: Floats
    order: tuple[int, ...]
    choices: dict[str, Any] = field(default_factory=dict)

    @property
    def reach(self) -> Floats:
        """[n] how much of the metric there is to lose."""
        return self.base - self.emptied

    @property
    def effects(self) -> Floats:
        """[members] mean fall of the metric."""
        means: Floats = self.lost.mean(1)
        return means

    @property
    def ordered(self) -> tuple[Member, ...]:
        """The members in the order of their ablation."""
        return tuple(self.members[i] for i in self.order)

    def interval(self, position: int, confidence: float = 0.95) -> tuple[float, float]:
        """Of one member's effect. The largest of many is biased upward: judge it on other examples."""
        return MeanInference(self.lost[position], bounds=None).interval(confidence)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; members in canonical order."""
        return {
            "base": float(self.base.mean()),
            "all_ablated": float(self.emptied.mean()),
            "effects": {
                member.name: {"effect": float(effect), "interval": [_finite(end) for end in self.interval(i)]}
                for i, (member, effect) in enumerate(zip(self.members, self.effects, strict=True))
            },
            "order": [member.name for member in self.ordered],
            "choices": dict(self.choices),
        }


def scan(measure: Measure, members: Sequence[Member], everything: Sequence[Unit], **choices: Any) -> Scan:
    """Ablate every member by itself; they are ordered by their mean effects, equal ones canonically."""
    table = measure([(), tuple(everything), *(member.units for member in members)])
    lost = table[0] - table[2:]
    order = np.argsort(-lost.mean(1), kind="stable")
    return Scan(tuple(members), table[0], lost, table[1], tuple(int(i) for i in order), dict(choices))


def greedy(measure: Measure, found: Scan, damage: float) -> tuple[int, ...]:
    """The order in which each next member adds most to those before it, until `damage` of the reach is done.

    All that are left are ablated again together with those before; the rest follow in the order of the scan. Partners
    that do nothing alone are found only here, and only once one of them is in.

    Raises UsageError where ablating everything costs nothing, so that there is no share of it.
    """
    whole = _positive(found.reach)
    chosen = [found.order[0]]
    done = float(found.effects[chosen[0]])
    while done < damage * whole and len(chosen) < len(found.members):
        left = [i for i in found.order if i not in chosen]
        before = tuple(unit for i in chosen for unit in found.members[i].units)
        lost = found.base - measure([(*before, *found.members[i].units) for i in left])
        best = int(np.argmax(lost.mean(1)))
        chosen.append(left[best])
        done = float(lost[best].mean())
    return (*chosen, *(i for i in found.order if i not in chosen))


@dataclass(frozen=True, eq=False)
class Damage:
    """How the damage grows with the number of members ablated, on examples that did not choose their order.

    Attributes
    ----------
    sizes:
        Numbers of members; the last is all of them.
    base, emptied:
        [n] the metric of the untouched model, and with everything ablated.
    lost:
        [sizes × n] fall of the metric with the first of them ablated.
    """

    sizes: tuple[int, ...]
    base: Floats
    emptied: Floats
    lost: Floats

    @property
    def reach(self) -> Floats:
        """[n] how much of the metric there is to lose."""
        return self.base - self.emptied

    @property
    def curve(self) -> dict[int, float]:
        """Size → share of the reach; it may exceed 1 and need not rise. Raises UsageError where there is no reach."""
        span = _positive(self.reach)
        return {k: float(row.mean() / span) for k, row in zip(self.sizes, self.lost, strict=True)}

    def units_to(self, level: float = 0.8, seed: int = 0) -> CrossingInference:
        """The smallest number from which on the damage is at least `level`, with its interval."""
        return CrossingInference(self.lost, self.reach, self.sizes, level=level, seed=seed)


def damage(
    measure: Measure, ordered: Sequence[Member], everything: Sequence[Unit], sizes: Sequence[int] = ()
) -> Damage:
    """Ablate the first members of an order together, for every size (by default those of `curve_sizes`)."""
    counts = list(sizes) or curve_sizes(len(ordered))
    prefixes = [tuple(unit for member in ordered[:k] for unit in member.units) for k in counts]
    table = measure([(), tuple(everything), *prefixes])
    return Damage(tuple(counts), table[0], table[1], table[0] - table[2:])


def curve_sizes(count: int) -> list[int]:
    """Which numbers of members are measured; the last is all."""
    found = list(range(1, min(count, EVERY_SIZE) + 1))
    while found[-1] < count:
        found.append(min(count, max(found[-1] + 1, int(found[-1] * 1.1))))
    return found


def _positive(reach: Floats) -> float:
    """Its mean. Raises UsageError where nothing may be divided by it."""
    mean = float(reach.mean())
    if not mean > 0:
        raise UsageError(
            f"ablating everything changes the metric by {-mean:.3g}",
            "there is nothing to lose of which a share could be taken",
            "use another metric, ablation or task",
        )
    return mean


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

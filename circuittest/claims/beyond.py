"""Damage beyond matched controls: what closure, graded necessity and selective ablation measure in common.

*Own damage* of a set S is m(∅) - m(S); *beyond controls* it is (mean over all matched sets C of m(C)) - m(S). Both are
positive where ablating S hurts. As a *share* they are divided by the reach m(∅) - m(floor), the floor being the whole
universe ablated in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from circuittest.claims.kept import Range, reach
from circuittest.controls import Controls, matched_controls, strata
from circuittest.errors import ControlError
from circuittest.stats import (
    DRAWS,
    GradedNecessityInference,
    Inference,
    MeanInference,
    NecessityInference,
    RankP,
    RatioInference,
    rank_p,
)
from circuittest.stats.resampling import Floats
from circuittest.stats.two_way import TwoWayInference
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.lab import Lab

#: Measures with values 0 and 1.
ACCURACIES = ("argmax", "candidates")


@dataclass(frozen=True)
class Damage:
    """One measure under the ablation of a set and of its controls.

    Attributes
    ----------
    measure:
        Column of the outcome table.
    base, ablated, emptied:
        [n] with nothing, with the set, and with the whole universe ablated.
    controls:
        [R × n] with each control set ablated.
    drawn:
        The control sets.
    seed, draws:
        Of the resampling.
    groups:
        Labels of examples that are drawn together, or None.
    """

    measure: str
    base: Floats
    ablated: Floats
    emptied: Floats
    controls: Floats
    drawn: Controls
    seed: int
    draws: int = DRAWS
    groups: Sequence[str] | None = None

    @property
    def graded(self) -> bool:
        return self.measure not in ACCURACIES

    @property
    def effect(self) -> float:
        """Own damage, in the measure's unit."""
        return float(self.base.mean() - self.ablated.mean())

    @property
    def of_controls(self) -> list[float]:
        """[R] damage of each control set."""
        return [float(self.base.mean() - mean) for mean in self.controls.mean(1)]

    @cached_property
    def reach(self) -> Range:
        """m(∅) - m(floor), with the interval that guards ratios."""
        return reach(self.base, self.emptied, self.measure, self.seed, self.groups)

    @cached_property
    def beyond(self) -> TwoWayInference:
        """Damage beyond controls, in the measure's unit."""
        how = self._population()
        if self.graded:
            return GradedNecessityInference(self.base, self.ablated, self.controls, normalise=False, **how)
        return NecessityInference(np.ones_like(self.base), self.ablated, self.controls, **how)

    @cached_property
    def beyond_share(self) -> TwoWayInference:
        """Damage beyond controls as a share: of the reach, or of the base accuracy. The reach must be positive."""
        how = self._population()
        if self.graded:
            return GradedNecessityInference(self.base, self.ablated, self.controls, floor=self.emptied, **how)
        return NecessityInference(self.base, self.ablated, self.controls, **how)

    @cached_property
    def own_share(self) -> Inference:
        """Own damage, as a share of the reach or in points of accuracy. The reach must be positive."""
        lost = self.base - self.ablated
        if self.graded:
            return RatioInference(
                lost, self.base - self.emptied, self.groups, seed=self.seed, draws=self.draws
            )
        return MeanInference(lost, self.groups, bounds=(-1.0, 1.0), seed=self.seed, draws=self.draws)

    def rank(self, harmful_is: str = "low") -> RankP:
        """Where the set stands among its controls; "low": a low outcome is the one looked for."""
        means = [float(mean) for mean in self.controls.mean(1)]
        return rank_p(float(self.ablated.mean()), means, harmful_is=harmful_is)

    def _population(self) -> dict[str, Any]:
        return {
            "population": self.drawn.population,
            "enumerated": self.drawn.enumerated,
            "groups": self.groups,
            "seed": self.seed,
            "draws": self.draws,
        }


def exchangeable_p(p: float, share: float) -> float:
    """A rank p against controls outside the set, made a p-value of "the set is a random one of its universe".

    A random set and the controls outside it do not vary alike: controls share units with each other and none with the
    set. Where damages of units add up, with the variance v over the N units of the universe, a random set of k = f N
    of them lies above the mean of its controls by (S - k mean)/(1 - f), whose variance is k v/(1 - f) for large N,
    while controls vary around that mean by k v (1 - 2f)/(1 - f): k units out of the other N - k, without repeats. The
    ratio is 1/(1 - 2f), so that ranks are extreme too often. The normal score of p is shrunk by that much; p is left
    alone above one half.

    Parameters
    ----------
    share:
        f, below one half (else there would be no control).
    """
    if p >= 0.5:
        return p
    return float(ndtr(ndtri(p) * math.sqrt(1.0 - 2.0 * share)))


def draw_controls(
    lab: Lab,
    units: Sequence[Unit],
    universe: Sequence[Unit],
    *,
    count: int,
    match: str,
    seed: int,
    outside: Iterable[Unit] = (),
    levels: Mapping[Unit, int] | None = None,
) -> tuple[Controls, float] | str:
    """Matched controls of a set that also avoid some units, or why there are none.

    `outside`: units that no control may touch, beside those of the set itself. `levels`: of ``match="sink"``.

    The number is the largest share of a stratum (a kind, in a layer or at a level) that the set holds.
    """
    avoided = set(lab.layout.expand(outside)) - set(lab.layout.expand(units))
    pool = [u for u in universe if u in units or not avoided.intersection(lab.layout.parts(u))]
    try:
        drawn = matched_controls(units, pool, lab.layout, count=count, seed=seed, match=match, levels=levels)
        pools = strata(units, pool, lab.layout, match, levels=levels)
        return drawn, max(need / (need + len(found)) for found, need in pools.values())
    except ControlError as error:
        return str(error)


class Ablations:
    """What the damage of a set is made of but for its controls, everything on top of what is `removed` already.

    Attributes
    ----------
    measures:
        Columns of the outcome table.
    n:
        How many examples there are.
    """

    def __init__(
        self,
        lab: Lab,
        units: Sequence[Unit],
        universe: Sequence[Unit],
        measures: Sequence[str],
        *,
        ablation: str,
        positions: str = "all",
        removed: Sequence[Unit] = (),
        groups: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self._groups = groups
        self._lab, self._removed, self._seed = lab, tuple(removed), seed
        self.measures = tuple(measures)
        self._how: dict[str, Any] = {"value": ablation, "positions": positions}
        covered = set(lab.layout.expand(universe))
        beside = [unit for unit in self._removed if not covered.issuperset(lab.layout.expand([unit]))]
        self._ends = lab.outcomes([self._removed, (*universe, *beside)], **self._how)
        self._ablated = lab.outcomes([(*self._removed, *units)], **self._how)
        self.n = len(self._ends.examples)

    def reaches(self) -> list[Range]:
        """m(∅) - m(floor) in every measure, with the interval that guards ratios."""
        found = []
        for measure in self.measures:
            base, emptied = self._ends.measure(measure)
            found.append(reach(base, emptied, measure, self._seed, self._groups))
        return found

    def of_controls(self, sets: Sequence[tuple[Unit, ...]]) -> tuple[Floats, ...]:
        """[R × n] with each of the sets ablated, one table for every measure."""
        controls = [(*self._removed, *control) for control in sets] if self._removed else sets
        table = self._lab.outcomes(controls, **self._how)
        return tuple(table.measure(measure) for measure in self.measures)

    def damages(self, tables: Sequence[Floats], drawn: Controls) -> list[Damage]:
        """Of the set and of its controls, in every measure; `tables` are those of `of_controls`."""
        found = []
        for measure, controls in zip(self.measures, tables, strict=True):
            base, emptied = self._ends.measure(measure)
            ablated = self._ablated.measure(measure)[0]
            found.append(
                Damage(measure, base, ablated, emptied, controls, drawn, self._seed, groups=self._groups)
            )
        return found


def drawn_details(drawn: Controls) -> dict[str, Any]:
    """What the record says of the controls."""
    return {
        "controls": [[str(u) for u in units] for units in drawn.sets],
        "population": drawn.population,
        "enumerated": drawn.enumerated,
        "overlap": drawn.overlap,
    }


def ends(inference: Inference, confidence: float = 0.95) -> list[float | None]:
    """The interval for a record: an infinite end is None."""
    return [float(end) if np.isfinite(end) else None for end in inference.interval(confidence)]

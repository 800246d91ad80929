"""Keeping only a circuit: what sufficiency and its relatives ablate, measure and demand before they judge.

To keep a circuit, every other unit of the *universe* is ablated. What lies outside the universe (MLPs, where it
holds heads; embeddings, norms, biases) stays untouched in every run, so that a claim about a kept circuit is a
claim given all of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from circuittest.claims.gates import comparable, competent, disjoint, usable_circuit
from circuittest.claims.universe import circuit_universe
from circuittest.stats import MeanInference, RatioInference
from circuittest.stats.bounded_ratio import BoundedRatioInference
from circuittest.stats.resampling import Floats, partition
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

Positions = NDArray[np.intp]
Ablation = Literal["counterfactual", "mean", "mean-positions", "resample", "zero"]
Where = Literal["all", "not-first", "answer"]
Metric = Literal["logit_diff", "log_prob", "prob_diff", "accuracy"]
Graded = Literal["logit_diff", "log_prob", "prob_diff"]

#: Fewer examples, or clusters of them, than this cannot be split into halves that search and test.
FEWEST = 8

#: Range of each measure by definition; None where it has none.
_BOUNDS: dict[str, tuple[float, float] | None] = {
    "argmax": (0.0, 1.0),
    "candidates": (0.0, 1.0),
    "prob_diff": (-1.0, 1.0),
    "log_prob": None,
    "logit_diff": None,
}

#: Rounding of a score relative to its size, by dtype: the spacing of numbers times the roundings that add up on the way
#: to the logits (fewer in half precision, where products are accumulated in float32).
_ROUNDING = {
    "float64": 64 * 2.0**-52,
    "float32": 64 * 2.0**-23,
    "float16": 4 * 2.0**-10,
    "bfloat16": 4 * 2.0**-7,
}


@dataclass(frozen=True)
class Kept:
    """A circuit inside its universe, ready to be kept or removed; all units as ablation touches them.

    Attributes
    ----------
    circuit, universe:
        Their parts (`Layout.expand`), in canonical order.
    ranked:
        The units of the universe as it names them.
    ablation, positions, metric:
        How and where units are removed, and the column of the outcome table.
    choices:
        These, for the record.
    """

    lab: Lab
    circuit: tuple[Unit, ...]
    universe: tuple[Unit, ...]
    ranked: tuple[Unit, ...]
    ablation: str
    positions: str
    metric: str
    choices: dict[str, Any]

    def without(self, kept: Iterable[Unit]) -> tuple[Unit, ...]:
        """What must be ablated so that of the universe only `kept` stays."""
        return tuple(sorted(set(self.universe) - set(self.lab.layout.expand(kept))))

    def outcomes(self, sets: Sequence[Iterable[Unit]], measure: str | None = None) -> Floats:
        """The metric [sets × examples] with each set ablated."""
        table = self.lab.outcomes(
            [tuple(units) for units in sets], value=self.ablation, positions=self.positions
        )
        return table.measure(measure or self.metric)

    def noise(self, *scores: Floats) -> float:
        """Differences of scores up to this are rounding."""
        return rounding(self.lab, *scores)


def rounding(lab: Lab, *scores: Floats) -> float:
    """Differences of scores up to this are rounding of the model's dtype."""
    dtype = str(lab.model.dtype).removeprefix("torch.")
    size = max([1.0, *(float(np.abs(score).max()) for score in scores)])
    return _ROUNDING[dtype] * size


def keep(
    lab: Lab,
    circuit: Circuit,
    *,
    universe: str | None,
    ablation: str,
    positions: str,
    metric: str | None,
    whole: bool = False,
    groups: Sequence[str] | None = None,
) -> tuple[Kept, str]:
    """A circuit ready to be kept, and the reason why it cannot be judged, or "".

    The reasons: no units; edges; chosen on evaluation examples; units outside the universe; the whole universe;
    a model that is not competent (its floor includes the accuracy with the universe ablated in the claim's own
    way). `whole`: the circuit may be the whole universe, where it is removed and not kept.
    """
    name = universe or circuit_universe(circuit)
    wanted = metric or lab.metric
    measure = lab.accuracy if wanted == "accuracy" else wanted
    choices = {
        "ablation": ablation,
        "positions": positions,
        "metric": measure,
        "universe": name,
        "outside_universe": "untouched",
    }
    if reason := _edges(circuit) or usable_circuit(circuit) or disjoint(lab, circuit):
        return Kept(lab, (), (), (), ablation, positions, measure, choices), reason
    ranked = lab.layout.universe(name)
    parts, members = lab.layout.expand(ranked), lab.layout.expand(circuit.units)
    kept = Kept(lab, members, parts, ranked, ablation, positions, measure, choices)
    if outside := sorted(set(members) - set(parts)):
        return kept, (
            f"{outside[0]} is not in the universe {name!r}, and what is outside it is never removed; widen the "
            "universe, or judge a circuit inside it"
        )
    if members == parts and not whole:
        return kept, (
            f"the circuit is the whole universe {name!r}: nothing would be removed, so that keeping it is the model "
            "itself; judge a smaller circuit, or widen the universe"
        )
    if reason := comparable(lab, measure):
        return kept, reason
    gate = competent(lab, parts, lab.accuracy, value=ablation, positions=positions, groups=groups)
    return kept, "" if gate.passed else gate.reason


def _edges(circuit: Circuit) -> str:
    if not circuit.edges:
        return ""
    return (
        "the circuit holds edges; this claim keeps and removes whole units: judge a circuit of its units "
        f"(such as {circuit.edges[0].source}), or keep edges with lab.patched"
    )


@dataclass(frozen=True)
class Range:
    """How much of the metric the universe accounts for: m(full) - m(∅ kept), the denominator of shares.

    Attributes
    ----------
    full, empty:
        Metric [n] of the model, and with the whole universe ablated.
    interval:
        Of the mean difference, at 95 %.
    groups:
        Labels of examples that are drawn together, or None.
    """

    full: Floats
    empty: Floats
    interval: tuple[float, float]
    metric: str
    groups: Sequence[str] | None = None

    @property
    def value(self) -> float:
        return float((self.full - self.empty).mean())

    @property
    def reason(self) -> str:
        """Why nothing may be divided by it, or ""."""
        low, high = self.interval
        if low > 0:
            return ""
        says = f"m(full) - m(∅ kept) is {self.value:.3g} [{low:.3g}, {high:.3g}] for m = {self.metric}"
        if high < 0:
            return f"{says}: the model does worse than with the whole universe removed, so no share of it can be kept"
        return (
            f"{says}, which contains zero: removing the universe costs nothing that could be kept; use another metric "
            "or ablation, a wider universe, or more examples"
        )

    def details(self) -> dict[str, Any]:
        """For the record."""
        return {
            "m_full": float(self.full.mean()),
            "m_empty": float(self.empty.mean()),
            "range": {"value": self.value, "interval": [_finite(end) for end in self.interval]},
        }


def reach(full: Floats, empty: Floats, metric: str, seed: int, groups: Sequence[str] | None = None) -> Range:
    """The range between the model and the emptied universe, with the interval that guards ratios."""
    difference = full - empty
    bounds = _BOUNDS[metric]
    mean = float(difference.mean())
    if bounds is not None:
        width = bounds[1] - bounds[0]
        interval = MeanInference(difference, groups, bounds=(-width, width), seed=seed).interval(0.95)
    elif mean != 0 and float(np.ptp(difference)) <= 1e-6 * abs(mean):
        # equal on every example: one unseen example may be as far on the other side
        low, high = RatioInference(np.ones_like(difference), np.ones_like(difference), seed=seed).interval(
            0.95
        )
        interval = (min(low * mean, high * mean), max(low * mean, high * mean))
    else:
        interval = MeanInference(difference, groups, bounds=None, seed=seed).interval(0.95)
    return Range(full, empty, interval, metric, groups)


def share(numerator: Floats, span: Range, *, between: bool = False, seed: int) -> RatioInference:
    """Inference on mean(numerator)/(m(full) - m(∅ kept)).

    `between`: the numerator is m(…) - m(∅ kept), with the same m(∅ kept).
    """
    below, bounds = span.full - span.empty, _BOUNDS[span.metric]
    if bounds is None:
        return RatioInference(numerator, below, span.groups, seed=seed)
    width = bounds[1] - bounds[0]
    return BoundedRatioInference(numerator, below, span.groups, width=width, between=between, seed=seed)


def halves(count: int, seed: int, groups: Sequence[str] | None = None) -> tuple[Positions, Positions]:
    """Positions of the examples that may search, and of those that test; examples of one group stay together."""
    clusters = partition(count, groups)
    order = np.random.default_rng(seed).permutation(clusters.count)
    search = np.isin(clusters.codes, order[: clusters.count // 2])
    return np.flatnonzero(search), np.flatnonzero(~search)


def too_few(count: int, groups: Sequence[str] | None, cluster: str) -> str:
    """Why examples cannot be split into halves that search and test, or ""."""
    found = partition(count, groups).count
    if found >= FEWEST:
        return ""
    what = "examples" if groups is None else f"different {cluster}s"
    return f"{found} {what}: half search and half test, so that {FEWEST} are needed at least"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

"""Completeness: do the circuit alone and the model react alike when units of the circuit are knocked out?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.claims import within
from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters
from circuittest.claims.kept import Ablation, Kept, Metric, Where, halves, keep, reach, share, too_few
from circuittest.stats import Estimate
from circuittest.stats.absolute import AbsoluteInference
from circuittest.stats.resampling import Floats
from circuittest.stats.worst import WorstInference
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

Units = tuple[Unit, ...]

#: Circuits with at most this many units have all their subsets knocked out (2^5 = 32).
ALL_SUBSETS_UP_TO = 5


@within((0.0, inf))
def completeness(
    lab: Lab,
    circuit: Circuit,
    *,
    ablation: Ablation = "counterfactual",
    positions: Where = "all",
    metric: Metric | None = None,
    universe: str | None = None,
    subsets: int = 20,
    greedy: int = 5,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """Largest difference between circuit and model when the same units of the circuit are knocked out.

    Estimand: max over K of |m(C∖K) - m(M∖K)| / (m(full) - m(∅ kept)) over a family of knock-out sets K ⊆ C, the
    incompleteness of Wang et al. (arXiv 2211.00593, section 4): m(C∖K) keeps of the universe only the circuit less K,
    m(M∖K) ablates only K. A circuit that lacks a backup of one of its units is sufficient, but not complete. Claim a
    *maximum*: ``completeness <= 0.2``.

    The family: every subset for circuits of up to five units; else the empty set, the whole circuit, every
    single unit, `subsets` random ones, and the sets that a greedy search adds. Half of the evaluation examples
    search (greedy sets, and which set looks worst), the other half tests: the point value and the lower end are
    those of the set that looked worst, the upper end holds for every set of the family. It says nothing of sets
    outside the family.

    Parameters
    ----------
    ablation, positions, metric, universe:
        As in `sufficiency`.
    subsets:
        Random subsets, each unit in with probability 1/2.
    greedy:
        Steps of the search that adds, one by one, the unit that drives circuit and model farthest apart.
    cluster:
        Which examples are drawn together, and kept in one half (`circuittest.claims.clusters`).
    seed:
        Of subsets, halves and resampling.

    Invalid as `sufficiency` is, and for fewer than eight examples, or clusters of them.
    """
    groups = cluster_labels(lab.data.evaluate, cluster)
    kept, reason = keep(
        lab, circuit, universe=universe, ablation=ablation, positions=positions, metric=metric, groups=groups
    )
    choices = kept.choices | {"subsets": subsets, "greedy": greedy, "cluster": cluster, "seed": seed}

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("completeness", circuit, choices=choices, details=details or {}, invalid=reason)

    n = len(lab.data.evaluate)
    if reason := too_few(n, groups, cluster) or reason:
        return invalid(reason)
    full, empty = kept.outcomes([(), kept.universe])
    search, test = halves(n, seed, groups)
    tested = None if groups is None else [groups[i] for i in test]
    span = reach(full[test], empty[test], kept.metric, seed, tested)
    if span.reason:
        return invalid(f"on the testing half {span.reason}", span.details())
    family = _family(kept, circuit.units, subsets, greedy, search, seed)
    sets, gaps = list(family), np.array(list(family.values()))
    lead = int(np.argmax(np.abs(gaps[:, search].mean(axis=1)).round(12)))
    single = [AbsoluteInference(share(row[test], span, seed=seed)) for row in gaps]
    inference = WorstInference(single, lead)
    ratios = [one.signed.value for one in single]
    details = span.details() | {
        "worst": {"units": [str(u) for u in sets[lead]], "gap": ratios[lead]},
        "faithfulness_gap": ratios[sets.index(())],
        "mean": float(np.mean(np.abs(ratios))),
        "all_subsets": len(circuit.units) <= ALL_SUBSETS_UP_TO,
        "knocked_out": [[str(u) for u in units] for units in sets],
        "gaps": ratios,
        "searched_on": [lab.data.evaluate[i].index for i in search],
        **clustered(tested, cluster),
    }
    hints = _hints(sets[lead], ratios[lead]) if inference.interval()[0] > 0 else ()
    return lab.estimate(
        "completeness",
        circuit,
        inference=inference,
        n_examples=int(test.size),
        choices=choices,
        details=details,
        hints=hints + few_clusters(tested, cluster),
    )


def _family(
    kept: Kept, units: Units, subsets: int, greedy: int, search: np.ndarray, seed: int
) -> dict[Units, Floats]:
    """Knock-out sets and, for each, m(C∖K) - m(M∖K) per example."""
    if len(units) <= ALL_SUBSETS_UP_TO:
        every = chain.from_iterable(combinations(units, k) for k in range(len(units) + 1))
        return _gaps(kept, units, list(every))
    taken = np.random.default_rng(seed).random((subsets, len(units))) < 0.5
    drawn = [tuple(u for u, inside in zip(units, row, strict=True) if inside) for row in taken]
    found = _gaps(kept, units, list(dict.fromkeys([(), units, *((u,) for u in units), *drawn])))
    worst: Units = ()
    for _ in range(min(greedy, len(units) - 1)):
        steps = [tuple(sorted({*worst, unit})) for unit in units if unit not in worst]
        new = _gaps(kept, units, [step for step in steps if step not in found])
        tried = {step: (found | new)[step] for step in steps}
        size = {step: abs(round(float(gap[search].mean()), 12)) for step, gap in tried.items()}
        worst = max(size, key=size.__getitem__)
        found[worst] = tried[worst]
    return found


def _gaps(kept: Kept, units: Units, sets: Sequence[Units]) -> dict[Units, Floats]:
    """m(C∖K) - m(M∖K) per example, for each K."""
    if not sets:
        return {}
    expand = kept.lab.layout.expand
    asked: list[Iterable[Unit]] = []
    for removed in sets:
        asked += [kept.without(set(expand(units)) - set(expand(removed))), expand(removed)]
    outcomes = kept.outcomes(asked)
    return {removed: outcomes[2 * i] - outcomes[2 * i + 1] for i, removed in enumerate(sets)}


def _hints(worst: Units, gap: float) -> tuple[str, ...]:
    names = ", ".join(map(str, worst))
    if not worst:
        return ("the largest difference is there with nothing knocked out: this is a matter of sufficiency",)
    if gap < 0:
        return (f"without {names} the model still works and the circuit does not: it lacks a backup of them",)
    return (
        f"without {names} the circuit works better than the model: something else works against the answer",
    )

"""Minimality: does every unit of the circuit earn its place?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims import within
from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters
from circuittest.claims.kept import Ablation, Kept, Metric, Positions, Where, halves, keep, too_few
from circuittest.claims.ranges import Count
from circuittest.stats import Estimate
from circuittest.stats.exceedance import ExceedanceInference
from circuittest.stats.resampling import Floats
from circuittest.stats.share import ShareInference
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab

Units = tuple[Unit, ...]

#: A quantile of fewer references says nothing of the tail.
FEWEST_REFERENCES = 20


@within((0.0, 1.0))
def minimality(
    lab: Lab,
    circuit: Circuit,
    *,
    given: Literal["circuit", "knockouts"] = "circuit",
    quantile: float = 0.9,
    controls: Count = 100,
    ablation: Ablation = "counterfactual",
    positions: Where = "all",
    metric: Metric | None = None,
    universe: str | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """Share of the circuit's units that matter more than random additions do.

    The effect of a unit v is the mean over examples of |s(C) - s(C∖v)|, scores with only the circuit kept. Its
    references are units r of the same kind outside the circuit, each added and taken away again: |s(C∪r) - s(C)|. A
    unit *earns its place* when its effect is above that of a share `quantile` of all such units, means over the
    population of examples. Estimand: the share of the circuit's units that do. ``minimality >= 1`` claims it of all.

    This is the minimality test of Shi et al. (arXiv 2410.13032, section 3.1) for units, turned round: they refute
    minimality when a unit is significantly *below* the quantile, so that too few examples look minimal; here a unit
    must be significantly above it to count, below it to be counted out (Holm over the units on either side), and is
    in doubt otherwise. Their random additions are paths of edges; a unit comes with all its edges.

    Parameters
    ----------
    given:
        "circuit": v is taken from the whole circuit. Of two units that do the same work neither matters then, and
        the circuit is not minimal. "knockouts": the effect is the largest over K = nothing, each other single unit
        and all others of |s(C∖K) - s(C∖(K∪v))| (Wang et al., arXiv 2211.00593, section 4), K chosen on half of the
        examples and tested on the other half; references are searched in the same way. Costs (number of units) times
        as much.
    quantile:
        Of the references' effects.
    controls:
        References to draw for each kind of unit, at least 20; all of them where there are fewer.
    ablation, positions, metric, universe, seed:
        As in `sufficiency`.
    cluster:
        Which examples are drawn together, and kept in one half (`circuittest.claims.clusters`).

    Invalid as `sufficiency` is, but for the range, which does not enter; when fewer than 20 units of a kind are left
    outside the circuit; and, with "knockouts", for fewer than eight examples, or clusters of them.
    """
    groups = cluster_labels(lab.data.evaluate, cluster)
    kept, reason = keep(
        lab, circuit, universe=universe, ablation=ablation, positions=positions, metric=metric, groups=groups
    )
    choices = kept.choices | {
        "given": given,
        "quantile": quantile,
        "controls": controls,
        "cluster": cluster,
        "seed": seed,
    }

    def invalid(reason: str) -> Estimate:
        return lab.estimate("minimality", circuit, choices=choices, invalid=reason)

    if given == "knockouts" and (few := too_few(len(lab.data.evaluate), groups, cluster)):
        return invalid(few)
    if reason:
        return invalid(reason)
    if not 0 < quantile < 1:
        return invalid(f"the quantile is {quantile!r}: it lies between 0 and 1, for example 0.9")
    pools = _pools(kept, circuit)
    for kind, pool in pools.items():
        if len(pool) < FEWEST_REFERENCES:
            return invalid(
                f"only {len(pool)} units of kind {kind} are outside the circuit; a quantile of their effects needs "
                f"{FEWEST_REFERENCES}: judge a circuit of other kinds, or a smaller one"
            )
    drawn = _drawn(pools, controls, seed)
    if given == "circuit":
        effects = _of_circuit(kept, circuit.units, drawn)
    else:
        effects = _of_knockouts(kept, circuit.units, drawn, seed, groups)
    tested = None if groups is None else [groups[i] for i in effects.examples]
    tests = [
        ExceedanceInference(
            effects.own[unit].sizes,
            np.array([effects.references[r].sizes for r in drawn[unit.kind]]),
            len(pools[unit.kind]),
            tested,
            seed=seed,
        )
        for unit in circuit.units
    ]
    names = [str(unit) for unit in circuit.units]
    inference = ShareInference(
        [test.value >= quantile for test in tests],
        [test.p_value(">=", quantile) for test in tests],
        [test.p_value("<", quantile) for test in tests],
        names,
    )
    rows = {
        name: {
            "effect": float(effects.own[unit].sizes.mean()),
            "signed": float(effects.own[unit].signed.mean()),
            "given": [str(u) for u in effects.own[unit].given],
            "exceeds": test.value,
            "p_earns": inference.adjusted_has[i],
            "p_idle": inference.adjusted_lacks[i],
        }
        for i, (name, unit, test) in enumerate(zip(names, circuit.units, tests, strict=True))
    }
    below = [name for name, test in zip(names, tests, strict=True) if test.value < quantile]
    least = min(rows, key=lambda name: float(str(rows[name]["effect"])))
    details = {
        "units": rows,
        "not_earning": below,
        "least": {"unit": least, "effect": rows[least]["effect"]},
        "references": {
            kind: {
                "population": len(pools[kind]),
                "units": [str(r) for r in units],
                "effects": [float(effects.references[r].sizes.mean()) for r in units],
            }
            for kind, units in drawn.items()
        },
        "noise": effects.noise,
        **clustered(tested, cluster),
    }
    return lab.estimate(
        "minimality",
        circuit,
        inference=inference,
        n_examples=int(effects.examples.size),
        n_controls=sum(map(len, drawn.values())),
        choices=choices,
        details=details,
        hints=_hints(below, rows) + few_clusters(tested, cluster),
    )


@dataclass(frozen=True)
class Effect:
    """What taking one unit away does to the score of each example: the size, and with its sign (positive: it falls).

    `given`: what else was knocked out.
    """

    sizes: Floats
    signed: Floats
    given: Units = ()


@dataclass(frozen=True)
class Effects:
    """Of the circuit's units and of the references, on some examples; changes up to `noise` are rounding, and none."""

    own: dict[Unit, Effect]
    references: dict[Unit, Effect]
    noise: float
    examples: Positions


def _of_circuit(kept: Kept, units: Units, drawn: dict[str, Units]) -> Effects:
    references = [r for pool in drawn.values() for r in pool]
    sets = [kept.without(units), *(kept.without(_less(units, [v])) for v in units)]
    sets += [kept.without((*units, r)) for r in references]
    scores = kept.outcomes(sets)
    noise = kept.noise(scores)
    base, without, added = scores[0], scores[1 : len(units) + 1], scores[len(units) + 1 :]
    own = {v: _effect(base - row, noise) for v, row in zip(units, without, strict=True)}
    others = {r: _effect(row - base, noise) for r, row in zip(references, added, strict=True)}
    return Effects(own, others, noise, np.arange(base.size))


def _of_knockouts(
    kept: Kept, units: Units, drawn: dict[str, Units], seed: int, groups: Sequence[str] | None
) -> Effects:
    references = [r for pool in drawn.values() for r in pool]
    rng = np.random.default_rng(seed)
    search, test = halves(len(kept.lab.data.evaluate), seed, groups)
    own = {v: [(), *((w,) for w in units if w != v), _less(units, [v])] for v in units}
    # as many contexts for a reference as for a unit of the circuit: one single knock-out, drawn at random, is left out
    others: dict[Unit, list[Units]] = {}
    for r in references:
        left_out = units[int(rng.integers(len(units)))]
        others[r] = [(), *((w,) for w in units if w != left_out), units]

    remaining: dict[Units, None] = {}  # which units are kept in some run
    for v, contexts in own.items():
        for k in contexts:
            remaining |= {_less(units, k): None, _less(units, (*k, v)): None}
    for r, contexts in others.items():
        for k in contexts:
            remaining |= {_less(units, k): None, tuple(sorted((*_less(units, k), r))): None}
    keys = list(remaining)
    scores = kept.outcomes([kept.without(key) for key in keys])
    of = dict(zip(keys, scores, strict=True))
    noise = kept.noise(scores)

    def best(pairs: Sequence[tuple[Units, Floats]]) -> Effect:
        found = [(k, _effect(change, noise)) for k, change in pairs]
        k, effect = max(found, key=lambda item: round(float(item[1].sizes[search].mean()), 12))
        return Effect(effect.sizes[test], effect.signed[test], k)

    return Effects(
        {
            v: best([(k, of[_less(units, k)] - of[_less(units, (*k, v))]) for k in ks])
            for v, ks in own.items()
        },
        {
            r: best([(k, of[tuple(sorted((*_less(units, k), r)))] - of[_less(units, k)]) for k in ks])
            for r, ks in others.items()
        },
        noise,
        test,
    )


def _effect(change: Floats, noise: float) -> Effect:
    settled: Floats = np.where(np.abs(change) <= noise, 0.0, change)
    return Effect(np.abs(settled), settled)


def _less(units: Units, removed: Sequence[Unit]) -> Units:
    return tuple(unit for unit in units if unit not in removed)


def _pools(kept: Kept, circuit: Circuit) -> dict[str, Units]:
    """Per kind of the circuit's units, the units of the universe that share nothing with the circuit."""
    touched, layout = set(kept.circuit), kept.lab.layout
    return {
        kind: tuple(
            u for u in sorted(kept.ranked) if u.kind == kind and not touched.intersection(layout.parts(u))
        )
        for kind in circuit.counts()
    }


def _drawn(pools: dict[str, Units], count: int, seed: int) -> dict[str, Units]:
    rng = np.random.default_rng(seed)
    found: dict[str, Units] = {}
    for kind, pool in pools.items():
        if len(pool) <= max(count, FEWEST_REFERENCES):
            found[kind] = pool
        else:
            picked = rng.choice(len(pool), max(count, FEWEST_REFERENCES), replace=False)
            found[kind] = tuple(sorted(pool[i] for i in picked))
    return found


def _hints(below: Sequence[str], rows: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    hints = []
    if below:
        hints.append(f"no more than random additions: {', '.join(below)}")
    against = [name for name, row in rows.items() if row["signed"] < 0 and name not in below]
    if against:
        hints.append(f"without them the score rises (they work against the answer): {', '.join(against)}")
    return tuple(hints)

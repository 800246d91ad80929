"""From attention signals to communities, and from communities to verdicts: split A proposes, split B disposes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.circuit import prompt_digest
from circuittest.errors import UsageError
from circuittest.find.cluster_scores import adjusted_rand, isolation, normalised_information, purity
from circuittest.find.communities import (
    KS,
    Affinity,
    Community,
    Proposal,
    Structure,
    best_k,
    choose_k,
    structure,
)
from circuittest.find.ising import Penalty
from circuittest.find.isolation import isolation_elsewhere, sink_levels
from circuittest.find.routes import NULLS, SMALLEST, route_null
from circuittest.find.spectral import spectral_clusters
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.lab.proposals import Proposals as Lab


def propose(
    lab: Lab,
    *,
    affinity: Affinity = "ising",
    k: int | Sequence[int] = KS,
    penalty: Penalty = "l2",
    strength: float | None = None,
    sink: bool = True,
    labels: Mapping[Unit | str, str] | None = None,
    routes: int | None = None,
    stratum: int | None = None,
    smallest_stratum: int = SMALLEST,
    nulls: int = NULLS,
    seed: int = 0,
) -> Proposal:
    """Communities of heads by co-activation on discovery examples.

    Parameters
    ----------
    affinity, penalty, strength:
        See `circuittest.find.communities.structure`.
    k:
        Clusters, or several numbers of which the most stable one over halves of the examples is taken (with `labels`
        the one that agrees best with them). Numbers that leave fewer than two heads per cluster are not tried unless
        they are asked for.
    sink:
        False: the signal is the largest weight beyond the first token.
    routes, stratum:
        Of a mixture of experts: strata of examples by their routes. With `stratum` only its examples are used; without,
        membership is adjusted for as a covariate.
    smallest_stratum, nulls:
        A stratum of fewer examples is refused; random strata of either kind (`circuittest.find.routes.route_null`).
    """
    heads = lab.layout.universe("heads")
    here, there = (lab.signals(split, sink=sink).largest.values for split in ("discover", "evaluate"))
    prompts = [prompt_digest(item.prompt_ids) for item in lab.data.discover]
    choices: dict[str, Any] = {
        "signal": "max-attention" if sink else "max-attention beyond the first token",
        "affinity": affinity,
        "penalty": penalty,
        "sink": sink,
        "discover": len(here),
        "evaluate": len(there),
        "model": lab.model.name,
        "fingerprint": lab.fingerprint,
        "task": lab.data.task,
        "seed": seed,
    }
    how: dict[str, Any] = {"affinity": affinity, "penalty": penalty, "seed": seed}
    beside, beside_there, route = None, None, {}
    if routes is None and stratum is not None:
        raise UsageError(f"stratum {stratum} of no routes", "", "say how many strata: routes=4")
    if routes is not None:
        strata = lab.routes(routes, seed=seed)
        choices |= {"routes": routes, "stratum": stratum}
        if stratum is None:
            beside, beside_there = strata.one_hot(), _one_hot(strata.evaluate, routes)
            route = {"routes": routes, "sizes": strata.sizes, "variant": "covariate"}
        else:
            inside, elsewhere = _members(strata, stratum, routes, smallest_stratum)
            null = route_null(here, inside, _nuisances(lab), penalty=penalty, nulls=nulls, seed=seed)
            route = {
                "routes": routes,
                "stratum": stratum,
                "sizes": strata.sizes,
                "variant": "stratum",
                "inside": np.flatnonzero(elsewhere).tolist(),
                "inside_discover": np.flatnonzero(inside).tolist(),
                "null": asdict(null),
            }
            here, there = here[inside], there[elsewhere]
    whole = structure(here, heads, strength=strength, covariates=beside, **how)
    if whole.ising is not None:
        choices |= {"strength": whole.ising.strength, "gain": whole.ising.gain}
    if reason := _no_couplings(whole):
        return Proposal((), whole, None, reason=reason, choices=choices, route=route)
    ks = _numbers(k, len(whole.units))
    names = {
        unit if isinstance(unit, Unit) else Unit.parse(unit): label for unit, label in (labels or {}).items()
    }
    if strangers := sorted(set(names) - set(heads)):
        raise UsageError(f"a label for {strangers[0]}", "the model has no such head", "label its heads")
    chosen, scores = "given", dict[int, float]()
    if names:
        chosen, scores = "labels", {one: _with_labels(whole, names, one, seed)["ari"] for one in ks}
    elif len(ks) > 1:
        chosen, scores = "stability", choose_k(here, whole, heads, ks, covariates=beside, seed=seed)
    best = best_k(scores) if scores else ks[0]
    clusters = spectral_clusters(np.abs(whole.matrix), best, seed=seed)
    choices |= {"k": best, "chosen": chosen}
    strengths: dict[str, Any] = {} if whole.ising is None else {"strength": whole.ising.strength}
    other = structure(there, heads, covariates=beside_there, **how, **strengths)
    rest = lab.rest()
    origin = {
        "method": "co-activation",
        "universe": "heads",
        **choices,
        "examples": [item.index for item in lab.data.discover],
        "prompts": prompts,
    }
    communities = []
    for number in range(best):
        rows = np.flatnonzero(clusters == number).tolist()
        units = tuple(whole.units[row] for row in rows)
        elsewhere_, p = isolation_elsewhere(units, other, lab.layout, sink_levels(rest), seed=seed)
        roles = [names.get(unit) for unit in units]
        known = [role for role in roles if role is not None]
        communities.append(
            Community(
                name=f"C{number + 1}",
                units=units,
                isolation=_defined(isolation(whole.matrix, rows)),
                isolation_elsewhere=elsewhere_,
                p=p,
                purity=_defined(purity(roles)),
                label=max(sorted(set(known)), key=known.count) if known else None,
                rest=math.fsum(rest[unit] for unit in units) / len(units),
                origin=origin,
            )
        )
    return Proposal(
        communities=tuple(communities),
        structure=whole,
        k=best,
        scores=scores,
        chosen=chosen,
        again=_again(whole, clusters, other, best, seed),
        against_labels={}
        if not names
        else {key: _defined(value) for key, value in _with_labels(whole, names, best, seed).items()},
        choices=choices,
        route=route,
    )


def _no_couplings(whole: Structure) -> str:
    """Why there is nothing to cluster, or ""."""
    if whole.ising is not None and whole.ising.gain is not None and whole.ising.gain <= 0:
        return (
            "no couplings: with them held-out signals are not predicted better than without "
            f"({whole.ising.gain:.2g} nats per head), so that there is nothing to cluster"
        )
    if not whole.units:
        return (
            f"no couplings: no head has any {whole.affinity} affinity to another; there is nothing to cluster"
        )
    return ""


def _numbers(k: int | Sequence[int], heads: int) -> list[int]:
    """The k to try. Raises UsageError where none fits."""
    if not isinstance(k, int):
        ks = sorted(set(k))
        fitting = [one for one in ks if 2 <= one <= heads // 2]
        if not fitting:
            raise UsageError(
                f"{heads} heads that vary for {', '.join(map(str, ks))} clusters",
                "there are fewer than two heads for each cluster",
                "ask for fewer clusters",
            )
        return fitting
    if not 2 <= k <= heads:
        raise UsageError(
            f"{k} clusters of {heads} heads that vary",
            "there are fewer heads than clusters" if k > heads else "at least two are needed",
            "ask for fewer clusters" if k > heads else "use at least 2",
        )
    return [k]


def _members(strata: Any, stratum: int, routes: int, smallest: int) -> tuple[Any, Any]:
    """Which examples of either split are in a stratum. Raises UsageError where they are too few."""
    if not 0 <= stratum < routes:
        raise UsageError(f"stratum {stratum} of {routes}", f"they are numbered 0 to {routes - 1}")
    inside, elsewhere = strata.discover == stratum, strata.evaluate == stratum
    for split, members in (("discovery", inside), ("evaluation", elsewhere)):
        if members.sum() < smallest:
            raise UsageError(
                f"stratum {stratum} has {int(members.sum())} {split} examples",
                f"couplings of fewer than {smallest} are mostly noise",
                "use more examples, fewer strata, or another stratum; smallest_stratum sets the limit",
            )
    return inside, elsewhere


def _nuisances(lab: Lab) -> list[tuple[int, int]]:
    """Of every discovery example its length, and its third by how well the model does."""
    scores = lab.outcomes([()], split="discover").measure("log_prob")[0]
    thirds = (3 * np.argsort(np.argsort(scores, kind="stable"), kind="stable")) // len(scores)
    return [(len(item.prompt_ids), int(third)) for item, third in zip(lab.data.discover, thirds, strict=True)]


def _one_hot(labels: Any, routes: int) -> Any:
    return (labels[:, None] == np.arange(1, routes)).astype(np.float64)


def _again(whole: Structure, clusters: Any, other: Structure, k: int, seed: int) -> dict[str, float | None]:
    """Do the other examples' signals give the same clusters?"""
    common = [unit for unit in whole.units if unit in other.units]
    if len(common) <= k or len(other.units) < k:
        return {"ari": None, "nmi": None}
    theirs = spectral_clusters(np.abs(other.matrix), k, seed=seed)[other.rows(common)]
    mine = clusters[whole.rows(common)]
    return {
        "ari": _defined(adjusted_rand(mine, theirs)),
        "nmi": _defined(normalised_information(mine, theirs)),
    }


def _with_labels(whole: Structure, names: Mapping[Unit, str], k: int, seed: int) -> dict[str, float]:
    """Agreement of the clusters with the labels, over labelled heads."""
    labelled = [unit for unit in whole.units if unit in names]
    if len(labelled) < 2:
        return {"ari": float("nan"), "nmi": float("nan")}
    clusters = spectral_clusters(np.abs(whole.matrix), k, seed=seed)[whole.rows(labelled)]
    given = [names[unit] for unit in labelled]
    return {"ari": adjusted_rand(clusters, given), "nmi": normalised_information(clusters, given)}


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value

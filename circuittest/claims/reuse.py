"""Reuse@P: how much of each example's circuit is the circuit that (nearly) all examples share?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from circuittest.circuit import prompt_digest
from circuittest.claims import within
from circuittest.claims.clusters import cluster_labels, clustered, few_clusters
from circuittest.claims.driving import by_examples
from circuittest.claims.gates import competent
from circuittest.find.induced import Spanned
from circuittest.find.ranking import Membership, per_example
from circuittest.find.recipe import recipe_of, scoring_of
from circuittest.find.shared import (
    chance,
    chance_spanned,
    coverage,
    cross_fitted,
    overlap as overlap_of,
    reuse_curve,
    shared,
    shared_members,
    sweep as grid,
    why_empty,
)
from circuittest.stats import Estimate, MeanInference
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.circuit import Circuit
    from circuittest.lab import Lab
    from circuittest.tables import ScoreTable

#: From this share of the reuse on, an untrained twin is pointed out.
ALIKE = 0.8
#: How many of the units that came closest to being shared are named.
NEAREST = 5


@within((0.0, 1.0))
def reuse(
    lab: Lab,
    circuit: Circuit,
    *,
    level: Literal["own", "induced"] = "own",
    folds: int = 5,
    sweep: bool = False,
    untrained: bool = False,
    overlap: list[str] | None = None,
    cluster: Literal["none", "group", "template"] = "none",
    seed: int = 0,
) -> Estimate:
    """Coverage of per-example circuits by the shared circuit S_P, on examples that did not choose S_P.

    Estimand: mean |S_P ∩ C_i| / |C_i| over new examples i, for the K, P, universe and score rule that `circuit` was
    found with (Li & Subramani, arXiv 2605.08348, Eq. 1 and 2), by cross-fitting: S_P comes from all folds but
    one and is scored on that one. The in-sample value of Eq. 2, which papers print, stands in
    ``details["in_sample"]``. For a circuit given by its units use `coverage`.

    Parameters
    ----------
    level:
        "own": of what the circuit holds, units, or edges that were ranked themselves. "induced": of the edges between
        the units of each per-example circuit; S_P is then the edges that P % of those have.
    folds:
        Of the cross-fitting.
    sweep:
        Also over a grid of K and P, in ``details["sweep"]``.
    untrained:
        Also on an untrained twin of the model (same configuration, fresh weights): high reuse there is no sign of
        anything learned.
    overlap:
        Tasks whose S_P, found likewise, is compared with this one.
    cluster:
        Which examples are drawn together, and kept in one fold (`circuittest.claims.clusters`).
    seed:
        Of the resampling, the simulated chance level and the twin's weights.

    ``details["chance"]`` is the value expected of random circuits of the same size.

    Invalid when the circuit was not found by `Lab.shared` on this lab's examples, when there are fewer than two
    examples a fold, when a per-example circuit spans no edge, and when the model is not competent.
    """
    recipe = circuit.origin
    choices: dict[str, Any] = {"level": level, "folds": folds, "cluster": cluster, "seed": seed}

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("reuse", circuit, choices=choices, details=details or {}, invalid=reason)

    if (found := recipe_of(recipe)) is None:
        return invalid(
            "the circuit was not found by lab.shared, so there is no S_P to cross-fit: claim its coverage instead"
        )
    choices |= {**found, "metric": lab.metric}
    of_edges = recipe.get("level", "units") == "edges"
    choices["level"] = "edges" if of_edges else "units" if level == "own" else "induced"
    if recipe.get("fingerprint") != lab.fingerprint or recipe.get("task") != lab.data.task:
        return invalid(
            f"the circuit was found on {recipe.get('model')} and task {recipe.get('task')}; "
            "reuse re-discovers it, so find it with this lab, or claim its coverage"
        )
    if recipe.get("metric") not in (None, lab.metric):
        return invalid(
            f"the circuit was found by derivatives of {recipe['metric']}, and this lab scores by {lab.metric}; find it "
            "with this lab"
        )
    here = [prompt_digest(item.prompt_ids) for item in lab.data.discover]
    if list(recipe.get("prompts") or here) != here:
        return invalid(
            "the circuit was found on other discovery examples than this lab's, which would find another one: use its "
            "seed and sizes, find it with this lab, or claim its coverage"
        )
    if level == "induced" and of_edges:
        return invalid("the circuit is one of edges already; induced edges are those between units")
    if folds < 2 or len(lab.data.discover) < 2 * folds:
        return invalid(
            f"{len(lab.data.discover)} discovery examples in {folds} folds; at least 2 folds of 2 are needed"
        )
    groups = cluster_labels(lab.data.discover, cluster)
    if groups is not None and len(set(groups)) < 2 * folds:
        return invalid(
            f"{len(set(groups))} different {cluster}s in {folds} folds; at least 2 a fold are needed, for S_P "
            f"must come from other {cluster}s than those that judge it"
        )
    judged = cluster_labels(lab.data.evaluate, cluster)
    gate = competent(lab, lab.layout.universe(recipe["universe"]), lab.accuracy, groups=judged)
    if not gate.passed:
        return invalid(gate.reason)
    table = _table(lab, recipe)
    ranked = per_example(table, recipe["top"])
    spanned = Spanned(lab.layout, _units(ranked)) if level == "induced" else None
    membership = _circuits(table, recipe["top"], spanned)
    if empty := int((~membership.inside.any(1)).sum()):
        return invalid(
            f"{empty} of the {len(membership.examples)} per-example circuits have no edge between their {ranked.k} "
            "units: raise K, or rank edges themselves (level: edges)"
        )
    values = cross_fitted(membership.inside, recipe["at"], folds, groups)
    mask = shared(membership.inside, recipe["at"])
    n = len(values)
    size_of_universe = len(membership.members)

    def by_chance(k: int, at: str | int | float) -> float:
        if spanned is None:
            return chance(n, k, size_of_universe, at, folds)
        return chance_spanned(spanned, k, n, at, folds, seed)

    details = {
        "shared": [str(m) for m in shared_members(membership, recipe["at"])],
        "k": ranked.k,
        "n_units": len(ranked.members),
        "n_edges": None if spanned is None else size_of_universe,
        "curve": {str(p): value for p, value in reuse_curve(membership).items()},
        "in_sample": float(coverage(membership.inside, mask).mean()),
        "chance": by_chance(ranked.k, recipe["at"]),
        "share_of_universe": float(mask.sum() / size_of_universe),
        "ties": ranked.ties,
        "zero_scores": ranked.zeros,
        "acc_base": gate.accuracy,
        **clustered(groups, cluster),
    }
    if sweep:
        details["sweep"] = grid(lambda top: _circuits(table, top, spanned), by_chance, folds)
    hints = list(few_clusters(groups, cluster))
    hints += [] if mask.any() else [why_empty(membership, recipe["at"])]
    if untrained:
        twin = lab.untrained(seed)
        found = _twin(twin, recipe, folds, spanned)
        details["untrained"] = found
        if found["value"] >= ALIKE * float(values.mean()) > 0:
            hints.append(
                f"an untrained twin of the model has reuse {found['value']:.2f}: what is shared need not be learned"
            )
    if overlap is not None:
        members = shared_members(membership, recipe["at"])
        details["overlap"] = {
            task: _overlap(lab.on(task), recipe, members, spanned, size_of_universe) for task in overlap
        }
    driving = by_examples(
        lab,
        values,
        split="discover",
        told={
            "control": f"{details['chance']:.2f} for random circuits of the same size",
            "units": _nearest(membership, mask, recipe["at"]),
        },
        more=lambda row: {"missing": _missing(membership, mask, row)},
    )
    return lab.estimate(
        "reuse",
        circuit,
        driving=driving,
        inference=MeanInference(values, groups, seed=seed),
        n_examples=n,
        choices=choices,
        details=details,
        hints=tuple(hints),
    )


def _nearest(membership: Membership, mask: NDArray[np.bool_], at: str | int | float) -> str:
    """The units that came closest to being shared."""
    share = membership.inside.mean(0)
    order = [int(i) for i in np.argsort(-share, kind="stable") if not mask[i] and share[i] > 0][:NEAREST]
    if not order:
        return ""
    listed = ", ".join(f"{membership.members[i]} in {share[i]:.0%}" for i in order)
    asked = f"{str(at).removesuffix('%')} % asked"
    return f"not shared, for they are in too few of the examples' circuits ({asked}): {listed}"


def _missing(membership: Membership, mask: NDArray[np.bool_], row: int) -> list[str]:
    """The units of one example's circuit that are not shared."""
    outside = np.flatnonzero(membership.inside[row] & ~mask)
    return [str(membership.members[i]) for i in outside[:12]]


def _table(lab: Lab, recipe: Any) -> ScoreTable:
    return lab.scores(**scoring_of(recipe))


def _units(membership: Membership) -> list[Unit]:
    return [member for member in membership.members if isinstance(member, Unit)]


def _circuits(table: ScoreTable, top: str, spanned: Spanned | None) -> Membership:
    """Per-example circuits, of the edges between units where `spanned` is given; `k` stays the number ranked."""
    ranked = per_example(table, top)
    if spanned is None:
        return ranked
    return replace(ranked, inside=spanned.of(ranked.inside), members=spanned.edges)


def _twin(lab: Lab, recipe: Any, folds: int, spanned: Spanned | None) -> dict[str, Any]:
    inside = _circuits(_table(lab, recipe), recipe["top"], spanned).inside
    mask = shared(inside, recipe["at"])
    return {
        "value": float(cross_fitted(inside, recipe["at"], folds).mean()),
        "in_sample": float(coverage(inside, mask).mean()),
        "size": int(mask.sum()),
    }


def _overlap(
    lab: Lab, recipe: Any, members: tuple[Any, ...], spanned: Spanned | None, n_members: int
) -> dict[str, Any]:
    other = shared_members(_circuits(_table(lab, recipe), recipe["top"], spanned), recipe["at"])
    return {"size": len(other), **overlap_of(members, other, n_members)}

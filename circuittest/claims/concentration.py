"""Concentration: how few heads, KV groups or groups of heads carry the task?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims.beyond import ends
from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters, said
from circuittest.claims.gates import comparable, competent
from circuittest.claims.kept import reach
from circuittest.find.scan import Damage, Measure, Member, Scan, damage as damage_of, greedy, members_of, scan
from circuittest.stats import Estimate, Inference, MeanInference, RatioInference, rank_p
from circuittest.stats.crossing import CrossingInference
from circuittest.stats.resampling import Floats, generator
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.lab import Lab
    from circuittest.tables import OutcomeTable

#: Random halves that the halves of easy and hard examples are compared with.
HALVES = 199


def concentration(
    lab: Lab,
    *,
    statistic: Literal["units", "area", "top"] = "units",
    per: Literal["head", "kv", "group"] = "head",
    size: int = 0,
    scale: Literal["number", "share"] = "number",
    order: Literal["static", "greedy", "attribution"] = "static",
    damage: float = 0.8,
    metric: Literal["log_prob", "logit_diff"] | None = None,
    ablation: Literal["zero", "counterfactual"] = "zero",
    controls: int = 0,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """How few members must be ablated, in order of their importance, to do most of the damage there is to do.

    Members are ordered on discovery examples and judged on evaluation examples, so that the largest of many noisy
    effects is not taken for its own evidence. With D(k) = (m(∅) - m(first k ablated)) / (m(∅) - m(all heads ablated))
    on the population of evaluation examples, given the order, the estimand is

    - ``statistic="units"``: the smallest k such that D(k) and D of every larger number are at least `damage`;
    - ``"area"``: the area under D over k/N from 0 to 1 (1 where the first member does it all; it may exceed 1);
    - ``"top"``: the damage of the first member.

    (Venkatesh, arXiv 2605.08853, takes the first crossing, the order from the judged examples, and one KV head for one
    query head.)

    Parameters
    ----------
    per, size:
        What one member is: "head"; "kv", all query heads of a KV group; "group", `size` neighbouring heads of a layer,
        to compare heads without KV groups with KV groups of that size like with like.
    scale:
        "number" of members (for "top" the metric's unit), or "share" of all members (of the reach).
    order:
        "static": by the damage each does alone. "greedy": each next member is the one that adds most to those before
        it, until `damage` is done on the discovery examples; then static. "attribution": by mean attribution
        (`Lab.scores`, ``edge-abs-sum``, summed over the heads of a member), which needs one pass in place of one
        ablation for every member.
    damage:
        The level of "units".
    metric:
        "log_prob" or "logit_diff"; by default the task's, or "log_prob" where that is neither.
    ablation:
        "zero" or "counterfactual". Means would need a third set of examples.
    controls:
        Random orders of the members, for ``details["random_orders"]``: damage after each number of members, the area
        under each curve, and how often it is as large as that of the order found. 0 for none; each costs as many
        ablations as the curve has sizes.
    cluster:
        Which evaluation examples are drawn together (`circuittest.claims.clusters`).

    Invalid when the model is not competent, when the interval of m(∅) - m(all heads ablated) does not lie above zero,
    when `size` does not divide the heads of a layer, and when there are no discovery examples.
    """
    measure = metric or (lab.metric if lab.metric in ("log_prob", "logit_diff") else "log_prob")
    choices: dict[str, Any] = {
        "ablation": ablation,
        "positions": "all",
        "statistic": statistic,
        "per": per,
        "scale": scale,
        "order": order,
        "damage": damage,
        "metric": measure,
        "seed": seed,
        **({"size": size} if per == "group" else {}),
        **({"controls": controls} if controls else {}),
        **said(cluster),
        **({"attributed": lab.metric} if order == "attribution" else {}),
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("concentration", None, choices=choices, details=details or {}, invalid=reason)

    if not 0 < damage < 1:
        return invalid(f"damage is {damage!r}: it is a share between 0 and 1, such as 0.8")
    if (per == "group") != (size > 0) or (size and lab.layout.n_heads % size):
        return invalid(
            f"size is {size} for per = {per!r}: groups have a size that divides the {lab.layout.n_heads} heads of a "
            "layer, and nothing else has one"
        )
    if controls < 0:
        return invalid(f"controls is {controls}: it is a number of random orders, or 0 for none")
    if not lab.data.discover:
        return invalid(
            "there are no discovery examples, and the order must not come from those that judge it"
        )
    if reason := comparable(lab, measure):
        return invalid(reason)
    everything = lab.layout.universe("heads")
    groups = cluster_labels(lab.data.evaluate, cluster)
    gate = competent(lab, everything, lab.accuracy, value=ablation, groups=groups)
    if not gate.passed:
        return invalid(gate.reason)
    members = members_of(lab.layout, per, size)
    searched = _Search(lab, members, everything, measure, ablation, by_scores=order == "attribution")
    if order == "greedy" and not searched.reach > 0:
        return invalid(
            f"on discovery examples ablating everything changes {measure} by {-searched.reach:.3g}, so that a greedy "
            "order has no damage to reach: use another metric or ablation, or order: static"
        )
    ordered = searched.order(greedily=order == "greedy", damage=damage)
    found = damage_of(
        lambda sets: lab.outcomes(sets, value=ablation).measure(measure),
        [members[i] for i in ordered],
        everything,
    )
    sizes, lost, whole = found.sizes, found.lost, found.reach
    span = reach(found.base, found.emptied, measure, seed, groups)
    details: dict[str, Any] = {
        "acc_base": gate.accuracy,
        "members": len(members),
        "scores" if order == "attribution" else "effects": {
            members[i].name: float(searched.effects[i]) for i in ordered
        },
        "order": [members[i].name for i in ordered],
        **span.details(),
        **clustered(groups, cluster),
    }
    if span.reason:
        return invalid(span.reason, details)
    unit = 1 / len(members) if scale == "share" else 1.0
    crossing = CrossingInference(lost, whole, sizes, level=damage, unit=unit, groups=groups, seed=seed)
    spread = np.array([*np.diff((0, *sizes)), 0.0])
    weights = (spread[:-1] + spread[1:]) / 2  # trapezia between measured sizes; D(0) = 0
    area = RatioInference(weights @ lost / len(members), whole, groups, seed=seed)
    top = RatioInference(lost[0], whole, groups, seed=seed)
    raw = MeanInference(lost[0], groups, bounds=None, seed=seed)
    details |= {
        "damage": {str(k): value for k, value in zip(sizes, crossing.curve, strict=True)},
        "units_to": {"number": crossing.value / unit, "share": crossing.value / unit / len(members)},
        "area": {"value": area.value, "interval": ends(area)},
        "top": {
            "name": members[ordered[0]].name,
            "share": top.value,
            "effect": raw.value,
            "interval": ends(raw),
        },
        "top_among": _controls(lab, members, ordered[0], measure, ablation, found.base),
        "easy_and_hard": searched.easy_and_hard(seed),
    }
    if controls:
        details["random_orders"] = _random_orders(
            lambda sets: lab.outcomes(sets, value=ablation).measure(measure),
            members,
            found,
            weights,
            count=controls,
            seed=seed,
        )
    inferences: dict[str, Inference] = {
        "units": crossing,
        "area": area,
        "top": top if scale == "share" else raw,
    }
    return lab.estimate(
        "concentration",
        None,
        inference=inferences[statistic],
        choices=choices,
        details=details,
        hints=few_clusters(groups, cluster),
    )


class _Search:
    """The order of members, from discovery examples alone."""

    def __init__(
        self,
        lab: Lab,
        members: tuple[Member, ...],
        everything: tuple[Unit, ...],
        measure: str,
        ablation: str,
        *,
        by_scores: bool,
    ) -> None:
        self.lab, self.members, self.ablation = lab, members, ablation
        self._measure = lambda sets: self._table(sets).measure(measure)
        self._scan: Scan | None = None
        if by_scores:
            scores = lab.scores("discover", universe="heads")
            place = {unit: i for i, unit in enumerate(scores.members)}
            parts = [[place[unit] for unit in lab.layout.expand(member.units)] for member in members]
            self._lost = np.array([scores.values[:, part].sum(1, dtype=np.float64) for part in parts])
        else:
            self._scan = scan(self._measure, members, everything)
            self._lost = self._scan.lost
        self.effects = self._lost.mean(1)

    def _table(self, sets: Sequence[tuple[Unit, ...]]) -> OutcomeTable:
        return self.lab.outcomes(sets, value=self.ablation, split="discover")

    @property
    def reach(self) -> float:
        """What ablating everything costs; NaN where the order comes from scores."""
        return float("nan") if self._scan is None else float(self._scan.reach.mean())

    def order(self, *, greedily: bool, damage: float) -> tuple[int, ...]:
        """Of the scan, re-scored after every step until the damage is done, or of the scores."""
        if self._scan is None:
            return tuple(int(i) for i in np.argsort(-self.effects, kind="stable"))
        return greedy(self._measure, self._scan, damage) if greedily else self._scan.order

    def easy_and_hard(self, seed: int) -> dict[str, Any]:
        """Is the top member the same on easy and on hard examples (by the margin of the untouched model)?

        `random_halves` is what halves that differ by chance alone give: how often they agree on the top member, and
        in `p` how often their effects correlate as little as those of easy and hard examples.
        """
        n = self._lost.shape[1]
        if n < 4:
            return {"undefined": f"{n} discovery examples are too few to be cut in halves"}
        margin = np.argsort(self._margin(), kind="stable")
        observed = self._compare(margin[n // 2 :], margin[: n // 2])
        rng = generator(seed)
        random = []
        for _ in range(HALVES):
            mixed = rng.permutation(n)
            random.append(self._compare(mixed[n // 2 :], mixed[: n // 2]))
        found: dict[str, Any] = {
            "top_easy": self.members[observed[0]].name,
            "top_hard": self.members[observed[1]].name,
            "same": observed[0] == observed[1],
            "correlation": observed[2],
            "random_halves": {"same": float(np.mean([one[0] == one[1] for one in random]))},
        }
        if observed[2] is not None:
            less = sum(one[2] is not None and one[2] <= observed[2] + 1e-12 for one in random)
            found["random_halves"]["p"] = (1 + less) / (1 + HALVES)
        return found

    def _margin(self) -> Floats:
        table = self._table([()])
        found: Floats = table.measure("logit_diff" if "logit_diff" in table.columns else "log_prob")[0]
        return found

    def _compare(self, first: np.ndarray, second: np.ndarray) -> tuple[int, int, float | None]:
        """The top member on each half, and the correlation of the effects (None where one half has equal ones)."""
        a, b = self._lost[:, first].mean(1), self._lost[:, second].mean(1)
        return int(np.argmax(a)), int(np.argmax(b)), _correlation(a, b)


def _random_orders(
    measure: Measure, members: Sequence[Member], found: Damage, weights: Floats, *, count: int, seed: int
) -> dict[str, Any]:
    """The damage curves of random orders: the first k of one are a random set of k members, matched in kind.

    `weights` make the area under a curve, in members. The order found never saw these examples, so that under "it is a
    random order" its area is one more draw.
    """
    rng = generator(seed)
    orders = [rng.permutation(len(members)) for _ in range(count)]
    sets = [
        tuple(unit for i in order[:k] for unit in members[i].units)
        for order in orders
        for k in found.sizes[:-1]
    ]
    whole = found.lost[-1]  # all members, in whatever order
    steps = len(found.sizes) - 1
    lost = found.base - measure(sets) if sets else np.empty((0, found.base.size))
    span = float(found.reach.mean())
    curves = [
        [*(float(row.mean()) / span for row in lost[r * steps : (r + 1) * steps]), float(whole.mean()) / span]
        for r in range(count)
    ]
    areas = [float(weights @ curve) / len(members) for curve in curves]
    own = float(weights @ found.lost.mean(1)) / span / len(members)
    rank = rank_p(own, areas, harmful_is="high")
    return {
        "damage": {str(k): [curve[j] for curve in curves] for j, k in enumerate(found.sizes)},
        "area": areas,
        "area_p": rank.p,
        "area_p_resolution": rank.resolution,
    }


def _correlation(a: Floats, b: Floats) -> float | None:
    """Pearson's: where most members do nothing, ranks are mostly those of noise."""
    return None if np.ptp(a) == 0 or np.ptp(b) == 0 else float(np.corrcoef(a, b)[0, 1])


def _controls(
    lab: Lab, members: tuple[Member, ...], top: int, measure: str, ablation: str, base: Floats
) -> dict[str, Any]:
    """The top member's damage among that of the others in its layer, and of those in the middle layer."""
    middle = lab.layout.n_layers // 2
    layers = {"layer": members[top].layer, "middle_layer": middle}
    others = {
        name: [i for i, member in enumerate(members) if member.layer == layer and i != top]
        for name, layer in layers.items()
    }
    listed = sorted({top, *(i for found in others.values() for i in found)})
    table = lab.outcomes([members[i].units for i in listed], value=ablation).measure(measure)
    lost = {i: float((base - row).mean()) for i, row in zip(listed, table, strict=True)}
    found: dict[str, Any] = {}
    for name, positions in others.items():
        effects = {members[i].name: lost[i] for i in positions}
        found[name] = {"index": layers[name], "effects": effects}
        if effects:
            rank = rank_p(lost[top], list(effects.values()), harmful_is="high")
            found[name] |= {"p": rank.p, "p_resolution": rank.resolution}
    return found

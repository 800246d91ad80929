"""Paths: how much of an effect runs from one group of units to another, and through nothing between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from circuittest.claims.clusters import Cluster, cluster_labels, clustered, few_clusters
from circuittest.claims.driving import by_examples
from circuittest.claims.gates import competent, unseen
from circuittest.claims.groups import Group
from circuittest.claims.kept import Graded, Range, reach, rounding, share
from circuittest.errors import UnitError
from circuittest.paths import Paths, entering, leaving, name_of
from circuittest.stats import Estimate
from circuittest.stats.resampling import Floats

if TYPE_CHECKING:
    from circuittest.lab import Lab


def path(
    lab: Lab,
    *,
    from_: Group,
    to: Group,
    share_of: Literal["sent", "received"] = "sent",
    mlps: Literal["frozen", "recomputed"] = "frozen",
    metric: Graded | None = None,
    cluster: Cluster = "none",
    seed: int = 0,
) -> Estimate:
    """Share of an effect that runs from one group to another through direct paths.

    Estimand: (m(path) - m) / (m(whole) - m), means over evaluation examples. m(path) is the metric where the group
    `from_` has its counterfactual values for the slots of `to` alone (`circuittest.measure.paths`), m that of the
    untouched model. m(whole) is that where `from_` has them for the whole model, or, as a share of what is received,
    where every unit of its kinds has them for `to`. Nothing is clamped: a share above 1 says that other ways work
    against this one, one below 0 that this one works against the rest. Shares of several receivers need not add up.

    Parameters
    ----------
    from_:
        Heads, KV groups, attention layers, MLPs or the embedding.
    to:
        Reading slots (``L5.H1.q``, ``L5.KV0.v``, ``L5.MLP``, ``logits``); a unit without slot is all of its slots.
    share_of:
        "sent": of the total effect of `from_`. "received": of all that heads send directly to `to` (heads and MLPs,
        where `from_` holds MLPs, too).
    mlps:
        "frozen": MLPs between are no part of the path. "recomputed": they pass on what they read (Wang et al.).
    metric:
        "logit_diff", "log_prob" or "prob_diff"; by default the task's, or "logit_diff" where that is none of them.
    cluster:
        Which examples are drawn together (`circuittest.claims.clusters`).
    seed:
        Of the resampling.

    Invalid when a group was chosen on evaluation examples, when the task has no counterfactual prompts, when the model
    is not competent, and when the interval of m(whole) - m contains zero or the difference is rounding.

    Raises
    ------
    UnitError, UsageError
        For groups between which no path can run (`circuittest.paths`).
    """
    sending, reading = Group.of(from_), Group.of(to)
    measure = metric or (
        lab.metric if lab.metric in ("logit_diff", "log_prob", "prob_diff") else "logit_diff"
    )
    for member in sending.members:
        if member.slot is not None:
            raise UnitError(f"no path starts at {member}", "a slot reads", f"write {member.unit}")
    paths = Paths.of(lab.layout, sending.units, [(member.unit, member.slot) for member in reading.members])
    choices: dict[str, Any] = {
        "from": [str(unit) for unit in sending.units],
        "to": [str(member) for member in reading.members],
        "share_of": share_of,
        "mlps": mlps,
        "ablation": "counterfactual",
        "metric": measure,
        "cluster": cluster,
        "seed": seed,
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("path", None, choices=choices, details=details or {}, invalid=reason)

    groups = cluster_labels(lab.data.evaluate, cluster)
    kinds = {unit.kind for unit in paths.senders}
    if reason := _usable(lab, sending, reading):
        return invalid(reason)
    universe = lab.layout.universe("heads" if kinds == {"head"} else "all")
    gate = competent(lab, universe, lab.accuracy, value="counterfactual", groups=groups)
    if not gate.passed:
        return invalid(gate.reason)

    if share_of == "sent":
        edges = leaving(lab.layout, paths.senders)
        clean, whole = lab.patched([(), edges], keep=False).measure(measure)
        (direct,) = lab.along([paths], mlps=mlps).measure(measure)
        what = f"patching {sending} everywhere"
    else:
        all_edges = entering(lab.layout, paths.receivers, kinds)
        senders = tuple(sorted({edge.source for edge in all_edges}))
        clean = lab.patched([()], keep=False).measure(measure)[0]
        both = [paths, Paths(senders, paths.receivers, all_edges)]
        direct, whole = lab.along(both, mlps=mlps).measure(measure)
        what = f"patching all that {_kinds(kinds)} send to {reading}"
    effect = _Effect.of(clean, whole, direct, measure, seed, groups)
    details = {
        "senders": [str(unit) for unit in paths.senders],
        "receivers": [name_of(reader) for reader in paths.receivers],
        "paths": len(paths.edges),
        "missing": list(paths.missing),
        "m": float(clean.mean()),
        "m_path": float(direct.mean()),
        "m_whole": float(whole.mean()),
        "effect_path": effect.of_path.details()["range"],
        "effect_whole": effect.of_whole.details()["range"],
        **clustered(groups, cluster),
    }
    if reason := effect.undefined(what, measure, rounding(lab, clean, whole)):
        return invalid(reason, details)
    inference = share(effect.numerator, effect.span, between=True, seed=seed)
    told = f"{measure} {clean.mean():.2f} of the model, {direct.mean():.2f} with the path patched, "
    told += f"{whole.mean():.2f} after {what}"
    # what the model says next is shown before the patch alone: units are replaced for everybody, paths are not
    driving = by_examples(lab, effect.numerator / effect.span.value, told={"control": told})
    return lab.estimate(
        "path",
        None,
        driving=driving,
        inference=inference,
        choices=choices,
        details=details,
        hints=_hints(inference.interval(), paths) + few_clusters(groups, cluster),
    )


@dataclass(frozen=True)
class _Effect:
    """What patching the path, and all, does to the metric; as changes, and turned so that the whole one is positive.

    Attributes
    ----------
    of_path, of_whole:
        m(…) - m, with the interval of its mean.
    span, numerator:
        The denominator of the share, and its numerator on every example.
    """

    of_path: Range
    of_whole: Range
    span: Range
    numerator: Floats

    @classmethod
    def of(
        cls,
        clean: Floats,
        whole: Floats,
        direct: Floats,
        measure: str,
        seed: int,
        groups: Sequence[str] | None,
    ) -> _Effect:
        of_path, of_whole = (reach(other, clean, measure, seed, groups) for other in (direct, whole))
        if of_whole.value >= 0:
            return cls(of_path, of_whole, of_whole, direct - clean)
        return cls(of_path, of_whole, reach(clean, whole, measure, seed, groups), clean - direct)

    def undefined(self, what: str, measure: str, noise: float) -> str:
        """Why no share is taken of the whole effect, or ""."""
        low, high = self.of_whole.interval
        says = f"{what} changes {measure} by {self.of_whole.value:.3g} [{low:.3g}, {high:.3g}]"
        if float(np.abs(self.of_whole.full - self.of_whole.empty).max()) <= noise:
            return f"{says}, which is rounding: there is no effect of which a part could run along a path"
        if self.span.interval[0] > 0:
            return ""
        return (
            f"{says}, which contains zero: no share of it can be taken; use other units or another metric, or more "
            "examples"
        )


def _usable(lab: Lab, sending: Group, reading: Group) -> str:
    for group, what in ((sending, "the group that sends"), (reading, "the group that receives")):
        if reason := unseen(lab, group.seen, what):
            return reason
    items = lab.data.evaluate
    same = sum(item.counterfactual_ids == item.prompt_ids for item in items)
    if not same:
        return ""
    return (
        f"{same} of the {len(items)} evaluation examples have no counterfactual prompt: a path carries what its start "
        "writes on another prompt; use a task that has them"
    )


def _kinds(kinds: set[str]) -> str:
    names = {"embed": "the embedding", "head": "heads", "mlp": "MLPs"}
    return " and ".join(names[kind] for kind in ("embed", "head", "mlp") if kind in kinds)


def _hints(interval: tuple[float, float], paths: Paths) -> tuple[str, ...]:
    hints = []
    if interval[0] > 1:
        hints.append("above 1: what runs in other ways works against what runs along the path")
    if interval[1] < 0:
        hints.append("below 0: the path works against the rest of the effect")
    if paths.missing:
        hints.append(
            f"{len(paths.missing)} pairs have no path, because the receiver reads first (such as {paths.missing[0]})"
        )
    return tuple(hints)

"""Closure's verdict on proposed communities, with Holm's correction over them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from circuittest.claims.beyond import exchangeable_p
from circuittest.claims.closure import GRADED, LEVEL
from circuittest.claims.kept import Ablation
from circuittest.controls import matched_controls
from circuittest.errors import UsageError
from circuittest.find.communities import Community, Judgement, Proposal
from circuittest.stats import Estimate, holm
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.lab.lab import Lab

#: What closure can call a community, in the order of precedence.
NAMES: tuple[Literal["none", "load-bearing", "interfering"], ...] = ("none", "load-bearing", "interfering")
#: Beyond this more controls are not drawn, however many communities there are.
MOST_CONTROLS = 1000


def judged(
    lab: Lab,
    proposal: Proposal,
    *,
    matches: Sequence[Literal["kind", "layer", "sink"]] = ("layer", "sink"),
    controls: int | None = None,
    smallest: int = 2,
    largest: int | None = None,
    most: int | None = None,
    ablation: Ablation = "zero",
    positions: Literal["all", "not-first", "answer"] = "all",
    tolerance: float = 0.1,
    control_seed: int = 0,
) -> Proposal:
    """The proposal with closure's verdict on every community of a size that can be judged.

    Parameters
    ----------
    matches:
        Kinds of controls; a name must hold against each of them.
    controls:
        Control sets of each kind; None takes as many as Holm's correction over the communities needs for the smallest
        rank p to count, 1000 at the most.
    smallest, largest, most:
        Sizes that are judged (up to a quarter of the heads by default), and how many communities: those that are most
        isolated where they were found.
    ablation, positions, tolerance:
        As for `circuittest.claims.closure`.

    A verdict holds after Holm's correction over the communities judged, for each name by itself; a name that closure
    overrules has p = 1. Where closure calls a community load-bearing or interfering, it is also ranked among as many
    random sets that may share heads with it: controls outside it cannot hold a head that outweighs all others, so that
    any set which happens to hold that head would be the most harmful one. This rank is exact.

    In a stratum of routes the verdict is that on its own evaluation examples, and `outside` has the one on all others.
    """
    if not matches or not set(matches) <= {"kind", "layer", "sink"}:
        raise UsageError(f"controls matched by {list(matches)}", "", "use layer, sink or kind")
    heads = len(lab.layout.universe("heads"))
    largest = max(smallest, heads // 4) if largest is None else largest
    reasons = {one.name: _size_reason(len(one.units), smallest, largest) for one in proposal.communities}
    fit = [one for one in proposal.communities if not reasons[one.name]]
    if most is not None:
        ranked = sorted(fit, key=lambda one: -(one.isolation or 0.0))
        reasons |= {one.name: f"only the {most} most isolated are judged" for one in ranked[most:]}
        fit = [one for one in fit if not reasons[one.name]]
    counts = {one.name: controls or needed_controls(len(fit), _share(lab, one.units, matches)) for one in fit}
    how: dict[str, Any] = {
        "ablation": ablation,
        "positions": positions,
        "tolerance": tolerance,
        "seed": control_seed,
    }
    inside, outside = lab, None
    if proposal.route.get("variant") == "stratum":
        members = proposal.route["inside"]
        others = sorted(set(range(len(lab.data.evaluate))) - set(members))
        inside = lab.among(proposal.route["inside_discover"], members)
        outside = lab.among(range(len(lab.data.discover)), others) if others else None
    verdicts = _judge(inside, fit, matches, counts, how)
    beyond = {} if outside is None else _judge(outside, fit, matches, counts, how)
    judged_ones = tuple(
        replace(
            one,
            unjudged=reasons[one.name],
            judgement=verdicts.get(one.name),
            outside=beyond.get(one.name),
        )
        for one in proposal.communities
    )
    choices = {
        **proposal.choices,
        "matches": list(matches),
        "controls": counts,
        "smallest": smallest,
        "largest": largest,
        "most": most,
        **how,
    }
    return replace(proposal, communities=judged_ones, choices=choices)


def needed_controls(communities: int, share: float) -> int:
    """How many control sets make the smallest rank p count after Holm's correction, with a tenth to spare.

    `share` is the largest one of a stratum of controls which a community holds
    (`circuittest.claims.beyond.exchangeable_p`).
    """
    count = 40
    while count < MOST_CONTROLS and communities * exchangeable_p(1 / (count + 1), min(share, 0.49)) > LEVEL:
        count += 20
    return min(MOST_CONTROLS, math.ceil(1.1 * count))


def _share(lab: Lab, units: Sequence[Unit], matches: Sequence[str]) -> float:
    """The largest share that a community holds of all heads, of those of a layer, or of a level of rest."""
    heads = lab.layout.universe("heads")
    strata: dict[str, Mapping[Unit, int]] = {
        "kind": dict.fromkeys(heads, 0),
        "layer": {head: head.layer or 0 for head in heads},
    }
    if "sink" in matches:
        strata["sink"] = lab.sink_levels()
    shares = []
    for match in matches:
        there = Counter(strata[match].values())
        here = Counter(strata[match][unit] for unit in units)
        shares += [count / there[stratum] for stratum, count in here.items()]
    return max(shares)


def _judge(
    lab: Lab,
    communities: Sequence[Community],
    matches: Sequence[str],
    counts: Mapping[str, int],
    how: Mapping[str, Any],
) -> dict[str, Judgement]:
    """Closure of every community against every kind of controls, and Holm over the communities."""
    closures: dict[str, dict[str, Estimate]] = {
        one.name: {
            match: lab.closure(one.candidate(), match=match, controls=counts[one.name], **how)
            for match in matches
        }
        for one in communities
    }
    p = {
        name: {
            one: _largest([estimate.labels[name].p_value for estimate in found.values()])
            for one, found in closures.items()
        }
        for name in NAMES
    }
    random: dict[str, dict[str, float]] = {one.name: {} for one in communities}
    for one in communities:
        for name in NAMES[1:]:
            if all(estimate.label == name for estimate in closures[one.name].values()):
                ranks = {
                    match: _among_random(lab, one.units, name, match, counts[one.name], how)
                    for match in matches
                }
                random[one.name] = ranks
                p[name][one.name] = _largest([p[name][one.name], *ranks.values()])
    adjusted = {
        name: dict(zip(values, holm(list(values.values())), strict=True)) for name, values in p.items()
    }
    return {
        one: _judgement(
            found,
            {name: p[name][one] for name in NAMES},
            {name: adjusted[name][one] for name in NAMES},
            random[one],
        )
        for one, found in closures.items()
    }


def _among_random(
    lab: Lab, units: Sequence[Unit], name: str, match: str, count: int, how: Mapping[str, Any]
) -> float:
    """Exact p of "a random set of the same match": the largest over the measures of closure's label."""
    drawn = matched_controls(
        units,
        lab.layout.universe("heads"),
        lab.layout,
        count=count,
        seed=how["seed"],
        match=match,
        outside=False,
        levels=lab.sink_levels() if match == "sink" else None,
    )
    table = lab.outcomes([units, *drawn.sets], value=how["ablation"], positions=how["positions"])
    left = [table.measure(measure).mean(1) for measure in GRADED]
    if name == "load-bearing":
        left = [-values for values in (*left, table.measure(lab.accuracy).mean(1))]
    return float(max((1 + (values[1:] >= values[0]).sum()) / len(values) for values in left))


def _judgement(
    closures: Mapping[str, Estimate],
    p: Mapping[str, float | None],
    adjusted: Mapping[str, float | None],
    random: Mapping[str, float],
) -> Judgement:
    invalid = {match: estimate.invalid for match, estimate in closures.items() if estimate.invalid}
    if invalid:
        reason = "; ".join(f"{match}-matched controls: {why}" for match, why in invalid.items())
        return Judgement("invalid", reason, p, adjusted, closures, random)
    for name in NAMES:
        value = adjusted[name]
        if all(estimate.label == name for estimate in closures.values()) and value is not None:
            told = "; ".join(
                f"{match}-matched: {estimate.labels[name].reason}" for match, estimate in closures.items()
            )
            if random:
                ranks = ", ".join(f"{match}-matched p = {rank:.2g}" for match, rank in random.items())
                told += f"; among random sets that may share heads with it: {ranks}"
            if value <= LEVEL:
                return Judgement(name, told, p, adjusted, closures, random)
            why = "after Holm's correction" if (p[name] or 0.0) <= LEVEL else "among random sets"
            reason = f"{name} before, but not {why} (p = {value:.2g}); {told}"
            return Judgement("undecided", reason, p, adjusted, closures, random)
    found = ", ".join(
        f"{match}-matched {estimate.label or 'undecided'}" for match, estimate in closures.items()
    )
    least = "; ".join(f"{name} p = {value:.2g}" for name, value in p.items() if value is not None)
    return Judgement(
        "undecided", f"no name holds against all controls ({found}); {least}", p, adjusted, closures, random
    )


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _size_reason(size: int, smallest: int, largest: int) -> str:
    if size < smallest:
        return f"{size} heads, fewer than the {smallest} that are judged"
    return f"{size} heads, more than the {largest} that are judged" if size > largest else ""

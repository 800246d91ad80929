"""Proposed communities as text, as JSON, and as a drawing of the couplings ordered by community."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from circuittest.find.communities import Community, Judgement, Proposal
from circuittest.report.style import STYLE
from circuittest.report.svg import grid

COLUMNS = ("", "heads", "isolation", "elsewhere", "p layer", "p sink", "rest", "verdict", "p")


def rows(proposal: Proposal) -> list[list[str]]:
    """One row of `COLUMNS` for every community."""
    return [
        [
            one.name,
            " ".join(map(str, one.units)),
            _number(one.isolation),
            _number(one.isolation_elsewhere),
            _number(one.p.get("layer")),
            _number(one.p.get("sink")),
            _number(one.rest),
            verdict(one),
            _number(None if one.judgement is None else least(one.judgement)),
        ]
        for one in proposal.communities
    ]


def verdict(one: Community) -> str:
    """What became of a community, in words; a community that was not judged stays a proposal."""
    told = one.verdict
    if one.judgement is None:
        told = f"proposed; not judged: {one.unjudged}" if one.unjudged else "proposed, not judged"
    return told if one.outside is None else f"{told}; outside the stratum {one.outside.verdict}"


def least(judgement: Judgement) -> float | None:
    """The p-value behind a verdict after Holm's correction; of one that is undecided, the smallest of any name."""
    if judgement.verdict in judgement.adjusted:
        return judgement.adjusted[judgement.verdict]
    known = [value for value in judgement.adjusted.values() if value is not None]
    return min(known, default=None)


def headline(proposal: Proposal) -> str:
    """What was clustered, and how well that repeats."""
    choices, structure = proposal.choices, proposal.structure
    text = f"{choices['model']}, {choices['task']}: {structure.affinity} on {len(structure.units)} heads"
    if structure.ising is not None:
        text += f" (λ = {structure.ising.strength:g}"
        if structure.ising.gain is not None:
            text += f", held-out gain {structure.ising.gain:.3g} nats per head"
        text += ")"
    if separable := structure.ising.separable if structure.ising is not None else ():
        text += f"; {len(separable)} heads are predicted without error, so that the penalty sets their couplings' size"
    if proposal.reason:
        return f"{text}\n{proposal.reason}"
    text += f"\n{proposal.k} clusters, by {proposal.chosen}"
    if proposal.scores:
        listed = ", ".join(f"{k}: {_number(score)}" for k, score in sorted(proposal.scores.items()))
        text += f" (adjusted Rand index: {listed})"
    again = proposal.again
    text += f"; on the evaluation examples again: ARI {_number(again.get('ari'))}, NMI {_number(again.get('nmi'))}"
    if null := proposal.route.get("null"):
        text += (
            f"\nstratum {proposal.route['stratum']} of {proposal.route['routes']} routes, sizes "
            f"{proposal.route['sizes']['discover']}: gain {null['gain']:.3g}; p = {_number(null['p_size'])} among "
            f"random strata of its size, p = {_number(null['p_nuisance'])} among those alike in length and difficulty"
        )
    return text


def to_json(proposal: Proposal) -> dict[str, Any]:
    """Plain data; numbers that are undefined are None."""
    structure = proposal.structure
    return {
        "k": proposal.k,
        "chosen": proposal.chosen,
        "scores": {str(k): _plain(score) for k, score in proposal.scores.items()},
        "reason": proposal.reason,
        "again": dict(proposal.again),
        "against_labels": dict(proposal.against_labels),
        "route": {key: value for key, value in proposal.route.items() if not key.startswith("inside")},
        "left_out": {str(unit): why for unit, why in structure.left_out.items()},
        "separable": []
        if structure.ising is None
        else [str(structure.units[row]) for row in structure.ising.separable],
        "choices": dict(proposal.choices),
        "units": [str(unit) for unit in structure.units],
        "affinity": [[float(value) for value in row] for row in structure.matrix],
        "communities": [_community(one) for one in proposal.communities],
    }


def drawing(proposal: Proposal, *, page: bool = True) -> str:
    """The affinities ordered by community, as SVG text; each community has a frame, and a title with its verdict.

    `page`: with the style sheet inside, so that the file stands alone.
    """
    place = {unit: row for row, unit in enumerate(proposal.structure.units)}
    order = proposal.order
    at = [place[unit] for unit in order]
    cells: list[list[float | None]] = [
        [None if i == j else float(proposal.structure.matrix[i, j]) for j in at] for i in at
    ]
    frames, first = [], 0
    for one in proposal.communities:
        frames.append((first, len(one.units)))
        first += len(one.units)
    verdicts = "; ".join(f"{one.name} {one.verdict}" for one in proposal.communities)
    starts = {start: one for (start, _), one in zip(frames, proposal.communities, strict=True)}
    names = [
        f"{starts[row].name} {starts[row].verdict} · {unit}" if row in starts else str(unit)
        for row, unit in enumerate(order)
    ]
    title = f"{proposal.structure.affinity} of {len(order)} heads, ordered by community: {verdicts}"
    text = grid(title, names, [str(unit) for unit in order], cells, frames=frames)
    if not page:
        return text
    head, rest = text.split("</title>", 1)
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}</title><style>{STYLE}</style>{rest}\n"


def _community(one: Community) -> dict[str, Any]:
    return {
        "name": one.name,
        "units": [str(unit) for unit in one.units],
        "isolation": one.isolation,
        "isolation_elsewhere": one.isolation_elsewhere,
        "p": dict(one.p),
        "purity": one.purity,
        "label": one.label,
        "rest": one.rest,
        "verdict": one.verdict,
        "unjudged": one.unjudged,
        "judgement": _judgement(one.judgement),
        "outside": _judgement(one.outside),
    }


def _judgement(found: Judgement | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "verdict": found.verdict,
        "reason": found.reason,
        "p": dict(found.p),
        "adjusted": dict(found.adjusted),
        "damage": {match: _damage(estimate.details) for match, estimate in found.closures.items()},
    }


def _damage(details: Mapping[str, Any]) -> dict[str, Any]:
    """Own damage and that of the controls' mean, for every measure."""
    measures: Sequence[str] = ("log_prob", "logit_diff", "argmax", "candidates")
    return {
        name: {key: details[name][key] for key in ("effect", "beyond", "p", "p_help")}
        for name in measures
        if name in details
    }


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.3g}"


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value

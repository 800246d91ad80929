"""Proposed communities as text, as JSON, and as a drawing of the couplings ordered by community."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circuittest.find.communities import Community, Judgement, Proposal
from circuittest.report.style import STYLE
from circuittest.report.svg import drawing as frame, text

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
    told = f"{choices['model']}, {choices['task']}: {structure.affinity} on {len(structure.units)} heads"
    if structure.ising is not None:
        told += f" (λ = {structure.ising.strength:g}"
        if structure.ising.gain is not None:
            told += f", held-out gain {structure.ising.gain:.3g} nats per head"
        told += ")"
    if separable := structure.ising.separable if structure.ising is not None else ():
        told += f"; {len(separable)} heads are predicted without error, so that the penalty sets their couplings' size"
    if proposal.reason:
        return f"{told}\n{proposal.reason}"
    told += f"\n{proposal.k} clusters, by {proposal.chosen}"
    if proposal.scores:
        listed = ", ".join(f"{k}: {_number(score)}" for k, score in sorted(proposal.scores.items()))
        told += f" (adjusted Rand index: {listed})"
    again = proposal.again
    told += f"; on the evaluation examples again: ARI {_number(again.get('ari'))}, NMI {_number(again.get('nmi'))}"
    if null := proposal.route.get("null"):
        told += (
            f"\nstratum {proposal.route['stratum']} of {proposal.route['routes']} routes, sizes "
            f"{proposal.route['sizes']['discover']}: gain {null['gain']:.3g}; p = {_number(null['p_size'])} among "
            f"random strata of its size, p = {_number(null['p_nuisance'])} among those alike in length and difficulty"
        )
    return told


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
    """The affinities ordered by community, as SVG text: the darker, the stronger; negative ones in the other colour.

    Each community has a frame and its verdict beside it. What is below a fifth of the strongest affinity is left white.
    `page`: with the style sheet inside, so that the file stands alone.
    """
    place = {unit: row for row, unit in enumerate(proposal.structure.units)}
    at = [place[unit] for unit in proposal.order]
    matrix = proposal.structure.matrix[at][:, at]
    cell = max(2.0, min(10.0, 480.0 / max(1, len(at))))
    left = top = 8.0
    parts = [
        f'<rect x="{left:g}" y="{top:g}" width="{cell * len(at):g}" height="{cell * len(at):g}" class="place"/>'
    ]
    parts += _shades(matrix, cell, left, top)
    first, words = 0, 0
    for one in proposal.communities:
        start, size = first * cell, len(one.units) * cell
        parts.append(
            f'<rect x="{left + start:.1f}" y="{top + start:.1f}" width="{size:.1f}" height="{size:.1f}" '
            'class="family"/>'
        )
        said = f"{one.name} {one.verdict} ({len(one.units)})"
        words = max(words, len(said))
        parts.append(text(left + cell * len(at) + 6, top + start + size / 2 + 4, said, anchor="start"))
        first += len(one.units)
    verdicts = "; ".join(f"{one.name} {one.verdict}" for one in proposal.communities)
    title = f"{proposal.structure.affinity} of {len(at)} heads, ordered by community: {verdicts}"
    width = left + cell * len(at) + 12 + 7.0 * words
    whole = frame(title, width, 2 * top + cell * len(at), parts)
    if not page:
        return whole
    head, rest = whole.split("</title>", 1)
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}</title><style>{STYLE}</style>{rest}\n"


def _shades(matrix: Any, cell: float, left: float, top: float) -> list[str]:
    """One path for each sign and tenth of the strongest affinity."""
    strongest = float(np.abs(matrix).max(initial=0.0)) or 1.0
    tenths = np.minimum(np.abs(matrix) / strongest * 10, 9.999).astype(int)
    found = []
    for sign, kind in ((1.0, "above"), (-1.0, "below")):
        for tenth in range(2, 10):
            where = np.argwhere((tenths == tenth) & (np.sign(matrix) == sign)).tolist()
            if where:
                squares = "".join(
                    f"M{left + column * cell:.4g} {top + row * cell:.4g}h{cell:.3g}v{cell:.3g}h-{cell:.3g}z"
                    for row, column in where
                )
                found.append(f'<path d="{squares}" class="{kind}" fill-opacity="{(tenth + 1) / 10:g}"/>')
    return found


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
        "random": dict(found.random),
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

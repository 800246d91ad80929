"""Which two subtasks of a partition are least alike, what noise allows, and in what their circuits differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.stats.halves import block_weights

if TYPE_CHECKING:
    from circuittest.claims.subtasks import Scores, Subtasks

#: Edges or units that are listed.
LISTED = 5


def least_alike(scores: Scores, made: Subtasks) -> dict[str, Any]:
    """The pair of blocks with the lowest corrected similarity, as a record; the first of equal ones.

    Returns
    -------
    dict
        ``subtasks``; ``n`` examples in each; ``similarity`` (corrected), ``raw``, and the ``ceiling`` of raw, which is
        what two measurements of the same subtask with so much noise would give (the root of the product of both
        split-half reliabilities, stepped up to whole blocks; None where one is not positive). ``members``: the edges
        or units in which the two circuits differ most, both scaled to unit length, with the mean score of each.
    """
    matrix = np.where(np.isnan(made.found.corrected), np.inf, made.found.corrected)
    upper = np.triu_indices(len(matrix), 1)
    place = int(np.argmin(matrix[upper]))
    i, j = int(upper[0][place]), int(upper[1][place])
    labels = made.blocks.labels
    whole = [made.reliability()[labels[block]]["whole"] for block in (i, j)]
    means = block_weights(made.blocks.codes, len(labels))[[i, j]] @ scores.values[made.blocks.rows]
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    apart = np.abs(np.subtract(*np.divide(means, lengths, out=np.zeros_like(means), where=lengths > 0)))
    order = np.argsort(-apart, kind="stable")[: LISTED if scores.members else 0]
    return {
        "subtasks": [labels[i], labels[j]],
        "n": made.blocks.n,
        "similarity": float(made.found.corrected[i, j]),
        "raw": float(made.found.raw[i, j]),
        "ceiling": float(np.sqrt(whole[0] * whole[1])) if min(whole) > 0 else None,
        "members": [
            {"member": str(scores.members[k]), "scores": [float(means[0, k]), float(means[1, k])]}
            for k in order
        ],
    }


def described_pair(found: dict[str, Any]) -> str:
    """The same in a sentence."""
    ceiling = "undefined" if found["ceiling"] is None else f"{found['ceiling']:.2f}"
    text = (
        f"least alike are {found['subtasks'][0]!r} and {found['subtasks'][1]!r} with {found['n']} examples each: raw "
        f"similarity {found['raw']:.2f} of the {ceiling} that noise allows"
    )
    listed = [
        f"{one['member']} ({one['scores'][0]:+.2g}, {one['scores'][1]:+.2g})" for one in found["members"]
    ]
    return text + (f"; they differ most in {', '.join(listed)}" if listed else "")

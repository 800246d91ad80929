"""Stability difference: are circuits more alike under one condition than under another?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circuittest.claims.alike import Alike, Level, Similarity
from circuittest.claims.gates import competent
from circuittest.claims.stability import described, left_out, used
from circuittest.claims.subtasks import Scores, Subtasks, compared, signed_scores
from circuittest.find.similarity import KEPT_SHARE
from circuittest.stats import Estimate
from circuittest.stats.labellings import (
    LabelledInference,
    first_minus_second,
    labellings,
    leave_one_out,
    within_minus_cross,
)
from circuittest.stats.simultaneous import StudentInference, subsample_error
from circuittest.tasks.partitions import MIN_SIZE, AtRandom, Blocks, Partition

if TYPE_CHECKING:
    from circuittest.lab import Lab


def stability_difference(
    lab: Lab,
    *,
    partition: str,
    by: str | None = None,
    against: str | None = None,
    corrected: bool = True,
    similarity: Similarity = "spearman",
    level: Level = "edges",
    universe: str | list[str] = "all",
    method: str = "eap",
    top: str = "10%",
    n: int | None = None,
    min_size: int = MIN_SIZE,
    cuts: int = 16,
    replicates: int = 100,
    labelled: int = 1999,
    seed: int = 0,
) -> Estimate:
    """How much more alike circuits are within a condition than across, or than under another condition.

    Two questions, of which one is asked. With `by`, a feature that is constant within each subtask of `partition`
    (``partition: random:5:0 * parentheses``, ``by: parentheses``): the mean similarity of pairs of subtasks with the
    same value, less that of pairs with different values. Where the partition crosses `by` with other features
    (``digits * parentheses``), pairs of subtasks that are equal in all of these do not count: they differ in `by`
    alone, and there are none such within a condition, so that the other features would pass for an effect of `by`. With
    `against`, another task or another way to ask the same (``against: sports_understanding+chain``): the mean
    similarity of the pairs of this task's subtasks, less that of the other's, on blocks of the same number of examples.
    (Sun, arXiv 2505.24731, sections 4 and 5, compares so; its within-means hold the similarity 1 of each circuit with
    itself, which is left out here.)

    Both the examples and the subtasks are sampled, so that the interval is the widest of these: Student's t over
    subsamples of the examples; the permutation of the circuits' labels, shifted; and with `against`, where circuits of
    the two conditions may have little in common, Student's t over subtasks left out one at a time. Few subtasks have
    few labellings: with three and three no p-value is below 0.05.

    Parameters
    ----------
    corrected:
        False: the similarity between halves of blocks as it is, which noise attenuates. Random blocks of one task
        differ by noise alone, so that their corrected similarity is 1 under any condition; what differs uncorrected is
        how reliable single examples are.
    labelled:
        Up to so many labellings are enumerated, else so many are drawn; 39 or more.

    The other options are those of `circuittest.claims.stability.stability`.

    Invalid as stability is (under either condition), when neither or both questions are asked, when the feature varies
    within a subtask, when a condition has too few subtasks, and when two tasks are scored by different metrics.
    """
    how = Alike.of(locals())
    chosen = Partition.parse(partition)
    choices = {
        **how.choices,
        "partition": str(chosen),
        "by": by,
        "against": against,
        "corrected": corrected,
        "labelled": labelled,
        "splits": "discover and evaluate",
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate(
            "stability_difference", None, choices=choices, details=details or {}, invalid=reason
        )

    if (by is None) == (against is None):
        return invalid(
            "say either by (a feature) or against (another task): within and across, or one and the other"
        )
    if labelled < 39:
        return invalid(f"{labelled} labellings: at least 39 are needed")
    scores = how.scores(lab)
    if isinstance(scores, str):
        return invalid(scores)
    made = (
        _within(scores, chosen, by, how)
        if by is not None
        else _between(lab, scores, chosen, str(against), how)
    )
    if isinstance(made, str):
        return invalid(made)
    details = described(made.found)
    if made.found.invalid:
        return invalid(made.found.invalid, details)
    matrix, drawn = made.found.found.corrected, made.found.found.corrected_replicates
    if not corrected:
        matrix, drawn = made.found.found.halves, made.found.found.replicates
    statistic = partial(within_minus_cross, counted=made.counted) if by is not None else first_minus_second
    arrangements, every = labellings(made.codes, most=labelled, seed=seed)
    permuted = statistic(matrix, arrangements)
    permuted = permuted[~np.isnan(permuted)]  # labellings without pairs of both kinds say nothing
    error = float(subsample_error(statistic(drawn, arrangements[:1])[:, 0], KEPT_SHARE))
    text = f"Student's t, {made.found.df:.0f} df, error from {replicates} subsamples of {KEPT_SHARE:.0%}"
    count = made.found.blocks.n * len(made.codes)
    circuits = None
    if by is None:
        spread, df = leave_one_out(matrix, arrangements[0])
        how_many = f"Student's t, {df:.0f} df, error from leaving out one subtask at a time"
        circuits = StudentInference(float(permuted[0]), spread, df, count, how_many)
    student = StudentInference(float(permuted[0]), error, made.found.df, count, text)
    inference = LabelledInference(student, permuted, circuits)
    shown = made.means(matrix)
    details |= {
        "value": inference.value,
        "conditions": {
            name: [
                label for label, code in zip(made.found.blocks.labels, made.codes, strict=True) if code == k
            ]
            for k, name in enumerate(made.names)
        },
        "means": shown,
        "labellings": {
            "count": len(permuted),
            "all": every,
            "p_greater": inference.labels_p(">"),
            "p_less": inference.labels_p("<"),
        },
    }
    if made.counted is not None:
        aside = int((~made.counted[np.triu_indices(len(made.codes), 1)]).sum())
        details["pairs_left_out"] = aside
    hints = [*left_out(made.found), "; ".join(f"{name}: {value:.2f}" for name, value in shown.items())]
    estimate = lab.estimate(
        "stability_difference",
        None,
        inference=inference,
        n_examples=count,
        choices=choices,
        details=details,
        hints=tuple(hints),
    )
    return used(estimate, scores, made.own)


@dataclass(frozen=True, eq=False)
class _Compared:
    """Subtasks with their conditions.

    Attributes
    ----------
    codes, names:
        The code of each block's condition, and the names of the codes.
    own:
        The lab's own rows.
    counted:
        [B × B] which pairs count; None for all.
    """

    found: Subtasks
    codes: tuple[int, ...]
    names: tuple[str, ...]
    own: Any
    counted: NDArray[np.bool_] | None = None

    def means(self, matrix: Any) -> dict[str, float]:
        """Mean similarity of the pairs within each condition that has some, and across."""
        codes = np.array(self.codes)
        upper = np.nonzero(
            np.triu(np.ones((codes.size, codes.size)) if self.counted is None else self.counted, 1)
        )
        pairs, one, two = matrix[upper], codes[upper[0]], codes[upper[1]]
        found = {
            f"within {name}": float(pairs[inside].mean())
            for k, name in enumerate(self.names)
            if (inside := (one == k) & (two == k)).any()
        }
        return found | {"across": float(pairs[one != two].mean())}


def _within(scores: Scores, partition: Partition, by: str, how: Alike) -> _Compared | str:
    """The subtasks of one task, labelled with their value of a feature."""
    made = how.compare(scores, partition)
    if isinstance(made, str):
        return made
    values = []
    for label, positions in zip(made.blocks.labels, made.blocks.positions, strict=True):
        found = Partition.by(by).labels([scores.items[int(row)] for row in positions])
        if len(set(found)) > 1:
            return f"the subtask {label!r} mixes values of {by!r}: cross the partition with it, '{partition} * {by}'"
        values.append(str(found[0]))
    names = tuple(sorted(set(values)))
    if len(names) < 2 or len(names) == len(values):
        return (
            f"{len(values)} subtasks have {len(names)} values of {by!r}: pairs with equal ones and pairs with unequal "
            "ones are needed"
        )
    codes = tuple(names.index(value) for value in values)
    return _Compared(made, codes, names, made.blocks.rows, _apart(scores, partition, made.blocks, codes))


def _apart(
    scores: Scores, partition: Partition, blocks: Blocks, conditions: Sequence[int]
) -> NDArray[np.bool_] | None:
    """Which pairs of blocks [B × B] differ in what the partition says beside the condition; None where all pairs count.

    Random blocks say nothing, and a term that is the same throughout each condition says no more than the condition.
    """
    first = [scores.items[int(rows[0])] for rows in blocks.positions]
    beside = []
    for term in partition.terms:
        labels = [str(label) for label in Partition((term,)).labels(first)]
        told = len(set(zip(conditions, labels, strict=True))) > len(set(conditions))
        if told and not isinstance(term, AtRandom):
            beside.append(labels)
    if not beside:
        return None
    codes = np.unique([", ".join(labels) for labels in zip(*beside, strict=True)], return_inverse=True)[1]
    apart: NDArray[np.bool_] = codes[:, None] != codes[None, :]
    return None if apart[np.triu_indices(codes.size, 1)].all() else apart


def _between(lab: Lab, scores: Scores, partition: Partition, against: str, how: Alike) -> _Compared | str:
    """The subtasks of two tasks on the same model, in blocks of one size."""
    other = lab.on(against)
    if other.metric != lab.metric:
        return (
            f"the scores of {against} are derivatives of {other.metric} and those of {lab.data.task} of {lab.metric}: "
            f"what differs with the metric would pass for the condition; make the lab with metric={other.metric!r}"
        )
    gate = competent(other, other.layout.universe("all"), other.accuracy)
    if not gate.passed:
        return f"{against}: {gate.reason}"
    second = signed_scores(other, how.level, how.universe, how.method)
    names = (lab.data.task, other.data.task)
    sizes = [partition.resolve(one.items, n=how.n, min_size=how.min_size).n for one in (scores, second)]
    blocks = [
        partition.resolve(one.items, n=min(sizes) or how.n, min_size=how.min_size, seed=how.seed)
        for one in (scores, second)
    ]
    for name, one in zip(names, blocks, strict=True):
        if len(one.labels) < 3:
            return f"{name}: the partition {str(partition)!r} has {len(one.labels)} blocks; three are needed"
    both = _stacked((scores, second))
    shifted = [p + len(scores.items) for p in blocks[1].positions]
    joined = Blocks(
        tuple(f"{name}: {label}" for name, one in zip(names, blocks, strict=True) for label in one.labels),
        (*blocks[0].positions, *shifted),
        {
            f"{name}: {key}": size
            for name, one in zip(names, blocks, strict=True)
            for key, size in one.sizes.items()
        },
        tuple(f"{name}: {label}" for name, one in zip(names, blocks, strict=True) for label in one.left_out),
    )
    options = {key: value for key, value in how.sampled.items() if key not in ("n", "min_size")}
    made = compared(both, joined, how.similarity, **options)
    if isinstance(made, str):
        return made
    codes = (0,) * len(blocks[0].labels) + (1,) * len(blocks[1].labels)
    return _Compared(made, codes, names, blocks[0].rows)


def _stacked(parts: Sequence[Scores]) -> Scores:
    """Scores of several tasks as one table; a group of one task is not a group of another."""
    items = tuple(
        replace(item, group=f"{k} {item.group}" if item.group else "")
        for k, part in enumerate(parts)
        for item in part.items
    )
    return Scores(np.concatenate([part.values for part in parts]), items, 0, parts[0].members)

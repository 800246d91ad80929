"""Stability: do the subtasks of a task run through the same circuit?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from circuittest.claims.alike import Alike, Level, Similarity
from circuittest.claims.driving import by_pairs
from circuittest.claims.subtasks import Scores, Subtasks, block_codes, listed, signed_scores
from circuittest.claims.unlike import described_pair, least_alike
from circuittest.errors import UsageError
from circuittest.find.ranking import top_count
from circuittest.find.similarity import mean_of_pairs, permuted, top_overlap
from circuittest.stats import Estimate, is_searching
from circuittest.tasks.partitions import MIN_SIZE, Partition

if TYPE_CHECKING:
    from circuittest.lab import Lab


def stability(
    lab: Lab,
    *,
    partition: str | list[str],
    similarity: Similarity = "spearman",
    level: Level = "edges",
    universe: str | list[str] = "all",
    method: str = "eap",
    top: str = "10%",
    n: int | None = None,
    min_size: int = MIN_SIZE,
    cuts: int = 16,
    replicates: int = 100,
    permutations: int = 199,
    untrained: bool = False,
    seed: int = 0,
    decide: float | None = None,
) -> Estimate:
    """Similarity of the circuits of subtasks, corrected for noise.

    Estimand: the mean over unordered pairs of subtasks of ρ between their signed mean scores of every edge or unit
    (ε-circuit-stability, Sun, arXiv 2505.24731, definition 4, for one partition), divided by √(r r'), where r is what
    ρ would be if the same subtask were measured again (`circuittest.find.similarity`). The diagonal is left out. The
    corrected value of subtasks that do not differ is 1, whatever the noise.

    Parameters
    ----------
    partition:
        The text of a `Partition` ("template", "sum >= 10", "template * order", "random:2:0"). A list is a family of
        partitions, judged by its worst one (`circuittest.claims.stability_family`).
    similarity:
        "spearman", "pearson", or "topk": overlap of the `top` % largest, chance taken out.
    level, universe, method:
        Which scores: every edge of the universe, or every unit (signed sum over its edges).
    n, min_size:
        Examples per block (by default as many as the smallest block has), and the fewest that a block may have.
    cuts, replicates:
        Random cuts into halves, and random subsamples for the interval.
    permutations:
        Random partitions into blocks of the same sizes, for the null of no difference; 0 for none.
    untrained:
        Also the value of an untrained twin of the model.
    seed:
        Of every random choice.
    decide:
        The threshold, where it is known: a family then counts its partitions on either side.

    All examples of both splits are used: a partition by features chose nothing on either. While partitions are searched
    for one that fails (`circuittest.stats.searching`), only the discovery examples are.

    Invalid when fewer than two blocks are large enough, when scores do not vary, when a reliability's interval
    reaches 0, and when the model is not competent.
    """
    how = Alike.of(locals())
    if not isinstance(partition, str):
        from circuittest.claims.stability_family import stability_family

        if untrained:
            raise UsageError(
                "a family of partitions has no untrained twin beside it",
                "",
                "claim single partitions with it",
            )
        return stability_family(lab, partition, how, decide=decide)
    chosen = Partition.parse(partition)
    choices = {
        **how.choices,
        "partition": str(chosen),
        "permutations": permutations,
        "splits": "discover and evaluate",
    }

    def invalid(reason: str, details: dict[str, Any] | None = None) -> Estimate:
        return lab.estimate("stability", None, choices=choices, details=details or {}, invalid=reason)

    scores = how.scores(lab, permutations)
    if isinstance(scores, str):
        return invalid(scores)
    if is_searching():
        scores, choices["splits"] = scores.split()[0], "discover (a search)"
        permutations = choices["permutations"] = 0  # no draw is judged by its null
    made = how.compare(scores, chosen)
    if isinstance(made, str):
        return invalid(made)
    details = described(made)
    details["n_scores"] = int(scores.values.shape[1])
    if made.invalid:
        return invalid(made.invalid, details)
    k = top_count(top, scores.values.shape[1])
    codes = block_codes(made.blocks, len(scores.items))
    shares = top_overlap(scores.values, codes, k)
    details["top_overlap"] = {
        "top": top,
        "mean": float(mean_of_pairs(shares)),
        "chance": k / scores.values.shape[1],
        "matrix": shares.tolist(),
    }
    details["least_alike"] = least_alike(scores, made)
    hints = left_out(made)
    if permutations:
        details["null"] = _null(scores, codes, made, similarity, k, permutations, seed)
        if details["null"]["p"] <= 0.05:
            hints.append(
                f"blocks differ more than random blocks of the same sizes do (p = {details['null']['p']:.2g})"
            )
    hints.append(described_pair(details["least_alike"]))
    if untrained:
        twin = signed_scores(lab.untrained(seed), level, universe, method)
        found = how.compare(twin, chosen)
        details["untrained"] = (
            {"invalid": found} if isinstance(found, str) else {"invalid": found.invalid, **described(found)}
        )
    inference = made.inference(replicates)
    return used(
        lab.estimate(
            "stability",
            None,
            inference=inference,
            n_examples=inference.n,
            choices=choices,
            details=details,
            hints=tuple(hints),
            together=_together(lab, how),
            driving=by_pairs(
                details["subtasks"],
                details["similarity"],
                _prompts(scores, codes, len(made.blocks.labels)),
                {"control": _random_blocks(details.get("null"))},
            ),
        ),
        scores,
        made.blocks.rows,
    )


def _prompts(scores: Scores, codes: Any, blocks: int) -> list[str]:
    """The first prompt of each block."""
    first = [np.flatnonzero(np.asarray(codes) == block) for block in range(blocks)]
    return [scores.items[int(rows[0])].example.prompt if len(rows) else "" for rows in first]


def _random_blocks(null: dict[str, Any] | None) -> str:
    """What random blocks come to, in words; "" where none were drawn."""
    if null is None:
        return ""
    low, high = null["range"]
    return (
        f"random blocks of the same sizes: raw similarity {low:.2f} to {high:.2f} (95 % of {null['draws']}), "
        f"mean {null['mean']:.2f}"
    )


def _together(lab: Lab, how: Alike) -> Callable[[Sequence[Estimate]], Estimate]:
    """The claim about all partitions that a search drew, each once."""

    def family(drawn: Sequence[Estimate]) -> Estimate:
        from circuittest.claims.stability_family import stability_family

        here = lab.estimate("stability", None, invalid="nothing was measured", choices=how.choices)
        same = lambda one: (
            (one.fingerprint, one.task) == (here.fingerprint, here.task)
            and all(one.choices.get(key) == value for key, value in here.choices.items())
        )
        if not all(map(same, drawn)):
            raise UsageError(
                "the stability of the draws was measured in different ways, or on different examples",
                "they cannot be judged together",
                "draw partitions only, and fix the lab and the other options",
            )
        return stability_family(lab, sorted({str(one.choices["partition"]) for one in drawn}), how)

    return family


def described(made: Subtasks) -> dict[str, Any]:
    """The numbers behind a value; undefined ones are NaN."""
    raw = float(mean_of_pairs(made.found.raw))
    whole = np.array([row["whole"] for row in made.reliability().values()])
    root = np.sqrt(np.where(whole > 0, whole, np.nan))
    return {
        "subtasks": list(made.blocks.labels),
        "n": made.blocks.n,
        "sizes": dict(made.blocks.sizes),
        "left_out": list(made.blocks.left_out),
        "similarity": made.found.corrected.tolist(),
        "value": made.value,
        "raw": raw,
        "raw_matrix": made.found.raw.tolist(),
        "reliability": made.reliability(),
        "stepped_up": float(mean_of_pairs(made.found.raw / np.outer(root, root))),
    }


def left_out(made: Subtasks) -> list[str]:
    """What to say of blocks that were too small."""
    if not made.blocks.left_out:
        return []
    return [f"left out for having too few examples: {listed(made.blocks.sizes, made.blocks.left_out)}"]


def used(estimate: Estimate, scores: Scores, rows: Any) -> Estimate:
    """The estimate with the examples that it rests on."""
    splits: dict[str, list[int]] = {"discover": [], "evaluate": []}
    for row in sorted(int(r) for r in rows):
        splits["discover" if row < scores.discovered else "evaluate"].append(scores.items[row].index)
    return replace(estimate, examples=splits)


def _null(
    scores: Scores, codes: Any, made: Subtasks, similarity: str, k: int, draws: int, seed: int
) -> dict[str, Any]:
    """Raw similarity of random blocks of the same sizes, and how often it is as low as that of these blocks."""
    found = permuted(scores.values, codes, scores.clusters, similarity, k=k, draws=draws, seed=seed)
    raw = float(mean_of_pairs(made.found.raw))
    low, high = np.quantile(found, [0.025, 0.975])
    # equal up to rounding counts as equal
    below = int((found <= raw + 1e-6).sum())
    return {
        "of": "raw",
        "mean": float(found.mean()),
        "range": [float(low), float(high)],
        "draws": draws,
        "p": (1 + below) / (1 + draws),
    }

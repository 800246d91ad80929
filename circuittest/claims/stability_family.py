"""Stability over a family of partitions: every one of them, judged by the worst.

"For all partitions" is searched, then tested: the worst partition is found on the discovery examples and measured once
on the evaluation examples, which had no part in the search. That measurement can refute. Support needs more: the
lower bounds of all partitions, which hold simultaneously (max-T), must be beyond the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circuittest.claims.alike import Alike
from circuittest.claims.stability import described, used
from circuittest.claims.subtasks import Scores, Subtasks, similarities
from circuittest.errors import UsageError
from circuittest.find.similarity import KEPT_SHARE, PARTS, corrected, mean_of_pairs
from circuittest.stats import Estimate
from circuittest.stats.halves import random_parts
from circuittest.stats.inference import Op, examples_needed
from circuittest.stats.simultaneous import MaxT, StudentInference
from circuittest.tasks.partitions import Partition

if TYPE_CHECKING:
    from circuittest.lab import Lab

#: Members on which partitions are searched and errors are found; more make neither better. (Fewer members carry a
#: little more noise, so that the errors are too large rather than too small.)
COLUMNS = 4096
#: Of how many partitions, from the worst on, a record lists the bounds.
LISTED = 50


class WorstInference:
    """The least of many statistics: bounded from below by all of them at once, from above by one chosen beforehand.

    Parameters
    ----------
    everywhere:
        All statistics, with simultaneous bounds.
    worst:
        The one that a search on other data chose. Its value is the point value.
    """

    def __init__(self, everywhere: MaxT, worst: StudentInference) -> None:
        self.everywhere, self.worst = everywhere, worst
        self.value = worst.value
        self.n = worst.n
        self.method = (
            f"below: max-T over {everywhere.values.size} partitions; above: Student's t of the worst partition, chosen "
            "on other examples"
        )

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Both ends bound the least of the true values."""
        low = float(self.everywhere.bounds((1 - confidence) / 2)[0].min())
        return min(low, self.value), self.worst.interval(confidence)[1]

    def p_value(self, op: Op, threshold: float) -> float:
        if op in ("<=", "<"):
            return self.worst.p_value(op, threshold)
        p = self.everywhere.tail(float(self.everywhere.distances(threshold).min()))
        return max(p, 0.5) if self.value < threshold else p

    def needed(self, op: Op, threshold: float) -> dict[str, Any]:
        least = int(np.argmin(self.everywhere.values))
        value = float(self.everywhere.values[least])
        half = self.everywhere.critical(0.025) * float(self.everywhere.errors[least])
        return examples_needed(self.n, half, abs(value - threshold), float(self.everywhere.errors[least]))

    def counts(self, op: Op, threshold: float, confidence: float = 0.95) -> dict[str, int]:
        """How many of the partitions are supported, refuted and undecided, by simultaneous bounds."""
        low, high = self.everywhere.bounds((1 - confidence) / 2)
        above = {
            ">": low > threshold,
            ">=": low >= threshold,
            "<": high < threshold,
            "<=": high <= threshold,
        }[op]
        against = {
            ">": high <= threshold,
            ">=": high < threshold,
            "<": low >= threshold,
            "<=": low > threshold,
        }[op]
        return {
            "supported": int(above.sum()),
            "refuted": int(against.sum()),
            "undecided": int(low.size - above.sum() - against.sum()),
        }


def stability_family(
    lab: Lab,
    partitions: Sequence[str | Partition],
    how: Alike,
    *,
    decide: float | None = None,
) -> Estimate:
    """The stability of the worst of several partitions.

    ``details["partitions"]`` lists them from the worst on, with bounds that hold for all at once;
    ``estimate.inference.counts(">", 0.6)`` counts how many are supported, refuted and undecided; where the threshold is
    known beforehand (`decide`) the counts are in the details. However many are
    drawn, they are evidence for "all partitions", and no proof.

    Invalid also when any of the partitions cannot be judged.

    Raises
    ------
    UsageError
        For no partitions, and for one listed twice.
    """
    chosen = [Partition.parse(p) for p in partitions]
    names = [str(p) for p in chosen]
    if not chosen or len(set(names)) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        what = f"the partition {repeated[0]!r} is listed twice" if repeated else "a family of no partitions"
        raise UsageError(what, "", "list each once")
    choices: dict[str, Any] = {
        **how.choices,
        "partition": names,
        "partitions": len(names),
        "splits": "searched on discover, tested on evaluate, bounded on both",
    }

    def invalid(reason: str) -> Estimate:
        return lab.estimate("stability", None, choices=choices, invalid=reason)

    scores = how.scores(lab)
    if isinstance(scores, str):
        return invalid(scores)
    options = {key: value for key, value in how.sampled.items() if key not in ("cuts", "replicates")}
    found = _Family(scores, chosen, how.similarity, options).measure(how.cuts, how.replicates)
    if isinstance(found, str):
        return invalid(found)
    everywhere, df, worst, tested = found
    inference = WorstInference(
        MaxT(everywhere[0], everywhere[1], KEPT_SHARE, df, seed=how.seed), tested.inference(how.replicates)
    )
    low, high = inference.everywhere.bounds(0.025)
    order = np.argsort(everywhere[0], kind="stable")[:LISTED]
    details: dict[str, Any] = {
        "worst": names[worst],
        "tested": described(tested),
        "n_partitions": len(names),
        "partitions": [
            {"partition": names[i], "value": float(v), "low": float(a), "high": float(b)}
            for i, v, a, b in zip(order, everywhere[0][order], low[order], high[order], strict=True)
        ],
        "n_scores": int(scores.values.shape[1]),
    }
    if decide is not None:
        details["counts"] = inference.counts(">", decide)
    test = scores.split()[1]
    return used(
        lab.estimate(
            "stability",
            None,
            inference=inference,
            n_examples=inference.n,
            choices=choices,
            details=details,
            hints=(f"the worst of {len(names)} partitions on the discovery examples is {names[worst]!r}",),
        ),
        test,
        tested.blocks.rows,
    )


class _Family:
    """The three measurements: all partitions on everything, all on the discovery examples, the worst on the rest."""

    def __init__(
        self, scores: Scores, partitions: Sequence[Partition], similarity: str, how: dict[str, Any]
    ) -> None:
        self.scores, self.partitions, self.similarity, self.how = scores, partitions, similarity, how
        width = scores.values.shape[1]
        few = np.arange(width)
        if width > COLUMNS:
            rng = np.random.Generator(np.random.PCG64(how["seed"]))
            few = np.sort(rng.permutation(width)[:COLUMNS])
        self.narrow = scores if width <= COLUMNS else scores.columns(few)

    def measure(
        self, cuts: int, replicates: int
    ) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], float, int, Subtasks] | str:
        """(values [P] and replicates [R × P] on all, df), which is worst, and the worst on evaluation examples."""
        search, test = self.narrow.split()[0], self.scores.split()[1]
        if not search.items or not test.items:
            return "a family is searched on discovery examples and tested on evaluation examples; one split is empty"
        values, drawn, df, searched = [], [], [], []
        everyone = np.zeros(len(self.scores.items), dtype=np.intp)
        seed = self.how["seed"] + 2_000_003
        subsamples = list(
            random_parts(everyone, self.scores.clusters, parts=PARTS, draws=replicates, seed=seed)
        )
        few = max(2, cuts // 4)
        try:
            for partition in self.partitions:
                whole = self._one(self.scores, partition, cuts=few, replicates=0)
                spread = self._one(self.narrow, partition, cuts=1, subsamples=subsamples)
                values.append(whole.value)
                drawn.append(mean_of_pairs(corrected(spread.found.replicates)))
                df.append(spread.df)
                searched.append(self._one(search, partition, cuts=few, replicates=0).value)
            worst = int(np.argmin(searched))
            tested = self._one(test, self.partitions[worst], cuts=cuts, replicates=replicates)
        except _Unusable as error:
            return str(error)
        return (np.array(values), np.stack(drawn, axis=1)), min(df), worst, tested

    def _one(self, scores: Scores, partition: Partition, **more: Any) -> Subtasks:
        made = similarities(scores, partition, self.similarity, **self.how, **more)
        reason = made if isinstance(made, str) else made.invalid
        if isinstance(made, str) or reason:
            raise _Unusable(f"partition {str(partition)!r}: {reason}")
        if np.isnan(made.value):
            raise _Unusable(
                f"partition {str(partition)!r}: a block of {made.blocks.n} examples does not agree with itself at all; "
                "take more examples"
            )
        return made


class _Unusable(Exception):
    """Why one partition cannot be judged."""

"""How often is a difference of stability claimed where there is none?

    python benchmarks/statistics/differences.py [--runs 400]

Ten subtasks of 24 examples, edge scores with noise. *By*: labels are given to subtasks at random. *Against*: two
conditions of equal stability, whose circuits have much, or nothing, in common. Bar: "above 0" is supported in at most
2.5 % of the samples, up to simulation error. The last rows show how often a true difference is found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from circuittest.claims.subtasks import Scores, compared
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
from circuittest.tasks.partitions import Blocks

BLOCKS, SIZE, WIDTH, NOISE = 10, 24, 150, 2.0
Means = Callable[[np.random.Generator], np.ndarray]


def like(rng: np.random.Generator, blocks: int, rho: float, common: np.ndarray | None = None) -> np.ndarray:
    """[blocks × width] means whose rows correlate by `rho` in expectation, by way of a part that they share."""
    common = rng.standard_normal(WIDTH) if common is None else common
    return np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.standard_normal((blocks, WIDTH))


def random_labels(rng: np.random.Generator) -> np.ndarray:
    return like(rng, BLOCKS, 0.6)


def nothing_in_common(rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([like(rng, BLOCKS // 2, 0.6), like(rng, BLOCKS // 2, 0.6)])


def unequal(rng: np.random.Generator) -> np.ndarray:
    common = rng.standard_normal(WIDTH)
    return np.concatenate([like(rng, BLOCKS // 2, 0.8, common), like(rng, BLOCKS // 2, 0.3, common)])


def verdict(means: np.ndarray, seed: int, within: bool, noise: float) -> str:
    """The outcome of "above 0" on one sample."""
    rng = np.random.default_rng([seed, 7])
    code = np.repeat(np.arange(BLOCKS), SIZE)
    values = (means[code] + noise * rng.standard_normal((code.size, WIDTH))).astype(np.float32)
    labels = tuple(map(str, range(BLOCKS)))
    blocks = Blocks(
        labels, tuple(np.flatnonzero(code == b) for b in range(BLOCKS)), dict.fromkeys(labels, SIZE)
    )
    made = compared(_scores(values), blocks, "spearman", cuts=6, replicates=40, seed=seed)
    if isinstance(made, str) or made.invalid:
        return "invalid"
    statistic = within_minus_cross if within else first_minus_second
    rows, _ = labellings([0] * (BLOCKS // 2) + [1] * (BLOCKS // 2), most=1999, seed=seed)
    permuted = statistic(made.found.corrected, rows)
    error = float(subsample_error(statistic(made.found.corrected_replicates, rows[:1])[:, 0], KEPT_SHARE))
    student = StudentInference(float(permuted[0]), error, made.df, code.size, "t")
    circuits = None
    if not within:
        circuits = StudentInference(
            float(permuted[0]), *leave_one_out(made.found.corrected, rows[0]), code.size, "t"
        )
    found = LabelledInference(student, permuted, circuits)
    return Estimate(claim="stability_difference", value=found.value, inference=found).compare(">", 0).outcome


def _scores(values: np.ndarray) -> Scores:
    from types import SimpleNamespace

    items = tuple(SimpleNamespace(group="", features={}) for _ in values)
    return Scores(values, items, 0)  # type: ignore[arg-type]


def cases() -> Iterator[tuple[str, Means, bool, float, bool]]:
    """Name, means, by or against, noise, and whether there is a difference."""
    for noise in (1.0, NOISE):
        yield f"by, labels at random, noise {noise:g}", random_labels, True, noise, False
        yield f"against, same stability, noise {noise:g}", random_labels, False, noise, False
        yield (
            f"against, same stability, nothing in common, noise {noise:g}",
            nothing_in_common,
            False,
            noise,
            False,
        )
    yield "by, two kinds of circuits", nothing_in_common, True, NOISE, True
    yield "against, 0.8 and 0.3", unequal, False, NOISE, True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    worst = 0.0
    for name, means, within, noise, differs in cases():
        outcomes = [verdict(means(np.random.default_rng([s, 3])), s, within, noise) for s in range(runs)]
        share = outcomes.count("supported") / runs
        print(f"{name:<60} supported {share:.3f}, invalid {outcomes.count('invalid') / runs:.3f}", flush=True)
        worst = worst if differs else max(worst, share)
    limit = 0.025 + 2.6 * (0.025 * 0.975 / runs) ** 0.5
    print(f"worst false rate {worst:.3f}, bar 0.025 (up to {limit:.3f} by chance)")
    sys.exit(worst > limit)


if __name__ == "__main__":
    main()

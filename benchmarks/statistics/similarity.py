"""Do the intervals of stability and families cover?

    python benchmarks/statistics/similarity.py [--repetitions 400] [--only TEXT]

Blocks of planted soft circuits: normal, heavy-tailed or sparse scores, noise that is independent or shared by a few
factors, down to 20 examples a block and to reliabilities where most samples are invalid. Truth is the correlation of
the planted means for Pearson's; for ranks and top sets the estimand at this block size, from `TRUTH` large samples.
Bars as in coverage.py: at least 93 % of the valid samples covered at every grid point, above 98 % flagged.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import stdtrit

from circuittest.claims.families import FamiliesInference, components
from circuittest.claims.stability_family import WorstInference
from circuittest.find.similarity import (
    KEPT_SHARE,
    PARTS,
    BlockSimilarity,
    block_similarity,
    corrected,
    mean_of_pairs,
)
from circuittest.stats.halves import random_parts
from circuittest.stats.simultaneous import MaxT, StudentInference, smallest_df, subsample_error

Array = NDArray[np.float64]
Rng = np.random.Generator
TRUTH, REPLICATES, FACTORS = 300, 60, 20


@dataclass(frozen=True)
class Population:
    """One grid point. `noise` is relative to the scores, `share` of its variance comes from a few common factors."""

    kind: str
    tail: str
    blocks: int
    n: int
    rho: float
    noise: float
    share: float = 0.0
    width: int = 300

    @property
    def name(self) -> str:
        shared = f", {self.share:.0%} in factors" if self.share else ""
        return f"{self.tail}, {self.width} scores, {self.blocks} × {self.n}, ρ = {self.rho}, noise {self.noise}{shared}"

    def means(self, rng: Rng) -> Array:
        """True scores [blocks × width]."""
        common, own = rng.standard_normal(self.width), rng.standard_normal((self.blocks, self.width))
        means: Array = np.sqrt(self.rho) * common + np.sqrt(1 - self.rho) * own
        if self.tail == "heavy":
            return means**3 / 3
        return means * np.where(rng.random(self.width) < 0.1, 3, 0) if self.tail == "sparse" else means

    def sample(self, rng: Rng, means: Array, loadings: Array) -> NDArray[np.float32]:
        """Scores [blocks · n × width]."""
        size = (self.blocks * self.n, self.width)
        noise = np.sqrt(1 - self.share) * rng.standard_normal(size)
        if self.share:
            noise += np.sqrt(self.share / FACTORS) * rng.standard_normal((size[0], FACTORS)) @ loadings
        return (np.repeat(means, self.n, axis=0) + self.noise * noise).astype(np.float32)

    def compare(
        self, values: NDArray[np.float32], seed: int, replicates: int, cuts: int = 16
    ) -> BlockSimilarity:
        """As the claim does."""
        codes = np.repeat(np.arange(self.blocks), self.n)
        return block_similarity(
            values, codes, np.arange(codes.size), self.kind, k=self.width // 10,
            cuts=cuts, replicates=replicates, seed=seed,
        )  # fmt: skip


def grid() -> Iterator[Population]:
    """Every population of the single-partition table."""
    for kind in ("pearson", "spearman", "topk"):
        for tail in ("normal", "heavy", "sparse"):
            for n, noise, share in ((20, 2.0, 0.0), (20, 1.0, 0.3), (60, 4.0, 0.05)):
                for rho in (0.0, 0.6, 0.95):
                    yield Population(kind, tail, 2, n, rho, noise, share)
        yield Population(kind, "normal", 4, 20, 0.6, 2.0)
        yield Population(kind, "normal", 3, 40, 0.6, 1.0, width=32)
        yield Population(kind, "normal", 2, 20, 1.0, 2.0)


def reliable(found: BlockSimilarity, df: float) -> bool:
    """The gate of the claim."""
    errors = subsample_error(np.diagonal(found.replicates, axis1=1, axis2=2), KEPT_SHARE)
    lower = found.reliability - float(stdtrit(df, 0.975)) * errors
    return bool(lower.min() > 0 and np.isfinite(found.corrected_replicates).all())


def stability(population: Population, repetitions: int) -> tuple[str, ...]:
    """One row: coverage among the valid samples."""
    rng = np.random.default_rng(zlib.crc32(f"{population.kind}|{population.name}".encode()))
    means, loadings = population.means(rng), rng.standard_normal((FACTORS, population.width))
    if population.kind == "pearson":
        truth = float(mean_of_pairs(np.corrcoef(means)))
    else:
        drawn = (population.sample(rng, means, loadings) for _ in range(TRUTH))
        halves = [population.compare(one, i, 0, cuts=4).halves for i, one in enumerate(drawn)]
        truth = float(mean_of_pairs(corrected(np.mean(halves, axis=0))))
    above = below = valid = 0
    values, errors = [], []
    df = smallest_df([population.n], REPLICATES)
    for i in range(repetitions):
        found = population.compare(population.sample(rng, means, loadings), i, REPLICATES)
        if not reliable(found, df):
            continue
        valid += 1
        values.append(float(mean_of_pairs(found.corrected)))
        errors.append(float(subsample_error(mean_of_pairs(found.corrected_replicates), KEPT_SHARE)))
        low, high = StudentInference(values[-1], errors[-1], df, population.n, "").interval()
        above, below = above + (low > truth), below + (high < truth)
    ratio = np.mean(errors) / np.std(values) if valid > 9 else np.nan
    return row(population.kind, population.name, truth, above, below, valid, repetitions, float(ratio))


def worst_of_many(repetitions: int) -> tuple[str, ...]:
    """The least of ten random partitions of examples that do not differ: truth 1."""
    rng = np.random.default_rng(11)
    n, width = 120, 200
    half = np.arange(n) < n // 2
    above = below = 0
    for i in range(repetitions):
        values = (rng.standard_normal(width) + 2 * rng.standard_normal((n, width))).astype(np.float32)
        parts = list(
            random_parts(np.zeros(n, dtype=np.intp), np.arange(n), parts=PARTS, draws=REPLICATES, seed=i)
        )
        codes = [rng.permutation(np.arange(n) % 2) for _ in range(10)]
        each = [
            block_similarity(values, c, np.arange(n), "spearman", cuts=4, subsamples=parts) for c in codes
        ]
        searched = [
            block_similarity(values[half], c[half], np.arange(n // 2), "spearman", cuts=4, replicates=0)
            for c in codes
        ]
        worst = codes[int(np.argmin([mean_of_pairs(one.corrected) for one in searched]))][~half]
        tested = block_similarity(values[~half], worst, np.arange(n // 2), "spearman", replicates=REPLICATES)
        error = float(subsample_error(mean_of_pairs(tested.corrected_replicates), KEPT_SHARE))
        student = StudentInference(
            float(mean_of_pairs(tested.corrected)), error, smallest_df([30], REPLICATES), n // 2, ""
        )
        replicates = np.stack([mean_of_pairs(one.corrected_replicates) for one in each], axis=1)
        everywhere = MaxT(
            [mean_of_pairs(one.corrected) for one in each],
            replicates,
            KEPT_SHARE,
            smallest_df([60], REPLICATES),
            seed=i,
        )
        low, high = WorstInference(everywhere, student).interval()
        above, below = above + (low > 1), below + (high < 1)
    return row(
        "spearman", "worst of 10 random partitions", 1.0, above, below, repetitions, repetitions, np.nan
    )


def families(repetitions: int, alpha: float = 0.6) -> tuple[str, ...]:
    """The number of families of five blocks, some of whose similarities lie close to α."""
    population = Population("pearson", "normal", 5, 30, 0.62, 2.0, width=200)
    rng = np.random.default_rng(3)
    means = population.means(rng)
    loadings = np.zeros((FACTORS, population.width))
    truth = max(components(np.corrcoef(means) >= alpha)) + 1
    upper = np.triu_indices(5, 1)
    above = below = 0
    for i in range(repetitions):
        found = population.compare(population.sample(rng, means, loadings), i, REPLICATES)
        replicates = found.corrected_replicates[:, upper[0], upper[1]]
        pairs = MaxT(
            found.corrected[upper], replicates, KEPT_SHARE, smallest_df([population.n], REPLICATES), seed=i
        )
        low, high = FamiliesInference(pairs, 5, alpha, 150).interval()
        above, below = above + (low > truth), below + (high < truth)
    return row(
        "families", f"α = {alpha}, {population.name}", truth, above, below, repetitions, repetitions, np.nan
    )


def row(
    kind: str, name: str, truth: float, above: int, below: int, valid: int, of: int, ratio: float
) -> tuple[str, ...]:
    """Texts of one row; the last says whether it passes."""
    if not valid:
        return kind, name, f"{truth:.3f}", "", "", "100 %", "", "pass"
    coverage = 1 - (above + below) / valid
    # with few valid samples a miss is no evidence
    short = coverage < 0.93 - 2.33 * (0.07 * 0.93 / valid) ** 0.5 if valid < 300 else coverage < 0.93
    note = "FAIL" if short else "pass, conservative" if coverage > 0.98 else "pass"
    invalid = f"{1 - valid / of:.0%}"
    shown = "" if np.isnan(ratio) else f"{ratio:.2f}"
    return kind, name, f"{truth:.3f}", f"{coverage:.3f}", f"{above}/{below}", invalid, shown, note


def main() -> None:
    parser = argparse.ArgumentParser(description="coverage of stability and families")
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--only", default="", help="rows whose kind or population contains this")
    options = parser.parse_args()
    start = time.perf_counter()
    rows = [
        stability(population, options.repetitions)
        for population in grid()
        if options.only in f"{population.kind} {population.name}"
    ]
    if not options.only or options.only in "families worst":
        rows += [worst_of_many(options.repetitions), families(options.repetitions)]
    table = Table(title=f"{options.repetitions} samples per row, {time.perf_counter() - start:.0f} s")
    for column in ("similarity", "population", "truth", "coverage", "above/below", "invalid", "error/sd", ""):
        table.add_column(column)
    for one in rows:
        table.add_row(*one)
    Console(width=150).print(table)
    sys.exit(any(one[-1] == "FAIL" for one in rows))


if __name__ == "__main__":
    main()

"""What stability over many partitions costs, without a model run.

    python -m benchmarks.stability [--partitions 1000] [--examples 1000] [--edges 100000] [--blocks 2] [--cuts 4]

A planted score table stands for the per-example edge scores of a model. Timed per partition: the corrected similarity
of its blocks (means by matrix products in float32, ranks of the half means only), and the replicates on 4,096 edges
that the interval of a family needs. With fewer than all partitions the total is extrapolated. Memory is the growth of
the process's peak beyond the table.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from circuittest.claims.stability_family import COLUMNS
from circuittest.find.similarity import PARTS, block_similarity, corrected, mean_of_pairs
from circuittest.stats.halves import random_parts


def table(examples: int, edges: int) -> np.ndarray:
    """Scores of one circuit with heavy tails and noise [examples × edges], made in slices."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal(edges, dtype=np.float32) ** 3
    values = np.empty((examples, edges), dtype=np.float32)
    for row in values:
        rng.standard_normal(edges, dtype=np.float32, out=row)
        row += means
    return values


def peak() -> float:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of stability over many partitions")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--measured", type=int, help="time only this many, and extrapolate")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=100_000)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--cuts", type=int, default=4)
    parser.add_argument("--replicates", type=int, default=100)
    options = parser.parse_args()
    values = table(options.examples, options.edges)
    clusters = np.arange(options.examples)
    before = peak()
    few = min(options.measured or options.partitions, options.partitions)
    rng = np.random.default_rng(1)
    codes = [rng.permutation(clusters % options.blocks) for _ in range(few)]

    def seconds(label: str, call, count: int) -> tuple[str, float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        for code in codes[:count]:
            call(code)
        factor = options.partitions / count
        return label, factor * (time.perf_counter() - wall), factor * (time.process_time() - cpu)

    rows = []
    for kind in ("spearman", "pearson"):
        how = {"cuts": options.cuts, "replicates": 0}
        rows.append(
            seconds(
                f"{kind}: values, all edges",
                lambda code, kind=kind, how=how: mean_of_pairs(
                    block_similarity(values, code, clusters, kind, **how).corrected
                ),
                few,
            )
        )
    narrow = np.ascontiguousarray(values[:, :: max(1, options.edges // COLUMNS)][:, :COLUMNS])
    everyone = np.zeros(options.examples, dtype=np.intp)
    subsamples = list(random_parts(everyone, clusters, parts=PARTS, draws=options.replicates, seed=0))
    rows.append(
        seconds(
            f"spearman: {options.replicates} replicates, {narrow.shape[1]:,} edges",
            lambda code: mean_of_pairs(
                corrected(
                    block_similarity(
                        narrow, code, clusters, "spearman", cuts=1, subsamples=subsamples
                    ).replicates
                )
            ),
            max(1, few // 4),
        )
    )
    shown = Table(
        title=f"{options.partitions:,} partitions into {options.blocks}, {options.examples:,} examples × "
        f"{options.edges:,} edges, {few} partitions timed"
    )
    for name in ("what", "seconds", "CPU seconds"):
        shown.add_column(name, justify="left" if name == "what" else "right")
    for label, wall, cpu in rows:
        shown.add_row(label, f"{wall:.1f}", f"{cpu:.1f}")
    console = Console(width=110)
    console.print(shown)
    console.print(f"table {values.nbytes / 2**20:.0f} MiB, beyond it {peak() - before:.0f} MiB")


if __name__ == "__main__":
    main()

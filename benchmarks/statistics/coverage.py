"""Does a 95 % interval cover in 95 % of all samples, and is a verdict at the boundary wrong as rarely as it says?

    python benchmarks/statistics/coverage.py            # about ten minutes of one core
    python benchmarks/statistics/coverage.py --quick    # about one minute

Bars: coverage of at least 93 % at every grid point, above 98 % flagged as conservative; with the threshold put at
the true value a false "supported" at most as often as the nominal 2.5 % (on either side), up to simulation error;
rank p-values and the competence gate at most at their nominal size.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from populations import Case, Rng, Sets, all_cases

from circuittest.stats import competence, rank_p
from circuittest.stats.verdict import decide

COVERAGE, CONSERVATIVE, TAIL = 0.93, 0.98, 0.025


@dataclass
class Row:
    """The result at one grid point."""

    statistic: str
    population: str
    coverage: float
    above: float
    below: float
    width: float
    ok: bool
    note: str


def simulate(case: Case, repetitions: int) -> Row:
    """Draw `repetitions` samples of a case and count."""
    rng = _rng(case.statistic, case.population)
    above = below = 0
    width = 0.0
    for repetition in range(repetitions):
        interval = case.draw(rng, repetition).interval(0.95)
        # the threshold is the true value, so that either verdict would be false; rounding is no verdict
        above += decide((interval[0] - 1e-9, interval[1]), ">", case.truth) == "supported"
        below += decide((interval[0], interval[1] + 1e-9), "<", case.truth) == "supported"
        width += interval[1] - interval[0]
    coverage = 1 - (above + below) / repetitions
    limit = TAIL + 2.33 * math.sqrt(TAIL * (1 - TAIL) / repetitions)
    sized = max(above, below) / repetitions <= limit
    notes = [] if sized else ["size"]
    if coverage < COVERAGE:
        notes.append("coverage")
    if coverage > CONSERVATIVE:
        notes.append("conservative")
    ok = coverage >= COVERAGE and (sized or not case.sized)
    return Row(
        case.statistic, case.population, coverage, above / repetitions, below / repetitions,
        width / repetitions, ok, ", ".join(notes),
    )  # fmt: skip


def rank_sizes(repetitions: int) -> list[Row]:
    """False rank p-values where the circuit is one more draw from its controls."""
    rows = []
    for count in (20, 40):
        for sets in (Sets("5 % catastrophic", 1, 0, 0.98, 0.05), Sets("sets differ", 1, 0, 0.9, 0.0, 10.0)):
            rng = _rng("rank", f"{count}{sets.name}")
            false = 0
            for _ in range(repetitions):
                _, _, table = sets.outcomes(rng, 50, sets.rates(rng, count + 1))
                accuracies = table.mean(axis=1)
                false += rank_p(accuracies[0], list(accuracies[1:])).p <= 0.05
            rows.append(_size("rank p at 0.05", f"{sets.name}, R = {count}", false, repetitions, 0.05))
    return rows


def gate_sizes(repetitions: int) -> list[Row]:
    """Models passed by the competence gate whose true headroom is exactly the one required."""
    rows = []
    gates = min(repetitions, 300)  # the gate resamples ten times as often as the rest
    for n in (20, 50, 200):
        for kind in ("chance 0.5", "ablated 0.3"):
            rng = _rng("gate", f"{n}{kind}")
            false = 0
            for _ in range(gates):
                if kind == "chance 0.5":
                    gate = competence((rng.random(n) < 0.7) * 1.0, chance=0.5)
                else:
                    level = rng.random(n)  # what survives the ablation is right anyway
                    gate = competence((level < 0.5) * 1.0, ablated=(level < 0.3) * 1.0)
                false += gate.passed
            rows.append(_size("competence at the headroom", f"{kind}, n = {n}", false, gates, TAIL))
    return rows


def _size(statistic: str, population: str, false: int, repetitions: int, nominal: float) -> Row:
    rate = false / repetitions
    ok = rate <= nominal + 2.33 * math.sqrt(nominal * (1 - nominal) / repetitions)
    return Row(statistic, population, math.nan, rate, math.nan, math.nan, ok, "" if ok else "size")


def _rng(*names: str) -> Rng:
    return np.random.Generator(np.random.PCG64(zlib.crc32("|".join(names).encode())))


def show(rows: list[Row], repetitions: int, seconds: float) -> None:
    """Print one table, and the counts."""
    table = Table(title=f"{repetitions} samples per row")
    for name in ("statistic", "population"):
        table.add_column(name)
    for name in ("coverage", "false >", "false <", "width"):
        table.add_column(name, justify="right")
    table.add_column("")
    table.add_column("note")
    for row in rows:
        numbers = [f"{x:.3f}" if math.isfinite(x) else "" for x in (row.coverage, row.above, row.below)]
        width = f"{row.width:.3f}" if math.isfinite(row.width) else ""
        verdict = "[green]pass[/]" if row.ok else "[red]FAIL[/]"
        table.add_row(row.statistic, row.population, *numbers, width, verdict, row.note)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    failed = sum(not row.ok for row in rows)
    conservative = sum("conservative" in row.note for row in rows)
    console.print(
        f"{len(rows)} grid points, {failed} failed, {conservative} conservative (above {CONSERVATIVE:.0%}); "
        f"{seconds:.0f} s"
    )


def main() -> int:
    """Run the grid; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="150 samples per grid point instead of 1000")
    parser.add_argument("--only", default="", help="statistics whose name contains this")
    parser.add_argument("--repetitions", type=int, help="samples per grid point")
    parser.add_argument("--verbose", action="store_true", help="print every row as it comes, on stderr")
    options = parser.parse_args()
    repetitions = options.repetitions or (150 if options.quick else 1000)
    start = time.monotonic()
    rows = []
    for case in all_cases():
        if options.only in case.statistic:
            rows.append(simulate(case, repetitions))
            if options.verbose:
                print(rows[-1], file=sys.stderr, flush=True)
    for name, sizes in (("rank p at 0.05", rank_sizes), ("competence at the headroom", gate_sizes)):
        if options.only in name:
            rows += sizes(repetitions)
    show(rows, repetitions, time.monotonic() - start)
    return int(any(not row.ok for row in rows))


if __name__ == "__main__":
    sys.exit(main())

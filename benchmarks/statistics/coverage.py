"""Does a 95 % interval cover in 95 % of all samples, and is a verdict at the boundary wrong as rarely as it says?

    python benchmarks/statistics/coverage.py            # about a quarter of an hour of one core
    python benchmarks/statistics/coverage.py --quick    # about two minutes

Bars: coverage of at least 93 % at every grid point, above 98 % flagged as conservative; with the threshold put at
the true value a false "supported" at most as often as the nominal 2.5 % (on either side), up to simulation error;
tests and the competence gate at most at their nominal size. What no interval of its kind can cover is shown as such.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.statistics.case import Case
from benchmarks.statistics.populations import all_cases
from benchmarks.statistics.sizes import Saving, Test, all_tests, limit, savings, seeded
from circuittest.stats.verdict import decide

COVERAGE, CONSERVATIVE, TAIL = 0.93, 0.98, 0.025
#: Enough for an interval whose ends are order statistics; its coverage does not depend on the number.
DRAWS = 999


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


def simulate(case: Case, repetitions: int, draws: int = DRAWS) -> Row:
    """Draw `repetitions` samples of a case and count."""
    rng = seeded(case.statistic, case.population)
    above = below = 0
    width = 0.0
    for repetition in range(repetitions):
        interval = case.draw(rng, repetition, draws).interval(0.95)
        # the threshold is the true value, so that either verdict would be false; rounding is no verdict
        above += decide((interval[0] - 1e-9, interval[1]), ">", case.truth) == "supported"
        below += decide((interval[0], interval[1] + 1e-9), "<", case.truth) == "supported"
        width += interval[1] - interval[0]
    coverage = 1 - (above + below) / repetitions
    sized = max(above, below) / repetitions <= limit(TAIL, repetitions)
    notes = [] if sized else ["size"]
    if coverage < COVERAGE:
        notes.append("coverage")
    if coverage > CONSERVATIVE:
        notes.append("conservative")
    if not case.required:
        notes.append("beyond any such interval")
    ok = not case.required or (coverage >= COVERAGE and (sized or not case.sized))
    return Row(
        case.statistic, case.population, coverage, above / repetitions, below / repetitions,
        width / repetitions, ok, ", ".join(notes),
    )  # fmt: skip


def size(test: Test, repetitions: int) -> Row:
    """Count the false verdicts of a test."""
    rng, repetitions = seeded(test.statistic, test.population), max(100, repetitions // test.cost)
    rate = sum(test.false(rng, seed) for seed in range(repetitions)) / repetitions
    ok = rate <= limit(test.nominal, repetitions)
    name = f"{test.statistic} at {test.nominal:g}"
    return Row(name, test.population, math.nan, rate, math.nan, math.nan, ok, "" if ok else "size")


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
    _print(table)
    failed = sum(not row.ok for row in rows)
    conservative = sum("conservative" in row.note for row in rows)
    _print(
        f"{len(rows)} grid points, {failed} failed, {conservative} conservative (above {CONSERVATIVE:.0%}); "
        f"{seconds:.0f} s"
    )


def show_summary(rows: Iterable[Row]) -> None:
    """Print the worst of each statistic."""
    table = Table(title="by statistic, what is beyond any such interval left out")
    for name in ("statistic", "grid points", "lowest coverage", "where", "most false verdicts of one kind"):
        table.add_column(name)
    by: dict[str, list[Row]] = {}
    for row in rows:
        if "beyond any" not in row.note:
            by.setdefault(row.statistic, []).append(row)
    for statistic, found in by.items():
        worst = min(found, key=lambda row: row.coverage)
        shown = f"{worst.coverage:.3f}" if math.isfinite(worst.coverage) else ""
        most = max(max(row.above, row.below) if math.isfinite(row.below) else row.above for row in found)
        where = worst.population if shown else ""
        table.add_row(statistic, str(len(found)), shown, where, f"{most:.3f}")
    _print(table)


def show_savings(rows: Iterable[Saving], repetitions: int) -> None:
    """Print what looks save."""
    table = Table(
        title=f"necessity in looks at 10, 20 and 40 controls, n = 100, {repetitions} samples per row"
    )
    for name in ("population", "threshold - truth", "supported", "refuted", "share of controls used"):
        table.add_column(name, justify="left" if name == "population" else "right")
    for row in rows:
        numbers = (f"{row.supported:.2f}", f"{row.refuted:.2f}", f"{row.used:.2f}")
        table.add_row(row.population, f"{row.gap:+.1f}", *numbers)
    _print(table)


def _print(what: Table | str) -> None:
    Console(width=None if sys.stdout.isatty() else 150).print(what)


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
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        if options.verbose:
            print(row, file=sys.stderr, flush=True)

    for case in all_cases():
        if options.only in case.statistic:
            add(simulate(case, repetitions))
    for test in all_tests():
        if options.only in test.statistic:
            add(size(test, repetitions))
    show(rows, repetitions, time.monotonic() - start)
    show_summary(rows)
    if options.only in "savings":
        few = max(20, repetitions // 10)
        show_savings(savings(few, DRAWS), few)
    return int(any(not row.ok for row in rows))


if __name__ == "__main__":
    sys.exit(main())

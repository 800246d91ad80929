"""How often does closure give a label that is false?

    python benchmarks/statistics/labels.py            # about five minutes of one core
    python benchmarks/statistics/labels.py --quick    # about half a minute

*Random sets*: the circuit is a random set of units whose damages add up, so that whatever label "load-bearing" or
"interfering" it gets is due to chance. *At the tolerance*: the damage beyond controls is exactly the tolerance, so that
"none" is false. Bar: each label in at most 2.5 % of all samples, up to simulation error. Where few units matter much
more than the rest (lognormal), a random set that holds one of them *is* load-bearing, however it was come by: these
rates are shown, and nothing is required of them.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))
from circuittest.claims.beyond import Damage
from circuittest.claims.closure import LEVEL, Part, judge
from circuittest.controls import Controls
from circuittest.units import Unit

Array = NDArray[np.float64]
Rng = np.random.Generator
TOLERANCE = 0.1


@dataclass(frozen=True)
class Population:
    """A model of `units` heads and circuits of `size` of them, judged by `controls` sets on `n` examples.

    `effects(rng, units)`: the damage of every unit. `shift`: what the circuit does beyond that. The model is worth 4,
    the answer is right above 2; damage varies between examples.
    """

    name: str
    effects: Callable[[Rng, int], Array]
    units: int = 48
    size: int = 5
    controls: int = 100
    n: int = 60
    shift: float = 0.0
    required: bool = True

    def labels(self, rng: Rng, seed: int, draws: int = 399) -> dict[str, bool]:
        """Which labels one sample establishes."""
        effects = self.effects(rng, self.units)
        order = rng.permutation(self.units)
        rest = order[self.size :]
        enumerated = self.size == 1
        sets = [[i] for i in rest] if enumerated else [
            rng.choice(rest, self.size, replace=False) for _ in range(self.controls)
        ]  # fmt: skip
        damage = np.array([effects[list(one)].sum() for one in (order[: self.size], *sets)])
        damage[0] += self.shift
        lost = np.outer(damage, 1 + 0.5 * rng.normal(size=self.n)) + 0.7 * rng.normal(
            size=(damage.size, self.n)
        )
        base = 4 + 0.5 * rng.normal(size=self.n)
        drawn = Controls(
            tuple((Unit("head", 0, i),) * self.size for i in range(len(sets))),
            len(sets) if enumerated else 1_000_000,
            enumerated,
            None,
        )

        def part(measure: str, at: Array, rows: Array, floor: Array) -> Part:
            found = Damage(measure, at, rows[0], floor, rows[1:], drawn, seed, draws)
            return Part(found, TOLERANCE, self.size / self.units)

        parts = {}
        for measure in ("log_prob", "logit_diff"):
            graded = base - lost + 0.2 * rng.normal(size=lost.shape)
            parts[measure] = part(measure, base, graded, 0.3 * rng.normal(size=self.n))
        parts["argmax"] = part("argmax", (base > 2) * 1.0, (graded > 2) * 1.0, np.zeros(self.n))
        return {name: label.outcome == "supported" for name, label in judge(parts, None, drawn).items()}

    def rates(self, repetitions: int) -> dict[str, float]:
        """How often each label is established."""
        rng = np.random.Generator(np.random.PCG64(zlib.crc32(self.name.encode())))
        found = [self.labels(rng, seed) for seed in range(repetitions)]
        return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


SHAPES: dict[str, Callable[[Rng, int], Array]] = {
    "normal": lambda rng, n: rng.normal(0.15, 0.3, n),
    "exponential": lambda rng, n: rng.exponential(0.3, n),
    "lognormal": lambda rng, n: 0.1 * rng.lognormal(0.0, 1.2, n),
}


def random_sets() -> list[Population]:
    """Circuits that are nothing but random sets."""
    return [
        Population(f"{shape} damage, {size} of {units}", effects, units, size, required=shape != "lognormal")
        for shape, effects in SHAPES.items()
        for units, size in ((48, 1), (48, 5), (48, 10), (270, 10))
    ]


def at_the_tolerance() -> list[Population]:
    """Units that do nothing, and a circuit that does as much as counts as nothing, up or down."""
    return [
        Population(
            f"{sign:+d} tolerance, n = {n}",
            lambda rng, units: np.zeros(units),
            n=n,
            shift=sign * 4 * TOLERANCE,
        )
        for sign in (1, -1)
        for n in (60, 200)
    ]


def limit(repetitions: int) -> float:
    """The nominal rate and 2.6 standard errors of the simulation."""
    return LEVEL + 2.6 * math.sqrt(LEVEL * (1 - LEVEL) / repetitions)


def main() -> int:
    """Run the grid; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="100 samples per grid point instead of 1000")
    repetitions = 100 if parser.parse_args().quick else 1000
    start, missed = time.monotonic(), 0
    for populations, false in (
        (random_sets(), ("load-bearing", "interfering")),
        (at_the_tolerance(), ("none",)),
    ):
        for population in populations:
            rates = population.rates(repetitions)
            bad = [name for name in false if population.required and rates[name] > limit(repetitions)]
            missed += len(bad)
            shown = ", ".join(f"{name} {rate:.3f}" for name, rate in rates.items())
            word = "FAIL" if bad else "pass" if population.required else "    "
            print(f"{word}  {population.name}: {shown}", flush=True)
    print(
        f"{repetitions} samples each, at most {limit(repetitions):.3f} allowed; {time.monotonic() - start:.0f} s"
    )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())

"""False verdicts of tests whose null hypothesis is true, and what stopping early saves where it is not."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.statistics.case import Rng, hits
from benchmarks.statistics.control_sets import POPULATIONS, Sets
from benchmarks.statistics.in_looks import stopped
from circuittest.claims.beyond import exchangeable_p
from circuittest.stats import (
    MeanInference,
    PairedDifferenceInference,
    besag_clifford,
    competence,
    equivalence,
    mcnemar,
    paired_swaps,
    rank_p,
    two_groups,
)


@dataclass(frozen=True)
class Test:
    """A test under its null: in words, the nominal size, and whether one sample is a false verdict."""

    statistic: str
    population: str
    nominal: float
    false: Callable[[Rng, int], bool]
    #: How much dearer than the others one sample is.
    cost: int = 1


def ranks() -> Iterator[Test]:
    """A circuit that is one more draw from its controls."""
    for count in (20, 40):
        for sets in (Sets("5 % catastrophic", 1, 0, 0.98, 0.05), Sets("sets differ", 1, 0, 0.9, 0.0, 10.0)):

            def accuracies(rng: Rng, sets: Sets = sets, count: int = count) -> np.ndarray:
                return sets.outcomes(rng, 50, sets.rates(rng, count + 1))[2].mean(axis=1)

            def rank(rng: Rng, seed: int, draw: Callable[[Rng], np.ndarray] = accuracies) -> bool:
                found = draw(rng)
                return rank_p(found[0], list(found[1:])).p <= 0.05

            def sequential(
                rng: Rng, seed: int, draw: Callable[[Rng], np.ndarray] = accuracies, count: int = count
            ) -> bool:
                found = draw(rng)
                p = besag_clifford(found[0], found[1:], hits=3, planned=count).p
                return p is not None and p <= 0.05

            yield Test("rank p", f"{sets.name}, R = {count}", 0.05, rank)
            yield Test("Besag-Clifford", f"{sets.name}, R = {count}, h = 3", 0.05, sequential)


def random_circuit(
    rng: Rng, size: int, units: int = 48, count: int = 40, n: int = 50
) -> tuple[float, list[float]]:
    """Accuracies under a random set of units whose damages add up, and under controls that avoid it."""
    effects = rng.normal(0.15, 0.3, units)
    order = rng.permutation(units)
    rest = order[size:]
    sets = [order[:size], *(rng.choice(rest, size, replace=False) for _ in range(count))]
    damage = np.array([effects[one].sum() for one in sets]) - 0.15 * size
    strength = 0.5 + rng.normal(size=n) - np.outer(damage, 1 + 0.3 * rng.normal(size=n))
    found = (strength > 0).mean(1)
    return float(found[0]), [float(one) for one in found[1:]]


def ranks_of_random_circuits() -> Iterator[Test]:
    """Circuits that are random sets, among controls that share no unit with them."""
    for size in (1, 4, 8, 16):

        def corrected(rng: Rng, seed: int, size: int = size) -> bool:
            return exchangeable_p(rank_p(*random_circuit(rng, size)).p, size / 48) <= 0.05

        yield Test("corrected rank p", f"a random circuit of {size} of 48 units, R = 40", 0.05, corrected)


def gates() -> Iterator[Test]:
    """Models whose true headroom is exactly the one required."""

    def chance(rng: Rng, n: int) -> bool:
        return competence(hits(rng, n, 0.7), chance=0.5).passed

    def ablated(rng: Rng, n: int) -> bool:
        level = rng.random(n)  # what survives the ablation is right anyway
        return competence((level < 0.5) * 1.0, ablated=(level < 0.3) * 1.0).passed

    for n in (20, 50, 200):
        for kind, gate in (("chance 0.5", chance), ("ablated 0.3", ablated)):
            passed = lambda rng, seed, gate=gate, n=n: gate(rng, n)
            yield Test("competence at the headroom", f"{kind}, n = {n}", 0.025, passed, cost=10)


def equivalences() -> Iterator[Test]:
    """Differences that are exactly the margin."""
    for n in (20, 50, 200):
        for first, second in ((0.95, 0.85), (0.5, 0.6)):

            def accuracies(rng: Rng, seed: int, n: int = n, a: float = first, b: float = second) -> bool:
                level = rng.random(n)  # the same examples are hard in both
                found = PairedDifferenceInference(level < a, level < b, draws=999, seed=seed)
                return equivalence(found, 0.1).outcome == "equivalent"

            yield Test("equivalence", f"accuracies {first}, {second}, margin 0.1, n = {n}", 0.025, accuracies)

        def graded(rng: Rng, seed: int, n: int = n) -> bool:
            found = MeanInference(rng.normal(0.3, 0.5, n), bounds=None, draws=999, seed=seed)
            return equivalence(found, 0.3).outcome == "equivalent"

        yield Test("equivalence", f"normal, mean at the margin, n = {n}", 0.025, graded)


def permutations() -> Iterator[Test]:
    """Two conditions, or two groups, that do not differ."""
    for n in (10, 30, 100):

        def swaps(rng: Rng, seed: int, n: int = n) -> bool:
            return (
                paired_swaps(rng.exponential(size=n), rng.exponential(size=n), draws=199, seed=seed).p <= 0.05
            )

        def accuracies(rng: Rng, seed: int, n: int = n) -> bool:
            return mcnemar(hits(rng, n, 0.8), hits(rng, n, 0.8)).p <= 0.05

        def groups(rng: Rng, seed: int, n: int = n) -> bool:
            return (
                two_groups(rng.exponential(size=n), rng.exponential(size=2 * n), draws=199, seed=seed).p
                <= 0.05
            )

        yield Test("paired swaps", f"exponential, n = {n}", 0.05, swaps)
        yield Test("McNemar", f"p = 0.8, n = {n}", 0.05, accuracies)
        yield Test("two groups", f"exponential, n = {n} and {2 * n}", 0.05, groups)

    def clusters(rng: Rng, seed: int) -> bool:
        labels = np.repeat(np.arange(15), 4)
        shift = rng.normal(size=15)[labels]  # a template gains or loses as a whole
        return (
            paired_swaps(shift + rng.normal(size=60), rng.normal(size=60), labels, draws=199, seed=seed).p
            <= 0.05
        )

    yield Test("paired swaps", "15 templates of 4", 0.05, clusters)


def all_tests() -> Iterator[Test]:
    """Every test."""
    for family in (ranks, ranks_of_random_circuits, gates, equivalences, permutations):
        yield from family()


@dataclass(frozen=True)
class Saving:
    """Stopping early on one population: shares of verdicts, and of 40 controls used."""

    population: str
    gap: float
    supported: float
    refuted: float
    used: float


def savings(repetitions: int, draws: int) -> Iterator[Saving]:
    """Thresholds away from the true value by so much: above it claims are false, below it true."""
    for sets in POPULATIONS:
        for gap in (-0.6, -0.4, -0.2, 0.2):
            rng = seeded("saving", sets.name, str(gap))
            supported = refuted = used = 0
            for seed in range(repetitions):
                tables = sets.outcomes(rng, 100, sets.rates(rng, 40))
                looked = stopped(tables, sets.truth + gap, seed, draws)
                low, high = looked.inference.interval()
                supported += low > sets.truth + gap
                refuted += high < sets.truth + gap
                used += len(looked.sets)
            yield Saving(
                sets.name, gap, supported / repetitions, refuted / repetitions, used / repetitions / 40
            )


def limit(nominal: float, repetitions: int) -> float:
    """The nominal size and what the simulation's own error allows (one-sided 1 %)."""
    return nominal + 2.33 * math.sqrt(nominal * (1 - nominal) / repetitions)


def seeded(*names: str) -> Rng:
    """A generator of its own for each grid point."""
    return np.random.Generator(np.random.PCG64(zlib.crc32("|".join(names).encode())))

"""Claims that stop measuring controls as soon as their threshold is decided: do their intervals cover?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.statistics.case import Array, Case, Rng
from benchmarks.statistics.control_sets import Sets, gamma, selectivity_of, two_tasks
from circuittest.claims.looks import AnyInference, Looked, Sets as ControlSets, measure_controls
from circuittest.controls import Controls
from circuittest.stats import GradedNecessityInference, Inference, NecessityInference
from circuittest.stats.selective import SelectivityInference
from circuittest.units import Unit


def looked(
    controls: tuple[Array, ...],
    infer: Callable[[tuple[Array, ...], Controls], AnyInference],
    decide: float,
    drawn: Controls | None = None,
    seed: int = 0,
) -> Looked[AnyInference]:
    """What measuring in looks makes of tables [R × n]; without `drawn` their sets are some of very many."""
    drawn = drawn or some_of(len(controls[0]))
    rows = {one: i for i, one in enumerate(drawn.sets)}

    def outcomes(sets: ControlSets) -> tuple[Array, ...]:
        at = [rows[one] for one in sets]
        return tuple(table[at] for table in controls)

    return measure_controls(drawn, outcomes, infer, decide=decide, forwards=(0, 1), seed=seed)


def some_of(count: int, population: int = 10**9) -> Controls:
    """So many control sets of a population, by names that mean nothing."""
    sets = tuple((Unit("head", 0, i),) for i in range(count))
    return Controls(sets, population, count == population, None)


def stopped(
    tables: tuple[Array, Array, Array], decide: float, seed: int, draws: int
) -> Looked[NecessityInference]:
    """Necessity measured in looks; the sets come from a very large population."""
    base, circuit, controls = tables
    return looked(
        (controls,),
        lambda some, _: NecessityInference(base, circuit, some[0], seed=seed, draws=draws),
        decide,
    )


def necessity_in_looks(n: int, sets: Sets, offset: float) -> Case:
    """Necessity stopped as soon as a threshold is decided: 40 controls at most, the threshold away from the truth."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        tables = sets.outcomes(rng, n, sets.rates(rng, 40))
        return stopped(tables, sets.truth + offset, seed, draws).inference

    return Case("necessity in looks", f"{sets.name}, n = {n}, threshold {offset:+g}", sets.truth, draw)


def few_sets_in_looks(total: int, bad: int, offset: float) -> Case:
    """The same where all matched sets are listed, and drawn in random order."""
    rates = np.where(np.arange(total) < bad, 0.0, 0.98)
    sets = Sets("", 0.98, 0.05, 0.98)
    truth = float(rates.mean()) - 0.05

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        base, circuit, controls = sets.outcomes(rng, 100, rates)
        return looked(
            (controls,),
            lambda some, sets: NecessityInference(
                base, circuit, some[0], total, sets.enumerated, seed=seed, draws=draws
            ),
            truth + offset,
            some_of(total, total),
            seed=int(rng.integers(2**31)),
        ).inference

    return Case(
        "necessity in looks", f"{bad} of {total} sets catastrophic, threshold {offset:+g}", truth, draw
    )


def graded_in_looks(n: int, shape: float, offset: float) -> Case:
    """Graded necessity stopped as soon as a threshold is decided, of 40 controls."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        base, circuit, controls = gamma(rng, n, 40, shape)
        return looked(
            (controls,),
            lambda some, _: GradedNecessityInference(base, circuit, some[0], seed=seed, draws=draws),
            0.5 + offset,
        ).inference

    population = f"gamma {shape:g} harm, n = {n}, threshold {offset:+g}"
    return Case("graded necessity in looks", population, 0.5, draw, sized=False)


def selective_in_looks(n: int, catastrophic: float, offset: float) -> Case:
    """Damage on one task less that on another, stopped likewise; half of the catastrophic sets spare the second."""
    truth = selectivity_of(catastrophic)

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        circuit, first, second = two_tasks(rng, n, catastrophic)
        return looked(
            (first, second),
            lambda some, _: SelectivityInference(circuit, some[0] - some[1], draws=draws, seed=seed),
            truth + offset,
        ).inference

    population = f"{100 * catastrophic:g} % catastrophic, n = {n}, threshold {offset:+g}"
    return Case("selectivity in looks", population, truth, draw)

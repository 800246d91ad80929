"""Tables of control sets: necessity and its graded form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.statistics.case import Array, Case, Rng, hits
from circuittest.stats import GradedNecessityInference, Inference, NecessityInference


@dataclass(frozen=True)
class Sets:
    """A population of control sets, base and circuit.

    base, circuit: P(right) with nothing ablated, and given that, with the circuit ablated; controls: mean P(right
    given base right) of the sets that are not catastrophic; catastrophic: share of sets that leave nothing right;
    spread: concentration of the Beta distribution of sets, 0 for equal sets; shared: all sets break the same
    examples first.
    """

    name: str
    base: float
    circuit: float
    controls: float
    catastrophic: float = 0.0
    spread: float = 0.0
    shared: bool = True

    @property
    def truth(self) -> float:
        return (1 - self.catastrophic) * self.controls - self.circuit

    def rates(self, rng: Rng, count: int) -> Array:
        rates: Array = np.full(count, self.controls)
        if self.spread:
            rates = rng.beta(self.controls * self.spread, (1 - self.controls) * self.spread, count)
        alive: Array = np.where(rng.random(count) < self.catastrophic, 0.0, rates)
        return alive

    def outcomes(
        self, rng: Rng, n: int, rates: Array, harm: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """base [n], circuit [n] and controls [R × n]; `harm` replaces P(right | base right) under the circuit."""
        base = hits(rng, n, self.base)
        circuit = base * (rng.random(n) < (self.circuit if harm is None else harm))
        fragility = rng.random(n) if self.shared else rng.random((rates.size, n))
        return base, circuit, base * (fragility < rates[:, None])


POPULATIONS = (
    Sets("no variation but 5 % catastrophic", 1.0, 0.0, 1.0, 0.05),
    Sets("strong circuit, 5 % catastrophic", 0.98, 0.05, 0.98, 0.05),
    Sets("strong circuit, 10 % catastrophic", 0.98, 0.05, 0.98, 0.10),
    Sets("half circuit, 3 % catastrophic", 0.98, 0.5, 0.98, 0.03, shared=False),
    Sets("weak model, 5 % catastrophic", 0.7, 0.1, 0.8, 0.05, 20.0, shared=False),
    Sets("near 0 and 1", 0.99, 0.01, 0.99),
    Sets("equal sets", 0.97, 0.2, 0.9),
    Sets("sets differ", 0.97, 0.2, 0.9, 0.0, 10.0),
    Sets("sets differ a lot", 0.97, 0.2, 0.6, 0.0, 2.0),
    Sets("no effect", 0.95, 0.95, 0.95, shared=False),
    Sets("no effect, 5 % catastrophic", 0.97, 0.931, 0.98, 0.05, shared=False),
    Sets("no effect, sets differ", 0.97, 0.5, 0.5, 0.0, 20.0, shared=False),
)


def necessity(n: int, count: int, sets: Sets) -> Case:
    """Necessity, with sets from a very large population."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        return NecessityInference(*sets.outcomes(rng, n, sets.rates(rng, count)), draws=draws, seed=seed)

    return Case("necessity", f"{sets.name}, n = {n}, R = {count}", sets.truth, draw)


def necessity_of_few_sets(total: int, bad: int, count: int, n: int) -> Case:
    """Necessity where the sets are a sizeable sample of, or all of, a finite population."""
    rates = np.where(np.arange(total) < bad, 0.0, 0.98)
    sets = Sets("", 0.98, 0.05, 0.98)

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        tables = sets.outcomes(rng, n, rng.choice(rates, count, replace=False))
        return NecessityInference(*tables, total, draws=draws, seed=seed)

    population = f"{bad} of {total} sets catastrophic, n = {n}, R = {count}"
    return Case("necessity, few sets", population, float(rates.mean()) - 0.05, draw)


def necessity_of_templates(count: int, mean: float, catastrophic: float) -> Case:
    """Necessity where the circuit matters for some templates and not for others."""
    sets = Sets("", 0.98, mean, 0.97, catastrophic)

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        labels = np.repeat(np.arange(count), 5)
        harm = rng.beta(2 * mean, 2 * (1 - mean), count)[labels]
        tables = sets.outcomes(rng, labels.size, sets.rates(rng, 40), harm)
        return NecessityInference(*tables, groups=labels, draws=draws, seed=seed)

    population = f"{count} templates of 5, circuit {mean}, {100 * catastrophic:g} % catastrophic, R = 40"
    return Case("necessity, templates", population, sets.truth, draw)


def necessity_of_contrary_examples(n: int, share: float) -> Case:
    """Necessity where all controls break some examples and the circuit does not; all sets are enumerated."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        other = hits(rng, n, share)
        return NecessityInference(np.ones(n), other, 1 - other[None], enumerated=True, draws=draws, seed=seed)

    return Case("necessity, contrary examples", f"{100 * share:g} % contrary, n = {n}", 1 - 2 * share, draw)


def graded(n: int, count: int, shape: float) -> Case:
    """Graded necessity; the harm of the sets has a gamma distribution, of coefficient of variation 1/sqrt(shape)."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        return GradedNecessityInference(*gamma(rng, n, count, shape), draws=draws, seed=seed)

    return Case("graded necessity", f"gamma {shape:g} harm, n = {n}, R = {count}", 0.5, draw, sized=False)


def gamma(rng: Rng, n: int, count: int, shape: float) -> tuple[Array, Array, Array]:
    """Log-probabilities with nothing, the circuit, and each set ablated; the harm of sets has a gamma distribution."""
    item = rng.normal(size=n)
    base = 3 + item
    circuit = base - 2 + 0.8 * rng.normal(size=n)
    harm = rng.gamma(shape, 0.5 / shape, (count, 1))
    return base, circuit, base - harm * (1 + 0.3 * item) + 0.3 * rng.normal(size=(count, n))


def two_tasks(rng: Rng, n: int, catastrophic: float) -> tuple[Array, Array, Array]:
    """The circuit's outcome on one task less that on another, [n], and the outcomes on both under 40 sets.

    Half of the catastrophic sets spare the second task.
    """
    bad, both = rng.random((40, 1)) < catastrophic, rng.random((40, 1)) < 0.5
    first = (rng.random((40, n)) < 0.95) * 1.0 * ~bad
    second = (rng.random((40, n)) < 0.9) * 1.0 * ~(bad & both)
    return hits(rng, n, 0.3) - hits(rng, n, 0.8), first, second


def selectivity_of(catastrophic: float) -> float:
    """The true value there."""
    return 0.95 * (1 - catastrophic) - 0.9 * (1 - catastrophic / 2) + 0.5

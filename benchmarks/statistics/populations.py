"""Populations with a known truth, from which the benchmark draws samples.

Every population is a `Case`: a function that draws one sample and judges it, and the true value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from circuittest.stats import (
    GradedNecessityInference,
    Inference,
    MeanInference,
    NecessityInference,
    PairedDifferenceInference,
    ProportionInference,
    RatioInference,
)

Array = NDArray[np.float64]
Rng = np.random.Generator
Draw = Callable[[Rng, int], Inference]

#: Enough for an interval whose ends are order statistics; its coverage does not depend on the number.
DRAWS = 999


@dataclass(frozen=True)
class Case:
    """One grid point: which statistic, in words which population, the truth, and how to draw an inference."""

    statistic: str
    population: str
    truth: float
    draw: Draw
    #: No interval is valid for every unbounded distribution: coverage is required there, size is only shown.
    sized: bool = True


def means(n: int) -> Iterator[Case]:
    """Means of bounded values: reuse, coverage, accuracies."""

    def mean(population: str, truth: float, values: Callable[[Rng], Array]) -> Case:
        return Case(
            "mean",
            f"{population}, n = {n}",
            truth,
            lambda rng, seed: MeanInference(values(rng), draws=DRAWS, seed=seed),
        )

    def binary(p: float) -> Case:
        return mean(f"0/1, p = {p}", p, lambda rng: _hits(rng, n, p))

    yield from map(binary, (0.01, 0.05, 0.5, 0.95, 0.99))
    yield mean("fractions k/8", 0.6, lambda rng: rng.binomial(8, rng.beta(6, 4, n)) / 8)
    yield mean("Beta(8, 2)", 0.8, lambda rng: rng.beta(8, 2, n))
    yield mean(
        "0.9 ± 0.01, but 0 for 3 %",
        0.97 * 0.9,
        lambda rng: np.where(rng.random(n) < 0.03, 0.0, rng.uniform(0.89, 0.91, n)),
    )
    yield Case(
        "mean of differences",
        f"0/1 - 0/1, p = 0.9, 0.3, n = {n}",
        0.6,
        lambda rng, seed: MeanInference(
            _hits(rng, n, 0.9) - _hits(rng, n, 0.3), bounds=(-1.0, 1.0), draws=DRAWS, seed=seed
        ),
    )


def clustered(count: int) -> Iterator[Case]:
    """Means where examples of one template succeed or fail together."""

    def templates(mean: float, icc: float) -> Case:
        spread = (1 - icc) / icc

        def draw(rng: Rng, seed: int) -> Inference:
            labels = np.repeat(np.arange(count), rng.integers(2, 9, count))
            rates = rng.beta(mean * spread, (1 - mean) * spread, count)
            return MeanInference(
                (rng.random(labels.size) < rates[labels]) * 1.0, labels, draws=DRAWS, seed=seed
            )

        return Case("clustered mean", f"{count} templates of 2-8, mean {mean}, ICC {icc}", mean, draw)

    def failing(rng: Rng, seed: int) -> Inference:
        labels = np.repeat(np.arange(count), 5)
        return MeanInference(_hits(rng, count, 0.95)[labels], labels, draws=DRAWS, seed=seed)

    for mean, icc in ((0.5, 0.1), (0.8, 0.3), (0.95, 0.1), (0.95, 0.3)):
        yield templates(mean, icc)
    yield Case("clustered mean", f"{count} templates of 5, 5 % of templates fail", 0.95, failing)


SHAPES: dict[str, tuple[float, Callable[[Rng, int], Array]]] = {
    "normal": (0.0, lambda rng, n: rng.normal(size=n)),
    "exponential": (1.0, lambda rng, n: rng.exponential(size=n)),
    "Student t, 3 df": (0.0, lambda rng, n: rng.standard_t(3, size=n)),
    "lognormal, sigma 1": (float(np.exp(0.5)), lambda rng, n: rng.lognormal(0.0, 1.0, size=n)),
}


def unbounded(n: int, shape: str) -> Case:
    """The mean of values without bounds: log-probabilities, logit differences."""
    truth, values = SHAPES[shape]

    def draw(rng: Rng, seed: int) -> Inference:
        return MeanInference(values(rng, n), bounds=None, draws=DRAWS, seed=seed)

    return Case("unbounded mean", f"{shape}, n = {n}", truth, draw, sized=False)


def unbounded_clustered(count: int) -> Case:
    """The same with templates that differ."""

    def draw(rng: Rng, seed: int) -> Inference:
        labels = np.repeat(np.arange(count), 10)
        values = rng.normal(0, np.sqrt(0.3), count)[labels] + rng.normal(0, np.sqrt(0.7), labels.size)
        return MeanInference(values, labels, bounds=None, draws=DRAWS, seed=seed)

    return Case("unbounded mean", f"normal, {count} templates of 10, ICC 0.3", 0.0, draw, sized=False)


def proportion(n: int, p: float) -> Case:
    """One accuracy."""

    def draw(rng: Rng, seed: int) -> Inference:
        return ProportionInference(int(rng.binomial(n, p)), n)

    return Case("proportion", f"p = {p}, n = {n}", p, draw)


#: Shares of examples that are right in both, in the first only, in the second only, in neither.
TABLES = (
    (0.96, 0.02, 0.02, 0.0), (0.9, 0.05, 0.05, 0.0), (0.5, 0.1, 0.1, 0.3), (0.2, 0.6, 0.02, 0.18),
    (0.01, 0.98, 0.0, 0.01), (0.0, 0.99, 0.01, 0.0), (0.0, 0.95, 0.0, 0.05), (0.3, 0.65, 0.05, 0.0),
)  # fmt: skip


def paired(n: int, shares: tuple[float, ...]) -> Case:
    """Two accuracies on the same examples."""

    def draw(rng: Rng, seed: int) -> Inference:
        counts = rng.multinomial(n, shares)
        first, second = np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)
        return PairedDifferenceInference(first, second, draws=DRAWS, seed=seed)

    return Case(
        "paired difference", f"{'/'.join(f'{s:g}' for s in shares)}, n = {n}", shares[1] - shares[2], draw
    )


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
        base = _hits(rng, n, self.base)
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

    def draw(rng: Rng, seed: int) -> Inference:
        return NecessityInference(*sets.outcomes(rng, n, sets.rates(rng, count)), draws=DRAWS, seed=seed)

    return Case("necessity", f"{sets.name}, n = {n}, R = {count}", sets.truth, draw)


def necessity_of_few_sets(total: int, bad: int, count: int, n: int) -> Case:
    """Necessity where the sets are a sizeable sample of, or all of, a finite population."""
    rates = np.where(np.arange(total) < bad, 0.0, 0.98)
    sets = Sets("", 0.98, 0.05, 0.98)

    def draw(rng: Rng, seed: int) -> Inference:
        tables = sets.outcomes(rng, n, rng.choice(rates, count, replace=False))
        return NecessityInference(*tables, total, draws=DRAWS, seed=seed)

    population = f"{bad} of {total} sets catastrophic, n = {n}, R = {count}"
    return Case("necessity, few sets", population, float(rates.mean()) - 0.05, draw)


def necessity_of_templates(count: int, mean: float, catastrophic: float) -> Case:
    """Necessity where the circuit matters for some templates and not for others."""
    sets = Sets("", 0.98, mean, 0.97, catastrophic)

    def draw(rng: Rng, seed: int) -> Inference:
        labels = np.repeat(np.arange(count), 5)
        harm = rng.beta(2 * mean, 2 * (1 - mean), count)[labels]
        tables = sets.outcomes(rng, labels.size, sets.rates(rng, 40), harm)
        return NecessityInference(*tables, groups=labels, draws=DRAWS, seed=seed)

    population = f"{count} templates of 5, circuit {mean}, {100 * catastrophic:g} % catastrophic, R = 40"
    return Case("necessity, templates", population, sets.truth, draw)


def necessity_of_contrary_examples(n: int, share: float) -> Case:
    """Necessity where all controls break some examples and the circuit does not; all sets are enumerated."""

    def draw(rng: Rng, seed: int) -> Inference:
        other = _hits(rng, n, share)
        return NecessityInference(np.ones(n), other, 1 - other[None], enumerated=True, draws=DRAWS, seed=seed)

    return Case("necessity, contrary examples", f"{100 * share:g} % contrary, n = {n}", 1 - 2 * share, draw)


def ratio(n: int, shape: str) -> Case:
    """Sufficiency: a ratio of two graded means over the same examples."""
    _, values = SHAPES[shape]

    def draw(rng: Rng, seed: int) -> Inference:
        full = 2 + 0.5 * values(rng, n)
        return RatioInference(0.7 * full + rng.normal(0, 0.5, n), full, draws=DRAWS, seed=seed)

    return Case("ratio", f"{shape}, n = {n}", 0.7, draw, sized=False)


def graded(n: int, count: int, shape: float) -> Case:
    """Graded necessity; the harm of the sets has a gamma distribution, of coefficient of variation 1/sqrt(shape)."""

    def draw(rng: Rng, seed: int) -> Inference:
        item = rng.normal(size=n)
        base = 3 + item
        circuit = base - 2 + 0.8 * rng.normal(size=n)
        harm = rng.gamma(shape, 0.5 / shape, (count, 1))
        controls = base - harm * (1 + 0.3 * item) + 0.3 * rng.normal(size=(count, n))
        return GradedNecessityInference(base, circuit, controls, draws=DRAWS, seed=seed)

    return Case("graded necessity", f"gamma {shape:g} harm, n = {n}, R = {count}", 0.5, draw, sized=False)


def all_cases() -> Iterator[Case]:
    """The whole grid."""
    sizes = (20, 50, 200)
    for n in sizes:
        yield from means(n)
    for count in (10, 20, 40):
        yield from clustered(count)
    for n, shape in product(sizes, SHAPES):
        yield unbounded(n, shape)
    yield unbounded_clustered(10)
    yield unbounded_clustered(20)
    for n, p in product(sizes, (0.005, 0.05, 0.5, 0.9, 0.995)):
        yield proportion(n, p)
    for n, shares in product(sizes, TABLES):
        yield paired(n, shares)
    for n, count, sets in product(sizes, (20, 40), POPULATIONS):
        yield necessity(n, count, sets)
    for (total, bad, count), n in product(
        ((45, 2, 40), (100, 5, 40), (100, 5, 20), (400, 20, 40), (40, 2, 40)), (50, 200)
    ):
        yield necessity_of_few_sets(total, bad, count, n)
    for n, share in ((20, 0.1), (20, 0.16), (200, 0.01), (200, 0.018)):
        yield necessity_of_contrary_examples(n, share)
    for n, shape in product(sizes, ("normal", "exponential")):
        yield ratio(n, shape)
    for n, count, gamma in product(sizes, (20, 40), (0.5, 4.0)):
        yield graded(n, count, gamma)
    for count, (mean, catastrophic) in product((10, 20, 40), ((0.1, 0.05), (0.5, 0.0))):
        yield necessity_of_templates(count, mean, catastrophic)


def _hits(rng: Rng, n: int, p: float) -> Array:
    hits: Array = (rng.random(n) < p).astype(np.float64)
    return hits

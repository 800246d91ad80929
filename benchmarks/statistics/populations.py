"""Populations with a known truth, from which the benchmark draws samples.

Every population is a `Case`: a function that draws one sample and judges it, and the true value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circuittest.stats import (
    MeanInference,
    NecessityInference,
    PairedDifferenceInference,
    ProportionInference,
)
from circuittest.stats.inference import Inference

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


def means() -> Iterator[Case]:
    """Means of bounded values: reuse, coverage, accuracies."""
    for n in (20, 50, 200):
        for p in (0.01, 0.05, 0.5, 0.95, 0.99):
            yield _mean(f"0/1, p = {p}, n = {n}", p, lambda rng, n=n, p=p: _hits(rng, n, p))
        yield _mean(f"fractions k/8, n = {n}", 0.6, lambda rng, n=n: rng.binomial(8, rng.beta(6, 4, n)) / 8)
        yield _mean(f"Beta(8, 2), n = {n}", 0.8, lambda rng, n=n: rng.beta(8, 2, n))
        yield _mean(
            f"0.9 ± 0.01, but 0 for 3 %, n = {n}",
            0.97 * 0.9,
            lambda rng, n=n: np.where(rng.random(n) < 0.03, 0.0, rng.uniform(0.89, 0.91, n)),
        )
        difference = Case(
            "mean of differences",
            f"0/1 - 0/1, p = 0.9, 0.3, n = {n}",
            0.6,
            lambda rng, seed, n=n: MeanInference(
                _hits(rng, n, 0.9) - _hits(rng, n, 0.3), bounds=(-1.0, 1.0), draws=DRAWS, seed=seed
            ),
        )
        yield difference


def _mean(population: str, truth: float, values: Callable[[Rng], Array]) -> Case:
    return Case(
        "mean", population, truth, lambda rng, seed: MeanInference(values(rng), draws=DRAWS, seed=seed)
    )


def clustered() -> Iterator[Case]:
    """Means where examples of one template succeed or fail together."""
    for count in (10, 20, 40):
        for mean, icc in ((0.5, 0.1), (0.8, 0.3), (0.95, 0.1), (0.95, 0.3)):
            yield Case(
                "clustered mean",
                f"{count} templates of 2-8, mean {mean}, ICC {icc}",
                mean,
                lambda rng, seed, c=count, m=mean, i=icc: MeanInference(
                    *_templates(rng, c, m, i), draws=DRAWS, seed=seed
                ),
            )
        yield Case(
            "clustered mean",
            f"{count} templates of 5, 5 % of templates fail",
            0.95,
            lambda rng, seed, c=count: MeanInference(
                np.repeat(_hits(rng, c, 0.95), 5), np.repeat(np.arange(c), 5), draws=DRAWS, seed=seed
            ),
        )


def _templates(rng: Rng, count: int, mean: float, icc: float) -> tuple[Array, Array]:
    spread = (1 - icc) / icc
    labels = np.repeat(np.arange(count), rng.integers(2, 9, count))
    rates = rng.beta(mean * spread, (1 - mean) * spread, count)
    return (rng.random(labels.size) < rates[labels]) * 1.0, labels.astype(np.float64)


def unbounded() -> Iterator[Case]:
    """Means of values without bounds: log-probabilities, logit differences."""
    shapes: dict[str, tuple[float, Callable[[Rng, int], Array]]] = {
        "normal": (0.0, lambda rng, n: rng.normal(size=n)),
        "exponential": (1.0, lambda rng, n: rng.exponential(size=n)),
        "Student t, 3 df": (0.0, lambda rng, n: rng.standard_t(3, size=n)),
        "lognormal, sigma 1": (float(np.exp(0.5)), lambda rng, n: rng.lognormal(0.0, 1.0, size=n)),
    }
    for n in (20, 50, 200):
        for name, (truth, values) in shapes.items():
            yield Case(
                "unbounded mean",
                f"{name}, n = {n}",
                truth,
                lambda rng, seed, n=n, v=values: MeanInference(
                    v(rng, n), bounds=None, draws=DRAWS, seed=seed
                ),
                sized=False,
            )
    for count in (10, 20):
        yield Case(
            "unbounded mean",
            f"normal, {count} templates of 10, ICC 0.3",
            0.0,
            lambda rng, seed, c=count: MeanInference(
                np.repeat(rng.normal(0, np.sqrt(0.3), c), 10) + rng.normal(0, np.sqrt(0.7), 10 * c),
                np.repeat(np.arange(c), 10),
                bounds=None,
                draws=DRAWS,
                seed=seed,
            ),
            sized=False,
        )


def proportions() -> Iterator[Case]:
    """One accuracy."""
    for n in (20, 50, 200):
        for p in (0.005, 0.05, 0.5, 0.9, 0.995):
            yield Case(
                "proportion",
                f"p = {p}, n = {n}",
                p,
                lambda rng, seed, n=n, p=p: ProportionInference(int(rng.binomial(n, p)), n),
            )


def paired() -> Iterator[Case]:
    """Two accuracies on the same examples; the four shares are both right, first only, second only, neither."""
    tables = [
        (0.96, 0.02, 0.02, 0.0), (0.9, 0.05, 0.05, 0.0), (0.5, 0.1, 0.1, 0.3), (0.2, 0.6, 0.02, 0.18),
        (0.01, 0.98, 0.0, 0.01), (0.0, 0.99, 0.01, 0.0), (0.0, 0.95, 0.0, 0.05), (0.3, 0.65, 0.05, 0.0),
    ]  # fmt: skip
    for n in (20, 50, 200):
        for shares in tables:
            yield Case(
                "paired difference",
                f"{'/'.join(f'{share:g}' for share in shares)}, n = {n}",
                shares[1] - shares[2],
                lambda rng, seed, n=n, s=shares: _paired(rng.multinomial(n, s)),
            )


def _paired(counts: NDArray[np.int64], seed: int) -> Inference:
    first, second = np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)
    return PairedDifferenceInference(first, second, draws=DRAWS, seed=seed)


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
        rates = np.full(count, self.controls)
        if self.spread:
            rates = rng.beta(self.controls * self.spread, (1 - self.controls) * self.spread, count)
        return np.where(rng.random(count) < self.catastrophic, 0.0, rates)

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


def necessities() -> Iterator[Case]:
    """Necessity, with sets from a very large population."""
    for n in (20, 50, 200):
        for count in (20, 40):
            for sets in POPULATIONS:
                yield Case(
                    "necessity",
                    f"{sets.name}, n = {n}, R = {count}",
                    sets.truth,
                    lambda rng, seed, n=n, c=count, s=sets: NecessityInference(
                        *s.outcomes(rng, n, s.rates(rng, c)), draws=DRAWS, seed=seed
                    ),
                )


def necessities_of_few_sets() -> Iterator[Case]:
    """Necessity where the sets are a sizeable sample of, or all of, a finite population."""
    for total, bad, count in ((45, 2, 40), (100, 5, 40), (100, 5, 20), (400, 20, 40), (40, 2, 40)):
        for n in (50, 200):
            rates = np.where(np.arange(total) < bad, 0.0, 0.98)

            def draw(rng: Rng, seed: int, n: int = n, c: int = count, rates: Array = rates) -> Inference:
                sets = Sets("", 0.98, 0.05, 0.98)
                chosen = rng.choice(rates, c, replace=False)
                return NecessityInference(*sets.outcomes(rng, n, chosen), rates.size, draws=DRAWS, seed=seed)

            yield Case(
                "necessity, few sets",
                f"{bad} of {total} sets catastrophic, n = {n}, R = {count}",
                float(rates.mean()) - 0.05,
                draw,
            )


def necessities_of_templates() -> Iterator[Case]:
    """Necessity where the circuit matters for some templates and not for others."""
    for count in (10, 20, 40):
        for mean, catastrophic in ((0.1, 0.05), (0.5, 0.0)):
            sets = Sets("", 0.98, mean, 0.97, catastrophic)

            def draw(rng: Rng, seed: int, c: int = count, m: float = mean, s: Sets = sets) -> Inference:
                labels = np.repeat(np.arange(c), 5)
                harm = rng.beta(2 * m, 2 * (1 - m), c)[labels]
                tables = s.outcomes(rng, labels.size, s.rates(rng, 40), harm)
                return NecessityInference(*tables, groups=labels, draws=DRAWS, seed=seed)

            yield Case(
                "necessity, templates",
                f"{count} templates of 5, circuit {mean}, {100 * catastrophic:g} % catastrophic, R = 40",
                sets.truth,
                draw,
            )


def all_cases() -> list[Case]:
    """The whole grid."""
    parts = (
        means(), clustered(), unbounded(), proportions(), paired(),
        necessities(), necessities_of_few_sets(), necessities_of_templates(),
    )  # fmt: skip
    return [case for part in parts for case in part]


def _hits(rng: Rng, n: int, p: float) -> Array:
    return (rng.random(n) < p) * 1.0

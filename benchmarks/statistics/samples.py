"""Samples of examples: means, proportions, differences, ratios, means over models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal

import numpy as np

from benchmarks.statistics.case import Array, Case, Rng, hits
from circuittest.stats import (
    HierarchicalMeanInference,
    Inference,
    MeanInference,
    PairedDifferenceInference,
    ProportionInference,
    RatioInference,
)


def means(n: int) -> Iterator[Case]:
    """Means of bounded values: reuse, coverage, accuracies."""

    def mean(population: str, truth: float, values: Callable[[Rng], Array]) -> Case:
        return Case(
            "mean",
            f"{population}, n = {n}",
            truth,
            lambda rng, seed, draws: MeanInference(values(rng), draws=draws, seed=seed),
        )

    def binary(p: float) -> Case:
        return mean(f"0/1, p = {p}", p, lambda rng: hits(rng, n, p))

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
        lambda rng, seed, draws: MeanInference(
            hits(rng, n, 0.9) - hits(rng, n, 0.3), bounds=(-1.0, 1.0), draws=draws, seed=seed
        ),
    )


def clustered(count: int) -> Iterator[Case]:
    """Means where examples of one template succeed or fail together."""

    def templates(mean: float, icc: float) -> Case:
        spread = (1 - icc) / icc

        def draw(rng: Rng, seed: int, draws: int) -> Inference:
            labels = np.repeat(np.arange(count), rng.integers(2, 9, count))
            rates = rng.beta(mean * spread, (1 - mean) * spread, count)
            return MeanInference(
                (rng.random(labels.size) < rates[labels]) * 1.0, labels, draws=draws, seed=seed
            )

        return Case("clustered mean", f"{count} templates of 2-8, mean {mean}, ICC {icc}", mean, draw)

    def failing(rng: Rng, seed: int, draws: int) -> Inference:
        labels = np.repeat(np.arange(count), 5)
        return MeanInference(hits(rng, count, 0.95)[labels], labels, draws=draws, seed=seed)

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

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        return MeanInference(values(rng, n), bounds=None, draws=draws, seed=seed)

    return Case("unbounded mean", f"{shape}, n = {n}", truth, draw, sized=False)


def unbounded_clustered(count: int) -> Case:
    """The same with templates that differ."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        labels = np.repeat(np.arange(count), 10)
        values = rng.normal(0, np.sqrt(0.3), count)[labels] + rng.normal(0, np.sqrt(0.7), labels.size)
        return MeanInference(values, labels, bounds=None, draws=draws, seed=seed)

    return Case("unbounded mean", f"normal, {count} templates of 10, ICC 0.3", 0.0, draw, sized=False)


def proportion(n: int, p: float) -> Case:
    """One accuracy."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        return ProportionInference(int(rng.binomial(n, p)), n)

    return Case("proportion", f"p = {p}, n = {n}", p, draw)


#: Shares of examples that are right in both, in the first only, in the second only, in neither.
TABLES = (
    (0.96, 0.02, 0.02, 0.0), (0.9, 0.05, 0.05, 0.0), (0.5, 0.1, 0.1, 0.3), (0.2, 0.6, 0.02, 0.18),
    (0.01, 0.98, 0.0, 0.01), (0.0, 0.99, 0.01, 0.0), (0.0, 0.95, 0.0, 0.05), (0.3, 0.65, 0.05, 0.0),
)  # fmt: skip


def paired(n: int, shares: tuple[float, ...]) -> Case:
    """Two accuracies on the same examples."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        counts = rng.multinomial(n, shares)
        first, second = np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)
        return PairedDifferenceInference(first, second, draws=draws, seed=seed)

    return Case(
        "paired difference", f"{'/'.join(f'{s:g}' for s in shares)}, n = {n}", shares[1] - shares[2], draw
    )


def ratio(n: int, shape: str) -> Case:
    """Sufficiency: a ratio of two graded means over the same examples."""
    _, values = SHAPES[shape]

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        full = 2 + 0.5 * values(rng, n)
        return RatioInference(0.7 * full + rng.normal(0, 0.5, n), full, draws=draws, seed=seed)

    return Case("ratio", f"{shape}, n = {n}", 0.7, draw, sized=False)


def models(count: int, shape: tuple[float, float], top: Literal["sampled", "smooth"]) -> Case:
    """The mean over models whose accuracies have a Beta distribution, each over three tasks of 20 examples."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        level = rng.beta(*shape, count)
        rates = np.clip(level[:, None] + rng.normal(0, 0.05, (count, 3)), 0, 1).repeat(20)
        labels = [np.repeat(np.arange(count), 60), np.tile(np.repeat(np.arange(3), 20), count)]
        return HierarchicalMeanInference(
            hits(rng, rates.size, rates), labels, top=top, seed=seed, draws=draws
        )

    population = f"{count} models, Beta({shape[0]:g}, {shape[1]:g}), 3 tasks of 20"
    return Case(f"mean over {top} models", population, _clipped(shape), draw, sized=top == "sampled")


@cache
def _clipped(shape: tuple[float, float]) -> float:
    """The mean accuracy over all models and tasks: clipping moves that of a rate near 1."""
    rng = np.random.Generator(np.random.PCG64(1))
    return float(np.clip(rng.beta(*shape, 1_000_000) + rng.normal(0, 0.05, 1_000_000), 0, 1).mean())


def rare_models(count: int, top: Literal["sampled", "smooth"]) -> Case:
    """The same where one model in ten fails: what only a worst case covers."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        rates = np.where(rng.random(count) < 0.1, 0.1, 0.9).repeat(40)
        labels = [np.repeat(np.arange(count), 40)]
        return HierarchicalMeanInference(
            hits(rng, rates.size, rates), labels, top=top, seed=seed, draws=draws
        )

    population = f"{count} models, one in ten fails"
    return Case(f"mean over {top} models", population, 0.82, draw, required=top == "sampled")


def given_models(rates: tuple[float, ...], n: int) -> Case:
    """The mean over these models, and no others."""

    def draw(rng: Rng, seed: int, draws: int) -> Inference:
        values = hits(rng, len(rates) * n, np.repeat(rates, n))
        labels = [np.repeat(np.arange(len(rates)), n)]
        return HierarchicalMeanInference(values, labels, top="given", seed=seed, draws=draws)

    population = f"{'/'.join(f'{rate:g}' for rate in rates)}, n = {n} each"
    return Case("mean over given models", population, float(np.mean(rates)), draw)

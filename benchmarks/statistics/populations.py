"""The whole grid of populations with a known truth."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal

from benchmarks.statistics.case import Case
from benchmarks.statistics.control_sets import (
    POPULATIONS,
    graded,
    necessity,
    necessity_of_contrary_examples,
    necessity_of_few_sets,
    necessity_of_templates,
)
from benchmarks.statistics.in_looks import (
    few_sets_in_looks,
    graded_in_looks,
    necessity_in_looks,
    selective_in_looks,
)
from benchmarks.statistics.samples import (
    SHAPES,
    TABLES,
    clustered,
    given_models,
    means,
    models,
    paired,
    proportion,
    rare_models,
    ratio,
    unbounded,
    unbounded_clustered,
)

TOPS: tuple[Literal["sampled", "smooth"], ...] = ("sampled", "smooth")


def all_cases() -> Iterator[Case]:
    """The whole grid."""
    sizes = (20, 50, 200)
    for n in sizes:
        yield from means(n)
    for count in (5, 10, 20, 40):
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
    for sets, offset in product(POPULATIONS, (0.0, -0.3)):
        yield necessity_in_looks(100, sets, offset)
    for (total, bad), offset in product(((45, 2), (100, 5), (400, 20)), (0.0, -0.3)):
        yield few_sets_in_looks(total, bad, offset)
    for shape, offset in product((0.5, 4.0), (0.0, -0.3)):
        yield graded_in_looks(100, shape, offset)
    for catastrophic, offset in product((0.0, 0.05), (0.0, -0.3)):
        yield selective_in_looks(100, catastrophic, offset)
    for top in TOPS:
        for count, shape in product((3, 5, 10), ((8.0, 2.0), (19.0, 1.0), (5.0, 5.0))):
            yield models(count, shape, top)
        for count in (5, 10):
            yield rare_models(count, top)
    for rates, n in product(((0.99,) * 5, (0.95,) * 4, (0.5, 0.9, 0.99), (0.99, 0.01, 0.5)), (5, 10, 30)):
        yield given_models(rates, n)

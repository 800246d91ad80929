"""Simulated error rates of closure's labels; benchmarks/statistics/labels.py runs the full grid."""

from __future__ import annotations

import pytest

from benchmarks.statistics.labels import Population, at_the_tolerance, limit, random_sets
from circuittest.claims.beyond import exchangeable_p

REPETITIONS = 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "population", [one for one in random_sets()[1::4] if one.required], ids=lambda one: one.name
)
def test_random_sets_are_seldom_load_bearing_or_interfering(population: Population) -> None:
    rates = population.rates(REPETITIONS)
    assert max(rates["load-bearing"], rates["interfering"]) <= limit(REPETITIONS)
    assert rates["redundant"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("population", at_the_tolerance()[::2], ids=lambda one: one.name)
def test_damage_at_the_tolerance_is_seldom_called_none(population: Population) -> None:
    assert population.rates(REPETITIONS)["none"] <= limit(REPETITIONS)


def test_labels_are_found_where_they_are_true() -> None:
    idle = at_the_tolerance()[0].effects
    strong = Population("strong", idle, shift=4.0)
    assert strong.rates(20)["load-bearing"] > 0.9
    assert Population("helpful", idle, shift=-2.0).rates(20)["interfering"] > 0.9
    assert Population("idle", idle, n=200).rates(20)["none"] > 0.9


def test_ranks_are_shrunk_by_the_share_of_the_circuit() -> None:
    assert exchangeable_p(0.02, 0.0) == pytest.approx(0.02)
    assert exchangeable_p(0.01, 0.1) == pytest.approx(0.0187, abs=1e-3)
    assert exchangeable_p(0.01, 1 / 3) > 0.08
    assert exchangeable_p(0.7, 0.3) == 0.7

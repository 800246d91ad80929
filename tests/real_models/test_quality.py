"""The measure of agreement that reports about real models use, on tables made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.tables import ScoreTable
from circuittest.units import Unit
from tests.helpers.quality import TOP, Agreement, agreement, halves

HEADS = tuple(Unit("head", layer, head) for layer in range(4) for head in range(10))


def table(rows: list[np.ndarray], heads: tuple[Unit, ...] = HEADS) -> ScoreTable:
    return ScoreTable(np.array(rows, dtype=np.float32), heads, tuple(range(len(rows))))


def test_signs_and_units_of_measurement_do_not_matter() -> None:
    ranks = np.arange(1.0, 41.0)
    signed = ranks * np.where(np.arange(40) % 2, 1, -1)
    assert agreement(table([ranks, ranks]), table([5 * signed])) == Agreement(pytest.approx(1), TOP)
    assert agreement(table([ranks]), table([1 / ranks])) == Agreement(pytest.approx(-1), 0)


def test_effects_that_cancel_between_examples_count_as_none() -> None:
    ranks = np.arange(1.0, 41.0)
    flipped = np.where(ranks == 40, -ranks, ranks)
    found = agreement(table([ranks, flipped]), table([ranks]))
    assert found.top == TOP - 1
    assert found.spearman < 0.9


def test_halves_are_even_and_odd_examples() -> None:
    ranks = np.arange(1.0, 41.0)
    assert halves(table([ranks, 1 / ranks, ranks, 1 / ranks])) == Agreement(pytest.approx(-1), 0)


def test_other_units_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different units"):
        agreement(table([np.ones(40)]), table([np.ones(39)], HEADS[1:]))

"""Per-example circuits: size, order, ties, and what a percentage may look like."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from circuittest.errors import CircuitError, UsageError
from circuittest.find.ranking import per_example, percent, top_count
from circuittest.tables import ScoreTable
from circuittest.units import Layout

LAYOUT = Layout(n_layers=2, n_heads=4, n_kv_heads=2)


def table(values: object) -> ScoreTable:
    array = np.asarray(values, dtype=np.float32)
    return ScoreTable(array, LAYOUT.units(("head",))[: array.shape[1]], tuple(range(array.shape[0])))


@pytest.mark.parametrize(
    ("top", "n_units", "k"),
    [
        ("10%", 234, 23),
        ("1%", 300, 3),
        ("20%", 48, 9),
        ("1%", 8, 1),
        (33, 100, 33),
        ("12.5%", 8, 1),
        ("0.5%", 1000, 5),
    ],
)
def test_size_is_rounded_down_and_at_least_one(top: str | int, n_units: int, k: int) -> None:
    assert top_count(top, n_units) == k


@pytest.mark.parametrize("top", ["0%", "100%", 120, -5, "ten", True, float("nan"), "5/0%"])
def test_sizes_that_make_no_sense_are_refused(top: object) -> None:
    with pytest.raises(UsageError):
        top_count(top, 100)  # type: ignore[arg-type]


def test_a_bare_fraction_is_refused_since_it_could_be_a_percentage() -> None:
    with pytest.raises(UsageError, match="fraction or a percentage"):
        percent(0.2, "top")
    assert percent("0.2%", "top") == Fraction(1, 5)
    assert percent("20 %", "top") == percent(20, "top") == percent(20.0, "top") == 20


def test_largest_absolute_scores_are_inside() -> None:
    found = per_example(table([[1, -9, 3, 0], [0, 0, -2, 5]]), "50%")
    assert found.k == 2
    assert found.inside.tolist() == [[False, True, True, False], [False, False, True, True]]
    assert (found.ties, found.zeros) == (0, 0)


def test_ties_follow_canonical_order_and_are_counted() -> None:
    found = per_example(table([[2, 1, 1, 1], [3, 3, 1, 0], [0, 0, 0, 0]]), "50%")
    assert found.inside.tolist() == [[True, True, False, False]] * 3
    assert found.ties == 2
    assert found.zeros == 1


def test_no_examples_is_an_error() -> None:
    with pytest.raises(CircuitError, match="no examples"):
        per_example(table(np.zeros((0, 4))), "50%")


scores = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 12), st.just(8)), elements=st.floats(-8, 8, width=16)
)


@given(scores, st.integers(1, 99), st.integers(1, 99))
def test_circuits_are_nested_in_k(values: np.ndarray, a: int, b: int) -> None:
    small, large = sorted((a, b))
    inner, outer = per_example(table(values), small), per_example(table(values), large)
    assert (inner.inside <= outer.inside).all()
    assert (inner.inside.sum(1) == inner.k).all()


@given(scores, st.integers(1, 99))
def test_only_the_order_of_absolute_scores_matters(values: np.ndarray, top: int) -> None:
    plain = per_example(table(values), top)
    rescaled = per_example(table(-4 * values), top)
    assert (plain.inside == rescaled.inside).all()

"""S_P and reuse@P: exact integers, the bounds known on paper, and the message for an empty set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from circuittest.errors import UsageError
from circuittest.find.ranking import Membership, per_example
from circuittest.find.shared import (
    coverage,
    largest_nonempty,
    reuse_curve,
    shared,
    shared_members,
    why_empty,
)
from circuittest.tables import ScoreTable
from circuittest.units import Layout, Unit

HEADS = Layout(n_layers=2, n_heads=4, n_kv_heads=4).units(("head",))


@st.composite
def memberships(draw: st.DrawFn) -> Membership:
    seed, n = draw(st.integers(0, 10**6)), draw(st.integers(1, 40))
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 8)) + draw(st.floats(0, 4)) * np.arange(8)
    return per_example(
        ScoreTable(values.astype(np.float32), HEADS, tuple(range(n))),
        draw(st.sampled_from(["13%", "25%", "50%", "75%"])),
    )


@given(memberships(), st.integers(1, 100))
def test_bounds_of_reuse(found: Membership, p: int) -> None:
    mask = shared(found.inside, p)
    reuse, size = coverage(found.inside, mask).mean(), mask.sum()
    assert p / 100 * size / found.k <= reuse + 1e-12
    assert reuse <= size / found.k + 1e-12
    assert size * p <= 100 * found.k


@given(memberships())
def test_at_100_percent_reuse_is_the_share_of_the_circuit(found: Membership) -> None:
    mask = shared(found.inside, 100)
    assert coverage(found.inside, mask).mean() == pytest.approx(mask.sum() / found.k)


@given(memberships(), st.integers(1, 100), st.integers(1, 100))
def test_shared_sets_shrink_with_p(found: Membership, a: int, b: int) -> None:
    low, high = sorted((a, b))
    assert (shared(found.inside, high) <= shared(found.inside, low)).all()


@pytest.mark.parametrize(("p", "n"), [(55, 100), (55, 200), (56, 50), (56, 800), (95, 20), (97.5, 40)])
def test_the_threshold_is_inclusive_and_free_of_rounding(p: float, n: int) -> None:
    exactly = round(p * n / 100)
    inside = np.zeros((n, 2), dtype=bool)
    inside[:exactly, 0] = True
    inside[: exactly - 1, 1] = True
    assert shared(inside, p).tolist() == [True, False]


def test_equation_2_on_paper() -> None:
    inside = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 0]], dtype=bool)
    assert shared(inside, 75).tolist() == [True, True, False, False]
    assert coverage(inside, shared(inside, 75)).tolist() == [1.0, 0.5, 1.0, 0.5]
    assert shared(inside, 76).tolist() == [False] * 4


@pytest.mark.parametrize("at", [0, 101, "none", -1])
def test_shares_that_make_no_sense_are_refused(at: object) -> None:
    with pytest.raises(UsageError):
        shared(np.ones((2, 2), dtype=bool), at)  # type: ignore[arg-type]


def test_an_empty_set_says_the_largest_p_that_is_not() -> None:
    inside = np.zeros((10, 8), dtype=bool)
    inside[:6, 2] = True
    inside[6:, 5] = True
    found = Membership(inside, HEADS, tuple(range(10)), 1, 0, 0)
    assert shared_members(found, 95) == ()
    assert largest_nonempty(found) == (60.0, (Unit("head", 0, 2),))
    message = why_empty(found, 95)
    assert "95 % of the 10" in message
    assert "is 60 (1 unit: L0.H2)" in message
    assert "50: 0.60" in message


def test_curve_is_in_sample_reuse() -> None:
    inside = np.array([[True, False], [True, False], [False, True], [True, False]])
    found = Membership(inside, HEADS[:2], (0, 1, 2, 3), 1, 0, 0)
    assert reuse_curve(found, (50, 75, 100)) == {50: 0.75, 75: 0.75, 100: 0.0}

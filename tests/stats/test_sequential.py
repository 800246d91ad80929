"""Stopping early: planned looks, the share each may spend, and the two sequences of one dimension."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.stats import ConfidenceSequence, MeanInference, NecessityInference, besag_clifford, looks
from circuittest.stats.resampling import generator


@pytest.mark.parametrize(
    ("total", "counts"),
    [
        (1, [1]),
        (19, [19]),
        (20, [10, 20]),
        (40, [10, 20, 40]),
        (47, [10, 20, 47]),
        (500, [10, 20, 40, 160, 500]),
    ],
)
def test_looks_end_with_everything_and_share_all_of_alpha(total: int, counts: list[int]) -> None:
    plan = looks(total)
    assert [look.controls for look in plan] == counts
    assert sum(look.share for look in plan) == pytest.approx(1.0)
    assert plan[-1].share >= 0.7


def test_a_share_of_alpha_is_a_wider_interval_and_the_same_test() -> None:
    values = generator(0).random(60)
    whole = MeanInference(values)
    part = whole.spending(0.2)
    assert part.interval(0.95) == whole.interval(0.99)
    assert part.interval()[0] < whole.interval()[0] < whole.interval()[1] < part.interval()[1]
    for threshold in np.linspace(*part.interval(0.9), 30):
        assert (part.p_value(">=", threshold) <= 0.025) == (part.interval()[0] >= threshold)
        assert (part.p_value("<", threshold) <= 0.025) == (part.interval()[1] < threshold)
    assert "spends 0.2" in part.method
    assert whole.share == 1.0
    with pytest.raises(UsageError, match="share"):
        whole.spending(0.0)


def test_a_share_of_alpha_asks_for_more_data() -> None:
    rng = generator(1)
    base = np.ones(100)
    table = (rng.random((20, 100)) < 0.9) * 1.0
    inference = NecessityInference(base, (rng.random(100) < 0.4) * 1.0, table)
    threshold = inference.value - 0.03
    whole, part = (one.needed(">=", threshold) for one in (inference, inference.spending(0.1)))
    assert part["n"] > whole["n"]
    assert part["controls"] > whole["controls"]


def test_besag_clifford_by_hand() -> None:
    assert besag_clifford(0.5, [0.4, 0.6, 0.5, 0.3, 0.2], hits=3, planned=40).p == pytest.approx(3 / 4)
    rare = besag_clifford(0.1, iter([0.4] * 100), hits=3, planned=40)
    assert (rare.p, rare.drawn, rare.at_least_as_harmful) == (1 / 41, 40, 0)
    assert besag_clifford(0.1, [0.4] * 39, hits=3, planned=40).p is None
    with pytest.raises(UsageError, match="hits"):
        besag_clifford(0.1, [0.4], hits=3, planned=2)


def test_besag_clifford_is_a_valid_test_that_saves_draws() -> None:
    rng = generator(2)
    found = [
        besag_clifford(values[0], values[1:], hits=5, planned=40)
        for values in rng.integers(0, 15, (3000, 41)) * 1.0
    ]
    p = np.array([one.p for one in found])
    for level in (0.05, 0.125, 0.5):
        assert (p <= level).mean() <= level + 2.6 * (level * (1 - level) / 3000) ** 0.5
    assert np.mean([one.drawn for one in found]) < 20


def test_a_sequence_that_saw_everything_knows_the_mean() -> None:
    values = generator(3).integers(0, 2, 60) * 1.0
    sequence = ConfidenceSequence(population=60)
    for value in values:
        sequence.update(value)
    assert sequence.interval == pytest.approx((values.mean(), values.mean()), abs=0.002)
    assert sequence.mean == pytest.approx(values.mean())
    with pytest.raises(UsageError, match="distinct"):
        sequence.update(1.0)


def test_equal_values_leave_width_and_the_ends_are_reached() -> None:
    low, high = ConfidenceSequence().update(np.ones(40))
    assert high == 1.0
    assert 0.7 < low < 1 - 1 / 40
    assert ConfidenceSequence().update(np.zeros(40)) == pytest.approx((0.0, 1 - low), abs=1e-9)
    low, high = ConfidenceSequence((-1.0, 1.0)).update(np.full(40, -1.0))
    assert low == -1.0


@pytest.mark.parametrize(("total", "bad"), [(None, 0.05), (100, 5), (45, 2)])
def test_a_sequence_covers_at_all_times_together(total: int | None, bad: float) -> None:
    rng, above, below, repetitions = generator(4), 0, 0, 150
    for _ in range(repetitions):
        if total is None:
            values, truth = np.where(rng.random(60) < bad, 0.0, 0.98), 0.98 * (1 - bad)
        else:
            values = rng.permutation(np.where(np.arange(total) < bad, 0.0, 0.98))[:40]
            truth = 0.98 * (1 - bad / total)
        sequence = ConfidenceSequence(population=total)
        low, high = sequence.update(values)  # the intersection over all times
        above += low > truth + 1e-9
        below += high < truth - 1e-9
        assert sequence.decide(0.0) == "supported"
    limit = 0.025 + 2.6 * (0.025 * 0.975 / repetitions) ** 0.5
    assert max(above, below) / repetitions <= limit


def test_decisions_of_a_sequence() -> None:
    sequence = ConfidenceSequence()
    assert sequence.decide(0.5) == "undecided"
    sequence.update(np.ones(30))
    assert (sequence.decide(0.5), sequence.decide(0.99)) == ("supported", "undecided")
    assert ConfidenceSequence().update(np.zeros(30))[1] < 0.5
    with pytest.raises(UsageError, match="bounds"):
        sequence.update(1.5)

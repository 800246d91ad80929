"""What a series of checkpoints says, with answers worked out by hand."""

from __future__ import annotations

import pytest

from circuittest.find.series import band, holds_from, smoothed, smoothed_in_time


def test_smoothing_is_the_paper_s_mean_of_the_last_mean_and_the_value() -> None:
    assert smoothed([1.0, 0.0, 0.5, 0.5]) == [1.0, 0.5, 0.5, 0.5]
    assert smoothed([0.2, 0.6], alpha=0.25) == pytest.approx([0.2, 0.75 * 0.2 + 0.25 * 0.6])
    assert smoothed([]) == []


def test_smoothing_passes_over_what_is_undefined() -> None:
    assert smoothed([None, 1.0, None, 0.0]) == [None, 1.0, None, 0.5]
    in_time = smoothed_in_time([None, 1.0, None, 0.0], [0, 1, 2, 3], 1.0)
    assert in_time == [None, 1.0, None, 0.25]  # two half-lives after the 1


def test_smoothing_in_time_is_the_paper_s_at_even_spacing_only() -> None:
    values = [1.0, 0.0, 0.5, 0.25]
    assert smoothed_in_time(values, [0, 10, 20, 30], 10.0) == smoothed(values)
    assert smoothed_in_time([1.0, 0.0], [0, 20], 10.0) == [1.0, 0.75 * 0.0 + 0.25 * 1.0]
    assert smoothed_in_time([1.0, 0.0], [0, 5], 10.0)[1] == pytest.approx(2**-0.5)


def test_something_holds_from_where_it_does_not_stop_any_more() -> None:
    assert holds_from([False, True, False, True, True]) == 3
    assert holds_from([True, True]) == 0
    assert holds_from([True, False]) is None
    assert holds_from([True, None]) is None
    assert holds_from([None, True]) == 1
    assert holds_from([]) is None


def test_a_band_is_the_middle_of_the_values_by_their_order() -> None:
    assert band([float(i) for i in range(99, -1, -1)]) == (2.0, 97.0)  # 2 of 100 lie outside on either side
    assert band([float(i) for i in range(40)]) == (1.0, 38.0)
    assert band([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert band([float(i) for i in range(10)], level=0.5) == (2.0, 7.0)
    assert band([1.0, None]) == (1.0, 1.0)
    assert band([1.0, None, None]) is None
    assert band([]) is None

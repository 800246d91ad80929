"""Pearson's correlation and mutual information of columns."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.find.affinity import mutual_information, pearson


def test_pearson_is_numpy_s() -> None:
    values = np.random.default_rng(0).standard_normal((50, 5)) + 1e3
    expected = np.corrcoef(values.T)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(pearson(values), expected, atol=1e-9)


def test_equal_columns_correlate_to_exactly_one_at_most() -> None:
    values = np.random.default_rng(0).standard_normal((7, 1)).repeat(3, axis=1)
    assert pearson(values).max() <= 1.0


def test_mutual_information_by_hand() -> None:
    s = np.array([[1, 1, 1], [1, 1, -1], [-1, -1, 1], [-1, -1, -1]], dtype=float)
    found = mutual_information(s)
    np.testing.assert_allclose(found[0, 1], np.log(2))
    np.testing.assert_allclose(found[0, 2], 0.0, atol=1e-12)
    assert (np.diagonal(found) == 0).all()
    s = np.array([[1, 1], [1, 1], [1, -1], [-1, -1]], dtype=float)
    expected = 0.5 * np.log(0.5 / 0.375) + 0.25 * np.log(0.25 / 0.375) + 0.25 * np.log(0.25 / 0.125)
    np.testing.assert_allclose(mutual_information(s)[0, 1], expected)


def test_constant_columns_and_other_values_are_refused() -> None:
    with pytest.raises(UsageError, match="column 1 is constant"):
        pearson(np.array([[1.0, 2.0], [3.0, 2.0], [4.0, 2.0]]))
    with pytest.raises(UsageError, match="other values"):
        mutual_information(np.array([[0.2, 1.0], [1.0, -1.0]]))
    with pytest.raises(UsageError, match="finite"):
        pearson(np.array([[np.inf, 2.0], [3.0, 2.0]]))

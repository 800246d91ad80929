"""Clusters."""

from __future__ import annotations

import numpy as np

from circuittest.stats.resampling import partition


def test_totals_of_clusters_are_the_same_to_the_last_bit_in_any_order() -> None:
    rng = np.random.default_rng(0)
    values, labels = np.round(rng.random((40, 3)), 1), rng.integers(0, 5, 40)
    order = rng.permutation(40)
    one, two = partition(40, labels).totals(values), partition(40, labels[order]).totals(values[order])
    assert one.tobytes() == two.tobytes()
    assert np.allclose(one, [values[labels == label].sum(axis=0) for label in range(5)])
    flat = partition(40, labels).totals(values[:, 0])
    assert flat.tobytes() == np.ascontiguousarray(one[:, 0]).tobytes()

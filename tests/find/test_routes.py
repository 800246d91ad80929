"""Route strata, and couplings within one against random strata of its size."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.find.routes import route_null, route_strata


def weights(labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Router weights of two mixtures with four experts: one of them for each label."""
    found = np.zeros((len(labels), 2, 4))
    found[np.arange(len(labels)), :, labels] = 0.9 + 0.1 * np.random.default_rng(seed).random(
        (len(labels), 2)
    )
    return found


def test_strata_are_those_of_the_experts_chosen() -> None:
    rng = np.random.default_rng(0)
    here, there = rng.integers(0, 3, 60), rng.integers(0, 3, 30)
    found = route_strata(weights(here), weights(there, 1), 3)
    name = {int(found.discover[i]): int(here[i]) for i in range(60)}
    assert sorted(name.values()) == [0, 1, 2]
    assert [name[s] for s in found.discover.tolist()] == here.tolist()
    assert [name[s] for s in found.evaluate.tolist()] == there.tolist()
    assert found.sizes["discover"] == [int((found.discover == s).sum()) for s in range(3)]
    np.testing.assert_array_equal(found.one_hot(), np.eye(3)[found.discover][:, 1:])


def test_fewer_routes_than_strata_are_refused() -> None:
    here = np.repeat([0, 1], 10)
    flat = np.round(weights(here))
    with pytest.raises(UsageError, match="3 strata of routes: 3 clusters of 2 distinct points"):
        route_strata(flat, flat, 3)
    with pytest.raises(UsageError, match="two at least"):
        route_strata(flat, flat, 1)


def signal(inside: np.ndarray, seed: int = 0) -> np.ndarray:
    """Ten heads that share a cause within a stratum, and are independent outside."""
    rng = np.random.default_rng(seed)
    cause = rng.standard_normal((len(inside), 1)) * inside[:, None]
    return 1.5 * cause + rng.standard_normal((len(inside), 10))


def test_a_stratum_of_co_activation_exceeds_both_nulls() -> None:
    inside = np.random.default_rng(1).random(400) < 0.4
    kind = [i % 3 for i in range(400)]
    null = route_null(signal(inside), inside, kind, nulls=19)
    assert null.p_size == null.p_nuisance == 1 / 20
    assert null.free == 1.0
    assert null.gain > 2 * max(null.size_matched)
    assert len(null.size_matched) == len(null.nuisance_matched) == 19


def test_a_random_stratum_does_not() -> None:
    rng = np.random.default_rng(0)
    inside, other = rng.random(300) < 0.4, rng.random(300) < 0.5
    null = route_null(signal(other), inside, [0] * 300, nulls=19)
    assert null.p_size > 0.1
    assert null.p_nuisance is not None
    assert null.p_nuisance > 0.1


def test_a_nuisance_that_is_the_stratum_leaves_nothing_to_compare() -> None:
    inside = np.random.default_rng(1).random(300) < 0.4
    null = route_null(signal(inside), inside, inside.tolist(), nulls=9)
    assert null.p_size == 0.1
    assert null.p_nuisance is None
    assert null.free == 0.0
    assert null.nuisance_matched == ()


def test_a_nuisance_that_causes_co_activation_explains_a_stratum() -> None:
    rng = np.random.default_rng(2)
    hard = rng.random(600) < 0.5  # what heads follow
    inside = np.where(hard, rng.random(600) < 0.7, rng.random(600) < 0.1)
    null = route_null(signal(hard), inside, hard.tolist(), nulls=19)
    assert null.p_size == 1 / 20
    assert null.p_nuisance is not None
    assert null.p_nuisance > 0.1


def test_bad_input_is_refused() -> None:
    with pytest.raises(UsageError, match="one of each"):
        route_null(np.zeros((5, 2)), np.zeros(4), [0] * 5)

"""Isolation on other examples, against random sets matched in kind, layer and rest."""

from __future__ import annotations

import numpy as np

from circuittest.find.communities import Structure
from circuittest.find.isolation import isolation_elsewhere, sink_levels
from circuittest.units import Layout

LAYOUT = Layout(n_layers=3, n_heads=8, n_kv_heads=8)
HEADS = LAYOUT.units(("head",))
LEVELS = {unit: (unit.index or 0) % 3 for unit in HEADS}


def there(matrix: np.ndarray) -> Structure:
    return Structure(HEADS[: len(matrix)], matrix, {}, "pearson")


def noise(seed: int = 0) -> np.ndarray:
    a = np.abs(np.random.default_rng(seed).standard_normal((24, 24)))
    a = a + a.T
    np.fill_diagonal(a, 0.0)
    return a


def test_a_community_that_is_isolated_elsewhere_ranks_first() -> None:
    matrix = noise()
    members = [0, 5, 9, 17]
    matrix[np.ix_(members, members)] += 10 * (1 - np.eye(4))
    value, p = isolation_elsewhere([HEADS[i] for i in members], there(matrix), LAYOUT, LEVELS)
    assert value is not None
    assert value > 3
    assert p["kind"] == 1 / 500
    assert p["layer"] is not None
    assert p["layer"] <= 1 / 500
    assert p["sink"] is not None
    assert p["sink"] <= 1 / 500


def test_a_layer_s_heads_are_nothing_special_among_sets_of_that_layer() -> None:
    matrix = noise()
    matrix[:8, :8] += 5 * (1 - np.eye(8))  # a whole layer goes together
    _, p = isolation_elsewhere(HEADS[:4], there(matrix), LAYOUT, LEVELS)
    assert p["kind"] is not None
    assert p["layer"] is not None
    assert p["kind"] < 0.02
    assert p["layer"] > 0.1


def test_random_sets_have_uniform_ranks() -> None:
    rng = np.random.default_rng(0)
    values = [
        isolation_elsewhere(
            [HEADS[i] for i in rng.choice(24, 4, replace=False)], there(noise(seed)), LAYOUT, LEVELS, draws=39
        )[1]["kind"]
        for seed in range(60)
    ]
    share = np.mean([value <= 0.1 for value in values if value is not None])
    assert share <= 0.1 + 3 * (0.1 * 0.9 / 60) ** 0.5


def test_what_cannot_be_compared_is_none() -> None:
    assert isolation_elsewhere(HEADS, there(noise()), LAYOUT, LEVELS) == (
        None,
        {"kind": None, "layer": None, "sink": None},
    )
    assert isolation_elsewhere(HEADS[20:], there(noise()[:8, :8]), LAYOUT, LEVELS)[0] is None
    _, p = isolation_elsewhere(HEADS[:8], there(noise()), LAYOUT, LEVELS)
    assert p["layer"] is None  # the only set that has all heads of layer 0


def test_levels_hold_equally_many_heads() -> None:
    rest = {unit: float(i % 7) for i, unit in enumerate(HEADS)}
    levels = sink_levels(rest)
    assert [list(levels.values()).count(level) for level in range(3)] == [8, 8, 8]
    assert max(rest[u] for u in HEADS if levels[u] == 0) <= min(rest[u] for u in HEADS if levels[u] == 2)


def test_random_sets_may_share_heads_with_the_community() -> None:
    _, p = isolation_elsewhere(HEADS[:14], there(noise()), LAYOUT, LEVELS, draws=99)
    assert p["kind"] is not None  # fewer than 14 heads lie outside

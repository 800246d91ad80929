"""Quantities against the logarithm of parameters."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from circuittest.sweep.scale import against_parameters


def points(parameters, values) -> list[dict]:
    listed = zip(parameters, values, strict=True)
    return [{"model": f"m{i}", "parameters": n, "value": v} for i, (n, v) in enumerate(listed)]


def test_a_line_in_the_logarithm() -> None:
    found = against_parameters(points([10, 100, 1000], [1.0, 3.0, 5.0]))
    assert found["slope"] == pytest.approx(2.0)  # for ten times the parameters
    assert (found["r"], found["rank_r"]) == pytest.approx((1.0, 1.0))
    assert found["p"] == pytest.approx(2 / 6)  # of the six orders, rising and falling
    assert found["undefined"] == ""


@pytest.mark.parametrize(
    ("nodes", "r"),
    [
        ((28.9, 43.3, 88.3, 46.6, 135.4), 0.743),
        ((13.2, 17.3, 36.7, 35.0, 72.8), 0.896),
        ((17.7, 23.7, 39.3, 56.6, 42.3), 0.868),
        ((15.0, 34.7, 51.8, 93.9, 97.8), 0.990),
    ],
)
def test_the_sizes_of_2407_10827(nodes: tuple[float, ...], r: float) -> None:
    """Nodes of its circuits over five models, whose correlation with the logarithm is known to rounding."""
    sizes = [70e6, 160e6, 410e6, 1.4e9, 2.8e9]
    found = against_parameters(points(sizes, nodes))
    assert found["r"] == pytest.approx(r, abs=2e-3)
    line = stats.linregress([math.log10(n) for n in sizes], nodes)
    assert (found["slope"], found["r"]) == pytest.approx((line.slope, line.rvalue))
    assert found["rank_r"] == pytest.approx(stats.spearmanr(sizes, nodes).statistic)


def test_ties_and_many_models() -> None:
    sizes, values = [10**i for i in range(1, 10)], [1, 1, 2, 2, 3, 3, 4, 4, 4]
    found = against_parameters(points(sizes, values))
    assert found["rank_r"] == pytest.approx(stats.spearmanr(sizes, values).statistic)
    assert 1 / 10_000 <= found["p"] < 0.01
    assert found == against_parameters(points(sizes, values))


def test_what_is_not_known_is_left_out_and_too_little_is_undefined() -> None:
    found = against_parameters(points([10, 100, None, 1000], [1.0, None, 2.0, 3.0]))
    assert [point["model"] for point in found["points"]] == ["m0", "m3"]
    assert (found["r"], found["slope"], found["p"]) == (None, None, None)
    assert "three different sizes, and has 2" in found["undefined"]
    assert "has 1" in against_parameters(points([10, 10, 10], [1.0, 2.0, 3.0]))["undefined"]
    flat = against_parameters(points([10, 100, 1000], [2.0, 2.0, 2.0]))
    assert (flat["slope"], flat["r"]) == (0.0, None)
    assert "the same in all models" in flat["undefined"]

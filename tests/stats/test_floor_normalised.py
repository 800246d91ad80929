"""Chance-normalised necessity: its value, its floor per example, and simulated coverage."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.stats import Inference, NecessityInference
from circuittest.stats.floor_normalised import FloorNormalisedInference
from tests.helpers.simulate import Rng, covers

DRAWS = 399


def test_the_floor_leaves_the_numerator_and_shrinks_the_denominator() -> None:
    base, circuit, controls = np.ones(40), np.arange(40) % 2.0, np.ones((30, 40))
    found = FloorNormalisedInference(base, circuit, controls, floor=0.5)
    assert found.value == pytest.approx(0.5 / 0.5)
    assert FloorNormalisedInference(base, circuit, controls, floor=0.0).value == pytest.approx(0.5)
    emptied = np.arange(40) % 4 == 0
    each = FloorNormalisedInference(base, circuit, controls, floor=emptied * 1.0)
    assert each.value == pytest.approx(0.5 / 0.75)
    low, high = found.interval()
    assert low < 1.0 < high


def test_without_a_floor_it_is_necessity() -> None:
    rng = np.random.default_rng(0)
    base, circuit = (rng.random(50) < 0.9) * 1.0, (rng.random(50) < 0.3) * 1.0
    controls = (rng.random((20, 50)) < 0.8) * base
    plain = NecessityInference(base, circuit, controls)
    found = FloorNormalisedInference(base, circuit, controls, floor=0.0)
    assert found.value == plain.value
    assert found.interval()[0] == plain.interval()[0]
    assert found.interval()[1] >= plain.interval()[1]


def test_misuse() -> None:
    with pytest.raises(UsageError, match="denominator"):
        FloorNormalisedInference([1.0, 0.0], [0.0, 0.0], [[1.0, 1.0]], floor=0.5)
    with pytest.raises(UsageError, match="they are the same"):
        FloorNormalisedInference([1.0, 1.0], [0.0, 0.0], [[1.0, 1.0]], floor=[0.0])


@pytest.mark.slow
@pytest.mark.parametrize("catastrophic", [0.0, 0.05])
@pytest.mark.parametrize("each", [False, True])
def test_coverage(catastrophic: float, each: bool) -> None:
    def draw(rng: Rng, seed: int) -> Inference:
        n, count = 40, 40
        base = (rng.random(n) < 0.95) * 1.0
        rates = np.where(rng.random(count) < catastrophic, 0.5, 0.93)[:, None]
        floor = (rng.random(n) < 0.5) * 1.0 if each else 0.5
        circuit = (rng.random(n) < 0.6) * 1.0
        controls = (rng.random((count, n)) < rates) * 1.0
        return FloorNormalisedInference(base, circuit, controls, floor=floor, draws=DRAWS, seed=seed)

    covers(((1 - catastrophic) * 0.93 + catastrophic * 0.5 - 0.6) / 0.45, draw)

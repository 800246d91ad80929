"""Necessity: the estimand, both sampling dimensions, and what is not in the sample."""

from __future__ import annotations

import time

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.stats import NecessityInference
from circuittest.stats.resampling import generator


def outcomes(seed: int = 0, n: int = 200, count: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = generator(seed)
    base = (rng.random(n) < 0.95) * 1.0
    circuit = base * (rng.random(n) < 0.2)
    controls = base * (rng.random((count, n)) < rng.beta(18, 2, (count, 1)))
    return base, circuit, controls


def test_value_is_the_estimand() -> None:
    base, circuit, controls = [1, 1, 1, 0], [1, 0, 0, 0], [[1, 1, 1, 0], [1, 1, 0, 0]]
    inference = NecessityInference(base, circuit, controls)
    assert inference.value == pytest.approx((0.625 - 0.25) / 0.75)
    assert inference.acc_controls == (0.75, 0.5)
    assert (inference.acc_base, inference.acc_circuit) == (0.75, 0.25)


def test_perfect_tables_have_width() -> None:
    n, count = 200, 40
    everything = NecessityInference(np.ones(n), np.zeros(n), np.ones((count, n)))
    low, high = everything.interval()
    assert everything.value == high == 1.0
    # no control set was harmful: up to 1 - 0.025^(1/40) = 8.8 % of the population may be
    assert 0.88 < low < 1 - (1 - 0.025 ** (1 / count)) + 0.003
    enumerated = NecessityInference(np.ones(n), np.zeros(n), np.ones((count, n)), enumerated=True)
    # one pseudo-example of weight Beta(1, n) that turns +1 into -1
    assert enumerated.interval()[0] == pytest.approx(1 - 2 * (1 - 0.025 ** (1 / n)), abs=0.003)


def test_no_effect_has_width_on_both_sides() -> None:
    same = NecessityInference(np.ones(50), np.ones(50), np.ones((20, 50)))
    low, high = same.interval()
    assert same.value == 0.0
    assert low < -0.05
    assert high > 0.05


@pytest.mark.parametrize(("population", "enumerated"), [(40, False), (None, True), (40, True)])
def test_all_sets_leave_no_error_of_sets(population: int | None, enumerated: bool) -> None:
    base, circuit, controls = outcomes()
    inference = NecessityInference(base, circuit, controls, population, enumerated)
    mean = controls.mean(axis=0, keepdims=True)
    alone = NecessityInference(base, circuit, mean, enumerated=True)
    assert inference.interval() == pytest.approx(alone.interval(), abs=1e-9)
    assert "all control sets" in inference.method


def test_the_finite_population_narrows_smoothly() -> None:
    base, circuit, controls = outcomes()
    lows = [
        NecessityInference(base, circuit, controls, population).interval()[0]
        for population in (40, 41, 60, 200, 10**20)
    ]
    assert lows == sorted(lows, reverse=True)
    assert lows[0] - lows[1] < 0.02
    assert lows[0] - lows[-1] > 0.02
    assert not NecessityInference(base, circuit, controls, 800).finite
    assert NecessityInference(base, circuit, controls, 799).finite


def test_finite_population_weights_have_cochrans_variance() -> None:
    # with one of R sets different, the variance of its weight is that of a Pólya urn: (1 - f) of the infinite one
    base = np.ones(4)
    controls = np.ones((20, 4))
    infinite = NecessityInference(base, base, controls)._set_weights(True)[:, 0].var()
    finite = NecessityInference(base, base, controls, 40)._set_weights(True)[:, 0].var()
    assert finite / infinite == pytest.approx(0.5, abs=0.05)


def test_groups_widen() -> None:
    rng = generator(1)
    labels = np.repeat(np.arange(20), 10)
    vulnerable = np.repeat(rng.random(20) < 0.5, 10)
    base, circuit = np.ones(200), 1.0 * ~vulnerable
    controls = np.ones((40, 200))
    alone = NecessityInference(base, circuit, controls).interval()
    grouped = NecessityInference(base, circuit, controls, groups=labels).interval()
    assert grouped[1] - grouped[0] > 1.8 * (alone[1] - alone[0])


def test_the_order_of_sets_hardly_matters() -> None:
    base, circuit, controls = outcomes()
    one = NecessityInference(base, circuit, controls)
    two = NecessityInference(base, circuit, controls[::-1])
    assert one.value == two.value
    assert one.interval() == pytest.approx(two.interval(), abs=0.01)


def test_the_seed_hardly_matters() -> None:
    base, circuit, controls = outcomes()
    one, two = (NecessityInference(base, circuit, controls, seed=seed).interval() for seed in (0, 1))
    assert one != two
    assert one == pytest.approx(two, abs=0.01)


def test_it_is_quick() -> None:
    base, circuit, controls = outcomes()
    start = time.process_time()
    inference = NecessityInference(base, circuit, controls)
    inference.interval()
    inference.p_value(">=", 0.3)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": np.zeros(200)}, "undefined"),
        ({"base": np.ones(199)}, "shapes"),
        ({"circuit": np.full(200, 2.0)}, "bounds"),
        ({"controls": np.ones((0, 200))}, "shapes"),
        ({"controls": np.full((3, 200), np.nan)}, "finite"),
        ({"population": 39}, "population"),
        ({"population": 500, "enumerated": True}, "all of them"),
        ({"draws": 10}, "draws"),
        ({"groups": ["a"]}, "group"),
    ],
)
def test_bad_tables_are_refused(change: dict[str, object], message: str) -> None:
    base, circuit, controls = outcomes()
    fields = {"base": base, "circuit": circuit, "controls": controls} | change
    with pytest.raises(UsageError, match=message):
        NecessityInference(**fields)  # type: ignore[arg-type]

"""What an undecided verdict advises, followed: with that many examples and controls most claims are decided."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.statistics.case import Rng, hits
from benchmarks.statistics.control_sets import Sets
from circuittest.stats import (
    Inference,
    MeanInference,
    NecessityInference,
    PairedDifferenceInference,
    ProportionInference,
)
from circuittest.stats.resampling import generator

DRAWS = 399
Sample = Callable[[Rng, int, int, int], Inference]

SETS = Sets("sets differ", 0.97, 0.3, 0.9, 0.0, 10.0)


def necessity(rng: Rng, n: int, controls: int, seed: int) -> Inference:
    return NecessityInference(*SETS.outcomes(rng, n, SETS.rates(rng, controls)), draws=DRAWS, seed=seed)


#: sample of n examples (and R controls), the truth, a threshold near it, the first n and R
FAMILIES: dict[str, tuple[Sample, float, int, int]] = {
    "accuracy": (lambda rng, n, r, seed: ProportionInference(int(hits(rng, n, 0.7).sum()), n), 0.62, 40, 0),
    "mean": (lambda rng, n, r, seed: MeanInference(rng.beta(8, 2, n), draws=DRAWS, seed=seed), 0.77, 30, 0),
    "unbounded mean": (
        lambda rng, n, r, seed: MeanInference(rng.normal(1, 1, n), bounds=None, draws=DRAWS, seed=seed),
        0.8,
        30,
        0,
    ),
    "paired difference": (
        lambda rng, n, r, seed: PairedDifferenceInference(
            hits(rng, n, 0.9), hits(rng, n, 0.6), draws=DRAWS, seed=seed
        ),
        0.2,
        40,
        0,
    ),
    "necessity": (necessity, 0.45, 50, 20),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_following_the_advice_decides(name: str) -> None:
    sample, threshold, n, controls = FAMILIES[name]
    rng, open_questions, decided = generator(11), 0, 0
    for seed in range(200):
        first = sample(rng, n, controls, seed)
        low, high = first.interval()
        if not low < threshold < high:
            continue
        advice = first.needed(">=", threshold)
        if advice["n"] is None:
            # only a value on the threshold itself is beyond advice
            assert abs(first.value - threshold) < 0.1 * (high - low)
            continue
        assert advice["n"] >= n
        assert (advice["controls"] or controls) >= controls
        if advice["n"] > 4000:
            continue  # the value happened to lie close to the threshold
        open_questions += 1
        low, high = sample(rng, advice["n"], advice["controls"] or controls, seed).interval()
        decided += not low < threshold < high
        if open_questions == 20:
            break
    assert open_questions == 20
    # aimed at four in five; the advice takes the value measured for the true one, and that may be farther out
    assert decided / open_questions >= 0.6


def test_the_same_value_in_a_larger_sample_is_decided() -> None:
    # what the advice promises exactly: were the sample like this one, only larger, the claim would be decided
    rng, decided = generator(12), []
    for _ in range(20):
        values = rng.beta(8, 2, 40)
        first = MeanInference(values, draws=DRAWS)
        threshold = first.value - 0.01
        wanted = first.needed(">=", threshold)["n"]
        larger = np.resize(np.sort(values), wanted)
        decided.append(MeanInference(larger, draws=DRAWS).interval()[0] >= threshold)
    assert np.mean(decided) > 0.9


def test_no_advice_where_nothing_helps() -> None:
    values = generator(13).random(50)
    inference = MeanInference(values)
    assert inference.needed(">=", inference.value) == {
        "n": None,
        "controls": None,
        "text": "none: within the margin of the threshold",
    }
    assert "no bound" in MeanInference([1.0], bounds=None).needed(">=", 0.5)["text"]
    everything = NecessityInference(
        np.ones(50), np.zeros(50), hits(generator(1), 2000, 0.9).reshape(40, 50), 40
    )
    advice = everything.needed(">=", everything.value - 0.001)
    assert advice["controls"] is None
    assert "exhausted" in advice["text"] or advice["n"] is None

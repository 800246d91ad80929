"""Small simulations of the interval of stability; benchmarks/statistics/similarity.py runs the full grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit

from circuittest.find.similarity import KEPT_SHARE, block_similarity, mean_of_pairs
from circuittest.stats.simultaneous import StudentInference, smallest_df, subsample_error
from tests.helpers.score_lab import correlated

WIDTH = 120


def misses(
    rho: float, n: int, noise: float, *, blocks: int = 2, tail: str = "normal", repetitions: int = 60
) -> tuple[float, float, float]:
    """Shares of valid samples whose interval lies above and below the correlation of the planted means; invalid ones."""
    means = correlated(rho, blocks, WIDTH) * np.sqrt(WIDTH)
    truth = rho
    if tail == "heavy":
        means = means**3
        truth = float(mean_of_pairs(np.corrcoef(means)))
    codes = np.repeat(np.arange(blocks), n)
    rng = np.random.default_rng(7)
    above = below = valid = 0
    for seed in range(repetitions):
        values = (means[codes] + noise * rng.standard_normal((codes.size, WIDTH))).astype(np.float32)
        found = block_similarity(values, codes, np.arange(codes.size), "pearson", replicates=30, seed=seed)
        df = smallest_df([n], 30)
        spread = subsample_error(np.diagonal(found.replicates, axis1=1, axis2=2), KEPT_SHARE)
        if (found.reliability - float(stdtrit(df, 0.975)) * spread).min() <= 0:
            continue
        valid += 1
        error = float(subsample_error(mean_of_pairs(found.corrected_replicates), KEPT_SHARE))
        low, high = StudentInference(float(mean_of_pairs(found.corrected)), error, df, n, "").interval()
        above, below = above + (low > truth), below + (high < truth)
    return above / max(1, valid), below / max(1, valid), 1 - valid / repetitions


@pytest.mark.parametrize(("rho", "noise"), [(0.6, 1.0), (0.0, 2.0)])
def test_the_interval_covers(rho: float, noise: float) -> None:
    above, below, invalid = misses(rho, 20, noise)
    assert above + below <= 0.07
    assert invalid < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("tail", ["normal", "heavy"])
@pytest.mark.parametrize(
    ("rho", "n", "noise"), [(0.0, 20, 1.0), (0.6, 20, 3.0), (0.6, 60, 1.0), (0.95, 20, 2.0)]
)
def test_the_interval_covers_everywhere(rho: float, n: int, noise: float, tail: str, blocks: int) -> None:
    above, below, invalid = misses(rho, n, noise, blocks=blocks, tail=tail, repetitions=200)
    if invalid < 0.9:
        assert above + below <= 0.07 + 2.6 * (0.07 * 0.93 / (200 * (1 - invalid))) ** 0.5

"""Families of alike subtasks: planted ones, chains, the barcode, and an interval that knows what it does not know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from circuittest.claims.families import FamiliesInference, components, merges
from circuittest.stats import Inference
from circuittest.stats.simultaneous import MaxT
from tests.helpers.score_lab import EDGES, ScoreLab, correlated, noisy

N = 180
TEMPLATES = [{"template": i % 6} for i in range(N)]
BLOCK = [row["template"] for row in TEMPLATES]
FAST: dict[str, Any] = {"cuts": 8, "replicates": 40}


def two_families(noise: float) -> ScoreLab:
    kinds = correlated(0.1, 2, len(EDGES)) * np.sqrt(len(EDGES))
    own = 0.3 * correlated(0.0, 6, len(EDGES), seed=5) * np.sqrt(len(EDGES))
    return ScoreLab(TEMPLATES, edges=noisy(kinds[[0, 0, 1, 1, 0, 1]] + own, BLOCK, noise))


def test_two_planted_families() -> None:
    found = two_families(1.0).families("template", alpha=0.6, **FAST)
    assert found.value == 2
    assert [f["subtasks"] for f in found.details["families"]] == [
        ["template=0", "template=1", "template=4"],
        ["template=2", "template=3", "template=5"],
    ]
    assert found.details["families"][0]["smallest"] > 0.8
    assert found <= 2
    assert found >= 2
    assert not (found <= 1)
    assert not (found > 2)
    barcode = found.details["barcode"]
    assert len(barcode) == 5
    assert barcode[3] > 0.6 > barcode[4]
    assert found.details["together"][0][1] == 1.0
    assert found.details["together"][0][2] == 0.0


def test_noise_is_not_a_family_of_its_own_and_doubt_is_said() -> None:
    found = two_families(4.0).families("template", alpha=0.6, **FAST)
    assert found.details["raw_matrix"][0][1] < 0.8
    low, high = found.interval
    assert low <= 2 <= high
    tight = two_families(1.0).families("template", alpha=0.915, **FAST)
    verdict = tight <= 2
    assert verdict.outcome != "refuted" or tight.value > 2


def test_alpha_out_of_range_and_single_blocks_are_invalid() -> None:
    lab = two_families(1.0)
    for alpha in (0, 1.5, float("nan"), -0.2):
        assert "alpha is" in lab.families("template", alpha=alpha, **FAST).invalid
    assert "has 1 blocks" in lab.families("template == 9", **FAST).invalid


def test_components_and_merges_by_hand() -> None:
    # a chain: 0-1 and 1-2 alike, 0-2 not; single linkage joins all three
    chain = np.array([[1, 0.8, 0.2, 0.0], [0.8, 1, 0.7, 0.1], [0.2, 0.7, 1, 0.3], [0.0, 0.1, 0.3, 1]])
    assert components(chain >= 0.6) == (0, 0, 0, 1)
    assert components(chain >= 0.75) == (0, 0, 1, 2)
    assert merges(chain) == (0.8, 0.7, 0.3)


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_the_barcode_counts_components(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.round(rng.random((count, count)), 1)
    matrix = np.maximum(matrix, matrix.T)
    np.fill_diagonal(matrix, 1)
    for alpha in (0.1, 0.35, 0.6, 0.9):
        assert 1 + sum(value < alpha for value in merges(matrix)) == max(components(matrix >= alpha)) + 1


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_interval_and_p_values_are_one_test(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = count * (count - 1) // 2
    found = FamiliesInference(
        MaxT(rng.random(pairs), 0.2 * rng.random((12, pairs)), 0.75, 20), count, 0.5, 100
    )
    assert isinstance(found, Inference)
    low, high = found.interval()
    assert low <= found.value <= high
    for threshold in range(1, count + 1):
        assert (found.p_value("<=", threshold) <= 0.025) == (high <= threshold)
        assert (found.p_value(">=", threshold) <= 0.025) == (low >= threshold)
        assert (found.p_value("<", threshold) <= 0.025) == (high < threshold)
        assert (found.p_value(">", threshold) <= 0.025) == (low > threshold)


def test_the_number_of_families_is_covered() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([0.9, 0.2, 0.62, 0.3, 0.58, 0.7])
    true = FamiliesInference(MaxT(truth, np.tile(truth, (2, 1)), 0.75, 40), 4, 0.6, 1).value
    missed = 0
    for _ in range(150):
        data = truth + 0.3 * rng.standard_normal((40, 6))
        replicates = np.stack([data[rng.permutation(40)[:30]].mean(0) for _ in range(40)])
        low, high = FamiliesInference(MaxT(data.mean(0), replicates, 0.75, 39), 4, 0.6, 40).interval()
        missed += not low <= true <= high
    assert missed / 150 <= 0.05


@pytest.mark.parametrize("kind", ["pearson", "topk"])
def test_other_similarities(kind: str) -> None:
    assert two_families(0.5).families("template", alpha=0.5, similarity=kind, **FAST).value == 2

"""A search over pairs of subtasks finds planted instability and ends at the simplest pair that shows it; a stable model
survives; a model on the edge of the claim is seldom accused.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hypothesis_circuittest.tasks  # noqa: F401  (inner runs forget what they import first)
from circuittest.stats import searching
from circuittest.tasks import Partition
from tests.helpers.score_lab import EDGES, ScoreLab, correlated, noisy

N = 480
FEATURES = [{"colour": "rgb"[i % 3], "order": ("AB", "BA")[i // 3 % 2], "size": i // 6 % 4} for i in range(N)]
HOW: dict[str, Any] = {"n": 20, "cuts": 4, "replicates": 20, "similarity": "pearson"}


def planted(unlike: Any) -> ScoreLab:
    """Examples for which `unlike` holds have scores of their own; a tenth of the noise of the scores."""
    means = correlated(0.0, 2, len(EDGES)) * np.sqrt(len(EDGES))
    return ScoreLab(FEATURES, edges=noisy(means, [int(unlike(one)) for one in FEATURES], 0.3))


BODY = """
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis_circuittest import subtask_pairs
from tests.known_answers.test_searched_subtasks import HOW
from circuittest.tasks import Partition
import planted_lab

@pytest.fixture(scope="session")
def lab():
    return planted_lab.LAB

@settings(deadline=None, max_examples={draws}, database=None, derandomize=True)
@given({given})
def test_stable(lab, pair):
    assert lab.stability(pair, **{**HOW, "n": {n}}) > 0.5
"""
PAIRS = "pair=subtask_pairs(planted_lab.LAB, min_size=20, max_features=3)"


@pytest.fixture
def search(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(lab: ScoreLab, given: str = PAIRS, draws: int = 40, n: int = 20) -> pytest.RunResult:
        monkeypatch.setitem(sys.modules, "planted_lab", SimpleNamespace(LAB=lab))
        pytester.makepyfile(
            BODY.replace("{given}", given).replace("{draws}", str(draws)).replace("{n}", str(n))
        )
        return pytester.runpytest_inprocess("-p", "no:randomly", "-o", "pythonpath=")

    return run


@pytest.mark.parametrize(
    ("unlike", "pair"),
    [
        pytest.param(lambda one: one["size"] == 2, "size == 0 vs size == 2", marks=pytest.mark.slow),
        (lambda one: one["colour"] == "g", "colour == b vs colour == g"),
        # in the marginals half of the scores agree: only the combination shows it
        (
            lambda one: (one["order"] == "AB") != (one["size"] < 2),
            "order == AB & size == 0 vs order == AB & size == 2",
        ),
    ],
)
def test_planted_instability_is_shrunk_to_the_right_pair(search: Any, unlike: Any, pair: str) -> None:
    result = search(planted(unlike))
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert f"pair=Partition.parse({pair!r})" in text
    # features, n, what differs and what noise allows are named
    first, second = pair.split(" vs ")
    assert f"In the search: least alike are {first!r} and {second!r} with 20 examples each" in text
    result.stdout.re_match_lines(
        [r".*raw similarity -?0\.\d+ of the (0\.9|1\.0)\d that noise allows; they differ most in .*"]
    )
    assert "had no part in the search" in text


@pytest.mark.slow
def test_noise_is_no_instability(search: Any) -> None:
    lab = ScoreLab(FEATURES, edges=noisy(correlated(1.0, 2, len(EDGES)) * 8, [0] * N, 1.0))
    assert lab.stability("colour == b vs colour == g", **HOW).details["least_alike"]["ceiling"] < 0.97
    search(lab, draws=15).assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_stable_model_survives_a_thousand_partitions(search: Any) -> None:
    lab = planted(lambda one: False)
    drawn = "pair=st.integers(0, 10**6).map(lambda seed: Partition.random(2 + seed % 3, seed))"
    # of 1,000 partitions with blocks of 20 examples, some have a random half without examples
    search(lab, drawn, draws=1000, n=50).assert_outcomes(passed=1)


def accused(lab: ScoreLab, pairs: list[Partition], threshold: float) -> bool:
    """Would a search over all of these report a counterexample that the untouched half confirms?"""
    with searching():
        found = [lab.stability(pair, **HOW) for pair in pairs]
    failing = [i for i, one in enumerate(found) if one.compare(">", threshold).outcome == "refuted"]
    if not failing:
        return False
    again = lab.stability([str(pairs[failing[0]])], **HOW)
    return again.compare(">", threshold).outcome == "refuted"


@pytest.mark.slow
def test_a_model_on_the_edge_is_accused_at_the_stated_rate() -> None:
    """Every pair is exactly as similar as the threshold says: at most 2.5 % of the searches may end in a refutation."""
    pairs = [Partition.parse(f"size == {i} vs size == {j}") for i in range(4) for j in range(i)]
    sizes = [one["size"] for one in FEATURES]
    runs, wrong = 60, 0
    for seed in range(runs):
        means = correlated(0.6, 4, len(EDGES), seed) * np.sqrt(len(EDGES))
        wrong += accused(ScoreLab(FEATURES, edges=noisy(means, sizes, 2.0, seed)), pairs, 0.6)
    assert wrong <= 5  # P(Binomial(60, 0.025) > 5) = 0.004
    far = ScoreLab(FEATURES, edges=noisy(correlated(0.2, 4, len(EDGES)) * 8, sizes, 2.0))
    assert accused(far, pairs, 0.6)

"""Within against across, and one condition against another: planted differences, none, too few subtasks, bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.stats import Inference
from circuittest.stats.labellings import (
    LabelledInference,
    first_minus_second,
    labellings,
    leave_one_out,
    within_minus_cross,
)
from circuittest.stats.simultaneous import StudentInference
from tests.helpers.score_lab import EDGES, ScoreLab, correlated, noisy

WIDTH = len(EDGES)
BLOCKS, SIZE = 10, 24
FEATURES = [{"subtask": i % BLOCKS, "form": "PN"[i % 2]} for i in range(BLOCKS * SIZE)]
CODE = [row["subtask"] for row in FEATURES]
FAST: dict[str, Any] = {"cuts": 6, "replicates": 30, "similarity": "pearson"}


def two_forms(rho: float, own: float = 0.3, noise: float = 1.0, seed: int = 0) -> np.ndarray:
    """Ten subtasks, five of each form; the forms' circuits correlate by `rho`."""
    kinds = correlated(rho, 2, WIDTH, seed) if rho < 1 else correlated(0.0, 1, WIDTH, seed)[[0, 0]]
    means = kinds[[k % 2 for k in range(BLOCKS)]] + own * correlated(0.0, BLOCKS, WIDTH, seed + 1)
    return noisy(means * np.sqrt(WIDTH), CODE, noise, seed)


def test_circuits_are_more_alike_within_a_form() -> None:
    lab = ScoreLab(FEATURES, edges=two_forms(0.3))
    found = lab.stability_difference("subtask * form", by="form", **FAST)
    assert found > 0
    # 1/(1 + 0.09) within, 0.3/(1 + 0.09) across
    assert found.value == pytest.approx(0.7 / 1.09, abs=0.05)
    assert found.details["means"]["within form=P"] == pytest.approx(1 / 1.09, abs=0.03)
    assert found.details["means"]["across"] == pytest.approx(0.3 / 1.09, abs=0.05)
    assert found.details["labellings"] == {"count": 252, "all": True, "p_greater": 2 / 252, "p_less": 1.0}
    assert found.details["conditions"]["form=P"] == [f"subtask={i}, form=P" for i in (0, 2, 4, 6, 8)]
    assert not (found > 0.9)
    assert found.n_examples == BLOCKS * SIZE


def test_forms_that_do_not_matter_make_no_difference() -> None:
    found = ScoreLab(FEATURES, edges=two_forms(1.0)).stability_difference("subtask * form", by="form", **FAST)
    verdict = found.compare(">", 0)
    assert verdict.outcome == "undecided"
    assert abs(found.value) < 0.05
    low, high = found.interval
    assert low < 0 < high


CROSSED = [{"digits": (i % BLOCKS) // 2, "form": "PN"[i % 2]} for i in range(BLOCKS * SIZE)]


def test_another_feature_of_the_partition_is_no_effect_of_the_condition() -> None:
    """Five numbers of digits, each in both forms: pairs across forms alone can have equal digits."""
    outcomes = []
    for seed in range(12):
        means = correlated(0.3, 5, WIDTH, seed)[[k // 2 for k in range(BLOCKS)]]
        lab = ScoreLab(CROSSED, edges=noisy(means * np.sqrt(WIDTH), CODE, 1.0, seed))
        found = lab.stability_difference("digits * form", by="form", **FAST)
        assert abs(found.value) < 0.05  # with these pairs it is about -0.14
        assert found.details["pairs_left_out"] == 5
        outcomes += [found.compare(op, 0).outcome for op in ("<", ">")]
    assert outcomes == ["undecided"] * 24


def test_an_effect_of_the_condition_shows_beside_that_of_another_feature() -> None:
    digits = correlated(0.0, 5, WIDTH, 1)[[k // 2 for k in range(BLOCKS)]]
    forms = correlated(0.0, 2, WIDTH, 2)[[k % 2 for k in range(BLOCKS)]]
    lab = ScoreLab(CROSSED, edges=noisy((digits + forms) * np.sqrt(WIDTH), CODE, 1.0))
    found = lab.stability_difference("digits * form", by="form", **FAST)
    assert found.value == pytest.approx(0.5, abs=0.05)  # of variance 2, a half is the form's
    assert found.details["means"]["across"] == pytest.approx(0.0, abs=0.05)
    assert found > 0.1
    other = lab.stability_difference(
        "digits * form", by="digits", **FAST
    )  # two subtasks of each number of digits
    assert other.value == pytest.approx(0.5, abs=0.05)


def test_random_blocks_beside_a_condition_are_compared_all_with_all() -> None:
    lab = ScoreLab([{"form": "PN"[i % 2]} for i in range(BLOCKS * SIZE)], edges=two_forms(0.3))
    found = lab.stability_difference("random:5:0 * form", by="form", **FAST)
    assert "pairs_left_out" not in found.details
    # with random blocks crossed with a feature, equal values of that feature are left out within a form, too
    both = ScoreLab(CROSSED, edges=two_forms(0.3)).stability_difference(
        "random:2:0 * digits * form", by="form", **{**FAST, "min_size": 8}
    )
    assert both.details["pairs_left_out"] == 5 * 6


def test_a_term_that_says_no_more_than_the_condition_leaves_no_pair_out() -> None:
    features = [{"style": "ab"[i % 2], "form": "PN"[i % 2], "all": 1} for i in range(BLOCKS * SIZE)]
    lab = ScoreLab(features, edges=two_forms(0.3))
    found = lab.stability_difference("random:5:0 * form * style * all", by="form", **FAST)
    assert found.value == lab.stability_difference("random:5:0 * form", by="form", **FAST).value
    assert "pairs_left_out" not in found.details


def test_few_subtasks_decide_nothing_and_say_so() -> None:
    few = [{"subtask": i % 6, "form": "PN"[i % 2]} for i in range(144)]
    kinds = correlated(0.2, 2, WIDTH)[[0, 1] * 3] * np.sqrt(WIDTH)
    lab = ScoreLab(few, edges=noisy(kinds, [row["subtask"] for row in few], 0.5))
    verdict = lab.stability_difference("subtask * form", by="form", **FAST).compare(">", 0)
    assert verdict.outcome == "undecided"
    assert "more subtasks: the labels can be dealt out in 20 ways, p = 0.1" in verdict.reason


def other_task(values: np.ndarray, **more: Any) -> ScoreLab:
    found = ScoreLab(FEATURES, edges=values, **more)
    found.data = found.data.__class__(**{**found.data.__dict__, "task": "chain"})
    return found


def test_one_condition_against_another() -> None:
    stable = noisy(
        (correlated(0.9, BLOCKS, WIDTH)) * np.sqrt(WIDTH),
        CODE,
        1.0,
    )
    unstable = noisy(correlated(0.4, BLOCKS, WIDTH, seed=9) * np.sqrt(WIDTH), CODE, 1.0, seed=9)
    lab = other_task(stable, others={"few": ScoreLab(FEATURES, edges=unstable)})
    found = lab.stability_difference("subtask", against="few", **FAST)
    assert found > 0.2
    assert found.value == pytest.approx(0.5, abs=0.06)
    assert found.details["means"]["within chain"] == pytest.approx(0.9, abs=0.05)
    assert found.details["means"]["within planted"] == pytest.approx(0.4, abs=0.05)
    # circuits of equal stability that have nothing in common make no difference
    alike = noisy(correlated(0.9, BLOCKS, WIDTH, seed=5) * np.sqrt(WIDTH), CODE, 1.0, seed=5)
    lab = other_task(stable, others={"other": ScoreLab(FEATURES, edges=alike)})
    same = lab.stability_difference("subtask", against="other", **FAST)
    assert same.compare(">", 0).outcome == "undecided"
    assert same.details["means"]["across"] < 0.2


def test_random_blocks_differ_by_noise_alone() -> None:
    """What tells chains of thought from few-shot prompts with random partitions is the noise of single examples."""
    mean = correlated(0.0, 1, WIDTH)[[0] * BLOCKS] * np.sqrt(WIDTH)
    quiet, loud = (noisy(mean, CODE, noise, seed) for seed, noise in ((1, 1.0), (2, 4.0)))
    lab = other_task(quiet, others={"loud": ScoreLab(FEATURES, edges=loud)})
    raw = lab.stability_difference("random:6:0", against="loud", corrected=False, **FAST)
    assert raw > 0.1
    corrected = lab.stability_difference("random:6:0", against="loud", **FAST)
    assert corrected.value == pytest.approx(0.0, abs=0.1)
    assert corrected.compare(">", 0).outcome == "undecided"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"partition": "subtask"}, "say either by"),
        ({"partition": "subtask", "by": "form", "against": "few"}, "say either by"),
        ({"partition": "subtask >= 5", "by": "form"}, "mixes values of 'form'"),
        ({"partition": "form", "by": "form"}, "pairs with equal ones and pairs with unequal ones"),
        ({"partition": "subtask * form", "by": "form", "labelled": 9}, "9 labellings"),
        ({"partition": "subtask * form", "by": "form", "cuts": 0}, "0 cuts"),
        ({"partition": "subtask * form", "by": "form", "min_size": 25}, "has 0 blocks"),
    ],
)
def test_what_cannot_be_judged_says_why(options: dict[str, Any], why: str) -> None:
    found = ScoreLab(FEATURES, edges=two_forms(0.3)).stability_difference(**{**FAST, **options})
    assert why in found.invalid


def test_a_task_that_the_model_cannot_do_is_no_condition() -> None:
    failing = ScoreLab(FEATURES, edges=two_forms(0.3))
    failing.rule = lambda units, i: 0.0
    lab = other_task(two_forms(0.3), others={"few": failing})
    assert (
        "few: the model is not competent"
        in lab.stability_difference("subtask", against="few", **FAST).invalid
    )


def test_scores_of_different_metrics_are_not_compared() -> None:
    other = ScoreLab(FEATURES, edges=two_forms(0.3))
    other.data = replace(other.data, metric="logit_diff")
    lab = other_task(two_forms(0.3), others={"few": other})
    found = lab.stability_difference("subtask", against="few", **FAST)
    assert "few are derivatives of logit_diff and those of chain of log_prob" in found.invalid


def test_labellings_are_all_different_and_the_given_one_comes_first() -> None:
    every, whole = labellings([1, 0, 0, 1], most=100, seed=0)
    assert whole
    assert every[0].tolist() == [1, 0, 0, 1]
    assert len({tuple(row) for row in every.tolist()}) == len(every) == 6
    some, whole = labellings([0] * 6 + [1] * 6, most=50, seed=0)
    assert not whole
    assert some.shape == (51, 12)
    assert (some.sum(1) == 6).all()


def test_statistics_by_hand() -> None:
    matrix = np.array([[1, 0.9, 0.1, 0.2], [0.9, 1, 0.3, 0.4], [0.1, 0.3, 1, 0.5], [0.2, 0.4, 0.5, 1]])
    labels = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    assert within_minus_cross(matrix, labels) == pytest.approx(
        [0.7 - 0.25, 0.25 - (0.9 + 0.2 + 0.3 + 0.5) / 4]
    )
    assert first_minus_second(matrix, labels) == pytest.approx([0.9 - 0.5, 0.1 - 0.4])
    assert within_minus_cross(np.stack([matrix, matrix]), labels).shape == (2, 2)
    counted = np.ones((4, 4), dtype=bool)
    counted[0, 1] = counted[1, 0] = False
    assert within_minus_cross(matrix, labels, counted) == pytest.approx(
        [0.5 - 0.25, 0.25 - (0.2 + 0.3 + 0.5) / 3]
    )
    counted[2, 3] = counted[3, 2] = False
    assert np.isnan(within_minus_cross(matrix, labels, counted)).tolist() == [True, False]


def test_leaving_out_one_circuit_at_a_time() -> None:
    matrix = np.eye(6)
    matrix[0, 1], matrix[0, 2], matrix[1, 2] = 0.9, 0.6, 0.3
    matrix = np.maximum(matrix, matrix.T)
    matrix[3:, 3:] = 0.5
    error, df = leave_one_out(matrix, np.array([0, 0, 0, 1, 1, 1]))
    # without each of the first three circuits one pair is left: 0.3, 0.6, 0.9; the others do not vary
    assert error == pytest.approx(np.sqrt(2 / 3 * 2 * 0.3**2))
    assert df == 2


def test_two_subtasks_a_condition_are_too_few() -> None:
    lab = other_task(two_forms(0.3), others={"few": ScoreLab(FEATURES, edges=two_forms(0.3))})
    assert "has 2 blocks; three are needed" in lab.stability_difference("form", against="few", **FAST).invalid


def test_interval_and_p_value_agree() -> None:
    rng = np.random.default_rng(0)
    permuted = np.concatenate([[0.5], rng.normal(0, 0.2, 200)])
    circuits = StudentInference(0.5, 0.12, 4, 100, "t")
    found = LabelledInference(StudentInference(0.5, 0.05, 20, 100, "t"), permuted, circuits)
    assert isinstance(found, Inference)
    for threshold in np.linspace(-0.6, 1.4, 41):
        low, high = found.interval(0.95)
        assert (found.p_value(">=", threshold) <= 0.025) == (low >= threshold)
        assert (found.p_value("<=", threshold) <= 0.025) == (high <= threshold)
    few = LabelledInference(StudentInference(0.5, 0.05, 20, 100, "t"), permuted[:20])
    assert few.interval() == (-np.inf, np.inf)
    assert few.p_value(">", 0) >= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("question", ["by", "against"])
def test_size(question: str) -> None:
    """No difference: at most 2.5 % of the claims above 0 are supported (simulated: benchmarks.statistics.differences)."""
    wrong, runs = 0, 100
    for seed in range(runs):
        if question == "by":
            lab = ScoreLab(FEATURES, edges=two_forms(1.0, own=0.5, noise=2.0, seed=seed))
            found = lab.stability_difference("subtask * form", by="form", **FAST)
        else:
            first, second = (
                noisy(correlated(0.6, BLOCKS, WIDTH, s) * np.sqrt(WIDTH), CODE, 2.0, s)
                for s in (seed, seed + 1000)
            )
            lab = other_task(first, others={"few": ScoreLab(FEATURES, edges=second)})
            found = lab.stability_difference("subtask", against="few", **FAST)
        wrong += found.compare(">", 0).outcome == "supported"
    assert wrong <= 7  # P(Binomial(100, 0.025) > 7) = 0.004

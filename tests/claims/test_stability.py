"""Stability where the right verdict is known: planted similarities, planted instability, noise, and bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.claims.subtasks import Subtasks, unusable
from circuittest.errors import TaskError, UsageError
from circuittest.find.similarity import BlockSimilarity
from circuittest.stats import searching
from circuittest.tasks import Partition
from tests.helpers.score_lab import EDGES, UNITS, ScoreLab, correlated, noisy

N = 160
TEMPLATES = [{"template": i % 4, "order": ("AB", "BA")[i // 4 % 2]} for i in range(N)]
BLOCK = [row["template"] for row in TEMPLATES]
FAST: dict[str, Any] = {"cuts": 8, "replicates": 40, "permutations": 99}


def lab_with(means: np.ndarray, noise: float = 0.0, **more: Any) -> ScoreLab:
    return ScoreLab(TEMPLATES, edges=noisy(means, BLOCK, noise), **more)


def scaled(rho: float, blocks: int = 4) -> np.ndarray:
    return correlated(rho, blocks, len(EDGES)) * np.sqrt(len(EDGES))


def test_planted_similarity_without_noise() -> None:
    found = lab_with(scaled(0.5), noise=1e-3).stability("template", similarity="pearson", **FAST)
    assert found.value == pytest.approx(0.5, abs=1e-3)
    assert found.details["raw"] == pytest.approx(0.5, abs=1e-3)
    assert found > 0.45
    assert not (found > 0.6)
    assert np.diag(found.details["similarity"]).tolist() == pytest.approx([1] * 4)
    assert found.details["n"] == 40
    assert found.n_examples == N
    assert sorted(found.examples["discover"] + found.examples["evaluate"]) == list(range(N))


def test_blocks_that_do_not_differ_are_stable_however_noisy() -> None:
    found = lab_with(scaled(1.0), noise=6.0).stability("template", **FAST)
    assert found.details["raw"] < 0.6
    assert found > 0.6
    assert found.value == pytest.approx(1.0, abs=0.15)
    assert found.details["null"]["p"] > 0.05
    assert found.details["reliability"]["template=0"]["lower"] > 0


def test_two_subtasks_through_different_heads_are_unstable() -> None:
    means = np.zeros((4, len(UNITS)))
    means[:2, [2, 6]], means[2:, [3, 8]] = [5.0, 4.0], [5.0, 4.0]
    means += 0.2 * np.random.default_rng(0).standard_normal(len(UNITS))
    lab = ScoreLab(TEMPLATES, units=noisy(means, BLOCK, 1.0))
    found = lab.stability("template", level="units", similarity="pearson", **FAST)
    assert not (found > 0.6)
    matrix = found.details["similarity"]
    assert matrix[0][1] > 0.9 > matrix[0][2]
    assert found.details["null"]["p"] <= 0.02
    assert "differ more than random blocks" in found.hints[0]
    # a feature that has nothing to do with it is stable
    assert lab.stability("order", level="units", similarity="pearson", **FAST) > 0.6
    assert all(call.get("score") == "node" for call in lab.asked)


def test_independent_circuits_have_no_similarity() -> None:
    found = lab_with(scaled(0.0), noise=0.5).stability("template", **FAST)
    assert abs(found.value) < 0.1
    assert not (found > 0.25)


def test_top_overlap_stands_beside_a_correlation_of_tiny_scores() -> None:
    # the same strong edges and independent tiny scores elsewhere: no rank correlation, and the same circuit
    rng = np.random.default_rng(1)
    means = 1e-4 * rng.standard_normal((4, len(EDGES)))
    means[:, : len(EDGES) // 10] = 5 + rng.random(len(EDGES) // 10)
    found = lab_with(means, noise=1e-5).stability("template", **FAST)
    assert found.value < 0.45
    assert found.details["top_overlap"]["mean"] == 1.0
    assert found.details["top_overlap"]["chance"] == pytest.approx(0.1, abs=0.01)
    assert lab_with(means, noise=1e-5).stability("template", similarity="topk", **FAST) > 0.95


def test_an_untrained_twin_stands_beside() -> None:
    twin = lab_with(scaled(0.9), noise=1.0)
    found = lab_with(scaled(0.9), noise=1.0, twin=twin).stability("template", untrained=True, **FAST)
    assert found.details["untrained"]["value"] == pytest.approx(found.value)
    blank = ScoreLab(TEMPLATES, edges=np.zeros((N, len(EDGES))))
    found = lab_with(scaled(0.9), noise=1.0, twin=blank).stability("template", untrained=True, **FAST)
    assert "all equal" in found.details["untrained"]["invalid"]


def test_equal_calls_give_equal_numbers_and_seeds_matter() -> None:
    lab = lab_with(scaled(0.7), noise=2.0)
    first, again, other = (lab.stability("template", seed=s, **FAST) for s in (0, 0, 1))
    assert (first.value, first.interval) == (again.value, again.interval)
    assert first.value != other.value


def test_clusters_are_kept_together() -> None:
    # ten distinct prompts a block, each four times: four times as many examples are no more evidence
    block = np.repeat(np.arange(4), 40)
    features = [{"template": int(b)} for b in block]
    cluster = np.repeat(np.arange(40), 4)
    rng = np.random.default_rng(0)
    values = (scaled(0.5)[np.repeat(np.arange(4), 10)] + 4 * rng.standard_normal((40, len(EDGES))))[cluster]
    together = ScoreLab(features, edges=values, groups=[f"g{c}" for c in cluster])
    apart = ScoreLab(features, edges=values)
    wide, narrow = (
        lab.stability("template", **FAST).details["reliability"]["template=0"] for lab in (together, apart)
    )
    assert wide["half"] < narrow["half"] - 0.2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"partition": "template * order", "min_size": 30}, "has 0 blocks"),
        ({"partition": "template == 9"}, "has 1 blocks"),
        ({"partition": "template", "n": 100}, "has 0 blocks of at least 100"),
        ({"partition": "template", "replicates": 3}, "3 replicates"),
        ({"partition": "template", "cuts": 0}, "0 cuts"),
        ({"partition": "random:20:0", "min_size": 5, "n": 5}, "cannot be cut"),
    ],
)
def test_what_cannot_be_judged_says_why(options: dict[str, Any], why: str) -> None:
    found = lab_with(scaled(0.5), noise=0.1).stability(**{**FAST, **options})
    assert why in found.invalid


def test_scores_without_variation_or_agreement_are_invalid() -> None:
    flat = ScoreLab(TEMPLATES, edges=np.zeros((N, len(EDGES))))
    assert "all equal" in flat.stability("template", **FAST).invalid
    equal = ScoreLab(TEMPLATES, edges=np.full((N, len(EDGES)), 0.3))
    assert "all equal" in equal.stability("template", **FAST).invalid
    noise = lab_with(np.zeros((4, len(EDGES))), noise=1.0)
    found = noise.stability("template", **FAST)
    assert "does not agree with itself" in found.invalid
    assert found.details["raw"] < 0.2


def test_an_incompetent_model_has_no_stability() -> None:
    lab = lab_with(scaled(0.9), noise=0.5)
    lab.rule = lambda units, i: 0.0
    assert "not competent" in lab.stability("template", **FAST).invalid


def test_wrong_calls_are_refused() -> None:
    lab = lab_with(scaled(0.9), noise=0.5)
    with pytest.raises(TaskError, match="(?i)did you mean 'template'"):
        lab.stability("tempate", **FAST)
    with pytest.raises(UsageError, match="no partition"):
        lab.stability("template,", **FAST)
    for top in ("0%", "100%", 0.2, float("nan")):
        with pytest.raises(UsageError):
            lab.stability("template", top=top, **FAST)
    with pytest.raises(UsageError, match="unknown similarity"):
        lab.stability("template", similarity="kendall", **FAST)
    with pytest.raises(ValueError, match="finite"):
        lab.stability("template", **FAST) > float("nan")  # noqa: B015


def test_left_out_blocks_are_named() -> None:
    features = [{"kind": "rare" if i < 3 else "ab"[i % 2]} for i in range(100)]
    lab = ScoreLab(features, edges=noisy(scaled(1.0, 1), [0] * 100, 1.0))
    found = lab.stability("kind", **FAST)
    assert found.details["left_out"] == ["kind=rare"]
    assert "kind=rare (3)" in found.hints[0]


# Families of partitions --------------------------------------------------------------------------------------------

FAMILY: dict[str, Any] = {"cuts": 8, "replicates": 40, "min_size": 10}


def test_the_worst_partition_is_found_and_tested_on_other_examples() -> None:
    means = np.stack([scaled(0.3, 2)[b // 2] for b in range(4)])  # templates 0 and 1 against 2 and 3
    lab = ScoreLab(TEMPLATES, edges=noisy(means, BLOCK, 1.0))
    partitions = ["order", "template in 0, 1", "random:2:0", "template in 0, 2"]
    found = lab.stability(partitions, decide=0.6, **FAMILY)
    assert found.details["counts"] == {"supported": 3, "refuted": 1, "undecided": 0}
    assert found.details["worst"] == "template in 0, 1"
    assert not (found > 0.6)
    assert found.examples["discover"] == []
    assert set(found.examples["evaluate"]) <= set(range(N // 2, N))
    assert found.inference.counts(">", 0.6) == {"supported": 3, "refuted": 1, "undecided": 0}
    assert found.details["partitions"][0]["partition"] == "template in 0, 1"


def test_a_family_of_partitions_that_mean_nothing_is_stable() -> None:
    lab = lab_with(scaled(1.0), noise=1.0)
    found = lab.stability([Partition.random(2, seed) for seed in range(12)], **FAMILY)
    assert found > 0.6
    low, high = found.interval
    assert low <= found.value <= high
    assert low < min(row["value"] for row in found.details["partitions"])
    assert found.inference.p_value(">", low) == pytest.approx(0.025, abs=2e-3)
    single = lab.stability("random:2:0", **FAST).interval
    assert low < single[0]


def test_one_unusable_partition_makes_the_family_invalid() -> None:
    lab = lab_with(scaled(1.0), noise=1.0)
    assert "'template == 7'" in lab.stability(["order", "template == 7"], **FAMILY).invalid
    with pytest.raises(UsageError, match="listed twice"):
        lab.stability(["order", Partition.by("order")], **FAMILY)
    with pytest.raises(UsageError, match="no partitions"):
        lab.stability([], **FAMILY)
    with pytest.raises(UsageError, match="no untrained twin"):
        lab.stability(["order"], untrained=True, **FAMILY)


def test_a_search_uses_the_discovery_examples_and_is_judged_on_the_others() -> None:
    means = np.stack([scaled(0.3, 2)[b // 2] for b in range(4)])
    lab = ScoreLab(TEMPLATES, edges=noisy(means, BLOCK, 1.0))
    with searching():
        drawn = [
            lab.stability(text, min_size=10, **FAST)
            for text in ("order", "template in 0, 1", "random:2:0", "order")
        ]
        other = lab.stability("order", min_size=12, **FAST)
        elsewhere = ScoreLab(TEMPLATES, edges=noisy(means, BLOCK, 1.0))
        elsewhere.__dict__["data"] = replace(elsewhere.data, seed=1)
        moved = elsewhere.stability("random:2:0", min_size=10, **FAST)
    assert all(one.examples["evaluate"] == [] and "null" not in one.details for one in drawn)
    assert drawn[0].n_examples == N // 2
    assert drawn[0].together is not None
    found = drawn[0].together(drawn)
    assert found.details["n_partitions"] == 3
    assert found.details["worst"] == "template in 0, 1"
    assert found.examples["discover"] == []
    assert not (found > 0.6)
    assert drawn[2].together([drawn[2]]) > 0.6  # type: ignore[misc]
    for stranger, why in ((other, "in different ways"), (moved, "on different examples")):
        with pytest.raises(UsageError, match=why):
            drawn[0].together([*drawn, stranger])


def test_a_spec_may_claim_it(tmp_path: Any) -> None:
    from circuittest.spec import load_spec
    from circuittest.spec.run import judge

    path = tmp_path / "a.circuit.yaml"
    path.write_text(
        "circuittest: 1\nmodel: a\ntask: ioi\nclaims:\n"
        "  - stability: {partition: template, above: 0.6, cuts: 4, replicates: 20}\n"
        "  - stability: {partition: [order, 'template in 0, 1'], above: 0.6, id: all, min_size: 10, replicates: 20}\n"
        "  - families: {partition: template, alpha: 0.6, max: 2, replicates: 20}\n"
    )
    spec = load_spec(path)
    lab = lab_with(scaled(1.0), noise=1.0)
    assert [judge(spec, claim, lab).outcome for claim in spec.claims] == ["supported"] * 3


def test_the_ratio_is_guarded_by_its_denominators_interval() -> None:
    # all subsamples agree with themselves a little, but a reliability of zero is within the error
    matrix = lambda r: np.array([[r, 0.05], [0.05, 0.8]])
    drawn = np.stack([matrix(r) for r in np.linspace(0.02, 0.22, 40)])
    blocks = Partition.parse("order").resolve([*map(Row, TEMPLATES)])
    weak = Subtasks(blocks, BlockSimilarity(np.eye(2), matrix(0.12), drawn), 39.0, "")
    assert "split-half reliability 0.12 (lower bound -0.09)" in unusable(weak)
    strong = Subtasks(blocks, BlockSimilarity(np.eye(2), matrix(0.32), drawn), 39.0, "")
    assert unusable(strong) == ""


class Row:
    def __init__(self, features: dict[str, Any]) -> None:
        self.features, self.group = features, ""

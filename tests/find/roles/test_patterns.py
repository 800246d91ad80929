"""Pattern scores of heads whose attention is known on paper."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch

from circuittest.errors import UsageError
from circuittest.find.roles.kinds import PATTERNS
from circuittest.find.roles.patterns import pattern_scores, selectivity
from circuittest.find.roles.table import RoleTable
from circuittest.find.roles.targets import targets
from circuittest.measure.attention import attention
from circuittest.models.loaded import LoadedModel
from circuittest.units import Unit
from tests.helpers import role_heads, tiny
from tests.helpers.items import FakeItem, random_items

ITEMS = [
    FakeItem(0, (0, 3, 5, 7, 9, 3, 5, 7, 9), (), (3,), (5,)),
    FakeItem(1, (0, 1, 2, 4, 6, 8, 1, 10, 11), (), (1,), (2,)),
    FakeItem(2, (0, 1, 2, 3, 4), (), (9,), (8,)),
]


def head(name: str) -> Unit:
    return Unit.parse(name)


@lru_cache
def scored(positions: str = "all") -> dict[str, RoleTable]:
    return pattern_scores(role_heads.build(), ITEMS, positions=positions)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "perfect"),
    [
        ("induction", "L1.H0"),
        ("previous-token", "L0.H0"),
        ("duplicate-token", "L0.H3"),
        ("self", "L0.H1"),
        ("first-token", "L0.H2"),
        ("local", "L0.H5"),
    ],
)
def test_a_head_that_does_nothing_else_scores_one(kind: str, perfect: str) -> None:
    table = scored()[kind]
    np.testing.assert_allclose(table.of([head(perfect)]), 1.0, atol=1e-6)
    assert table.means()[head(perfect)] == pytest.approx(1.0, abs=1e-6)


def test_a_head_that_does_half_of_it_scores_half() -> None:
    np.testing.assert_allclose(scored()["induction"].of([head("L1.H1")]), 0.5, atol=1e-4)


def test_heads_of_other_roles_score_nothing() -> None:
    others = [head(name) for name in ("L0.H0", "L0.H1", "L0.H2", "L0.H3", "L1.H2", "L1.H5")]
    np.testing.assert_allclose(scored()["induction"].of(others), 0.0, atol=1e-6)
    np.testing.assert_allclose(scored()["previous-token"].of([head("L1.H0")]), 0.0, atol=1e-6)


def test_a_head_that_looks_everywhere_alike() -> None:
    flat = [head("L0.H4")]
    length = len(ITEMS[0].prompt_ids)
    each = lambda queries: sum(1 / (t + 1) for t in queries) / len(queries)
    np.testing.assert_allclose(scored()["previous-token"].of(flat)[0], each(range(2, length)), atol=1e-6)
    np.testing.assert_allclose(scored()["self"].of(flat)[0], each(range(1, length)), atol=1e-6)
    np.testing.assert_allclose(scored()["induction"].of(flat)[0], each(range(5, length)), atol=1e-6)


def test_an_example_without_targets_has_no_score_and_it_is_said() -> None:
    table = scored()["induction"]
    assert table.defined.tolist() == [True, True, False]
    assert np.isnan(table.values[2]).all()
    assert table.undefined == "no token is repeated in 1 of 3 examples"
    assert scored()["self"].undefined == ""
    alone = pattern_scores(role_heads.build(), ITEMS[2:], ["induction", "answer-token"])
    assert alone["induction"].means() == {}
    assert alone["answer-token"].undefined == "the answer is not in the prompt in 1 of 1 examples"


def test_at_the_answer_only_the_last_query_counts() -> None:
    table = scored("answer")["induction"]
    assert table.defined.tolist() == [True, False, False]  # the last token of the second was not there before
    assert table.choices["role_positions"] == "answer"
    assert scored()["answer-token"].choices["role_positions"] == "answer"
    np.testing.assert_allclose(scored()["answer-token"].of([head("L1.H0")])[0], 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["llama", "gemma3_text", pytest.param("gpt_oss", marks=pytest.mark.slow)])
def test_scores_are_means_of_weights_on_targets(name: str) -> None:
    model = tiny.build_loaded(name, dtype=torch.float64)
    items = [
        FakeItem(i.index, tuple(3 + t % 4 for t in i.prompt_ids), (), i.answer_ids) for i in random_items(4)
    ]
    tables = pattern_scores(model, items, batch_size=1)
    for row, item in enumerate(items):
        patterns = attention(model, [item], lambda layer, weights, batch: weights)[0][0].numpy()
        for kind, table in tables.items():
            mask = targets(kind, item.prompt_ids, answers=item.answer_ids)
            queries = np.flatnonzero(mask.any(1))
            if not len(queries):
                assert np.isnan(table.values[row]).all()
                continue
            expected = np.mean([patterns[:, q, mask[q]].sum(-1) for q in queries], 0)
            np.testing.assert_allclose(table.values[row], expected, rtol=0, atol=1e-12)
    assert tuple(tables) == tuple(PATTERNS)


def test_forced_answers_are_no_queries() -> None:
    model, plain = role_heads.build(), ITEMS[:1]
    longer = [FakeItem(0, plain[0].prompt_ids, (), (3,), (), (5, 7))]
    for kind in ("induction", "self", "answer-token"):
        one, other = (pattern_scores(model, items, [kind])[kind].values for items in (plain, longer))
        np.testing.assert_allclose(one, other, atol=1e-6)


def selective(kinds: tuple[str, ...], model: LoadedModel | None = None) -> dict[str, np.ndarray]:
    return selectivity(model or role_heads.build(), ITEMS[:2], kinds)


def test_selectivity_is_the_ratio_to_keys_that_are_no_targets() -> None:
    names = [str(unit) for unit in role_heads.build().layout.units(("head",))]
    found = selective(("induction",))["induction"]
    assert found[names.index("L1.H0")] > 1e6
    # half on the target; the other half on the first token, which is no target and does not count
    assert found[names.index("L1.H1")] > 1e6
    flat = selective(("induction",), role_heads.build(flat=True))["induction"]
    np.testing.assert_allclose(flat, flat[0], rtol=1e-5)  # no head differs
    # by hand: weight per target at the repeating queries over weight per other key at all queries
    ratio = []
    for item in ITEMS[:2]:
        mask = targets("induction", item.prompt_ids)
        length = len(item.prompt_ids)
        target = np.mean([1 / (t + 1) for t in range(length) if mask[t].any()])
        rest = np.mean([1 / (t + 1) for t in range(1, length) if (~mask[t, 1 : t + 1]).any()])
        ratio.append((target, rest))
    target, rest = np.mean(ratio, 0)
    np.testing.assert_allclose(flat, target / rest, rtol=1e-5)


def test_selectivity_without_targets_is_undefined() -> None:
    assert np.isnan(selectivity(role_heads.build(), ITEMS[2:], ["induction"])["induction"]).all()


def test_bad_asks() -> None:
    model = role_heads.build()
    with pytest.raises(UsageError, match="unknown kind of pattern 'copy'"):
        pattern_scores(model, ITEMS, ["copy"])
    with pytest.raises(UsageError, match="unknown positions 'last'"):
        pattern_scores(model, ITEMS, positions="last")  # type: ignore[arg-type]

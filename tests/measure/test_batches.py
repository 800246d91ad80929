"""Batches: no padding, nothing lost, sizes from shapes alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st

from circuittest.errors import UsageError
from circuittest.measure import batches
from circuittest.measure.batches import by_row, bytes_per_example, describe, plan
from tests.helpers import tiny
from tests.helpers.items import FakeItem, random_items

MODEL = tiny.build_loaded("gpt2")


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30), st.one_of(st.none(), st.integers(1, 5)))
def test_every_item_is_in_one_batch_of_its_length(lengths: list[int], size: int | None) -> None:
    items = [FakeItem(i, (3,) * n, (4,) * n, (5,)) for i, n in enumerate(lengths)]
    made = plan(items, MODEL, batch_size=size)
    assert sorted(row for batch in made for row in batch.rows) == list(range(len(items)))
    for batch in made:
        assert {len(item.prompt_ids) for item in batch.items} == {batch.length}
        assert [items[row] for row in batch.rows] == list(batch.items)
        assert list(batch.rows) == sorted(batch.rows)
        assert size is None or len(batch.rows) <= size


def test_a_bucket_is_cut_into_nearly_equal_parts() -> None:
    made = plan([FakeItem(i, (3, 4), (4, 3), (5,)) for i in range(9)], MODEL, batch_size=4)
    assert describe(made) == [[3, 2], [3, 2], [3, 2]]


def test_the_size_follows_from_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    items = random_items(8, (6,))
    monkeypatch.setattr(batches, "BATCH_BYTES", 4 * bytes_per_example(MODEL, 6))
    assert describe(plan(items, MODEL)) == [[4, 6], [4, 6]]
    assert bytes_per_example(MODEL, 12) > 2 * bytes_per_example(MODEL, 6) * 0.9
    deeper = tiny.build_loaded("gpt2", n_layer=6)
    assert bytes_per_example(deeper, 6) > bytes_per_example(MODEL, 6)


def test_rows_come_back_in_the_order_of_the_items() -> None:
    made = plan(random_items(5, (9, 6)), MODEL, batch_size=2)
    values = [torch.tensor([[float(row)] for row in batch.rows]) for batch in made]
    assert by_row(made, values).flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_prompts_beyond_the_context_are_refused() -> None:
    short = tiny.build_loaded("gpt2", n_positions=8)
    assert plan([FakeItem(0, (3,) * 8, (4,) * 8, (5,))], short)
    with pytest.raises(
        UsageError, match="example 4 has 9 tokens: the context of .* is 8.*Use shorter prompts"
    ):
        plan([FakeItem(4, (3,) * 9, (4,) * 9, (5,))], short)
    assert plan([FakeItem(0, (3,) * 500, (4,) * 500, (5,))], tiny.build_loaded("bloom"))


def test_refusals() -> None:
    with pytest.raises(UsageError, match="no examples"):
        plan([], MODEL)
    with pytest.raises(UsageError, match="batch size of 0"):
        plan(random_items(1), MODEL, batch_size=0)
    with pytest.raises(UsageError, match="example 7 has an empty prompt"):
        plan([FakeItem(7, (), (), (5,))], MODEL)
    uneven = plan([FakeItem(3, (4, 5), (4, 5, 6), (5,))], MODEL)[0]
    with pytest.raises(UsageError, match="example 3 has 2 prompt tokens and 3 counterfactual tokens"):
        uneven.counterfactuals(MODEL.device)

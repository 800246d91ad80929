"""Copy, suppression and successor scores of heads whose writes are known on paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from circuittest.errors import UsageError
from circuittest.find.roles.copying import copying_scores, series_of, successor_scores
from circuittest.units import Unit
from tests.find.roles.test_patterns import ITEMS, head
from tests.helpers import role_heads, tiny
from tests.helpers.items import FakeItem, random_items


def test_copying_and_suppressing_heads_score_one_and_all_others_nothing() -> None:
    tables = copying_scores(role_heads.build(), ITEMS)
    copy, against = tables["copy"], tables["copy-suppression"]
    assert copy.defined.tolist() == [True, True, False]
    ones = {str(unit) for unit, mean in copy.means().items() if mean == 1}
    assert ones == {"L1.H0", "L1.H2"}
    assert {str(unit) for unit, mean in against.means().items() if mean == 1} == {"L1.H3"}
    for table, known in ((copy, ones), (against, {"L1.H3"})):
        rest = [unit for unit in table.heads if str(unit) not in known]
        assert (table.of(rest) == 0).all()  # heads that write nothing copy and suppress nothing
    assert copy.undefined == "neither answer nor foil is in the prompt of 1 of 3 examples"
    assert copy.choices["top"] == 5


def test_shares_count_every_place_of_answers_and_foils() -> None:
    # the copying head copies 15 as well, yet moves nothing of a token that its values do not hold
    model = role_heads.build()
    with torch.no_grad():
        start = 2 * role_heads.WIDTH + 2 * role_heads.SIZE  # values of L1.H2
        model.module.transformer.h[1].attn.c_attn.weight[:, start + 5] = 0.0  # it forgets token 5
    model = tiny.wrap(model.module)
    item = FakeItem(0, (0, 3, 5, 7, 3), (), (3,), (5,))
    found = copying_scores(model, [item])["copy"]
    assert found.of([head("L1.H2")])[0, 0] == pytest.approx(2 / 3)  # 3 and 3 again, not 5


def test_nothing_to_copy_is_undefined() -> None:
    tables = copying_scores(role_heads.build(), ITEMS[2:])
    assert not tables["copy"].defined.any()
    assert tables["copy"].means() == {}
    with pytest.raises(UsageError, match="the top 0 logits"):
        copying_scores(role_heads.build(), ITEMS, top=0)


def test_ranks_on_a_random_model() -> None:
    """The place of a token among the logits, counted by sorting."""
    from circuittest.measure.moved import Source, moved

    model = tiny.build_loaded("qwen2", dtype=torch.float64)
    items = [
        FakeItem(i.index, i.prompt_ids, (), i.prompt_ids[1:2], i.prompt_ids[3:5]) for i in random_items(2)
    ]
    marked = [
        Source(row, at)
        for row, item in enumerate(items)
        for at, token in enumerate(item.prompt_ids)
        if at and token in {*item.answer_ids, *item.foil_ids}
    ]
    every = [
        moved(model, items, marked, lambda logits, _, t=t: logits[..., t])[0].numpy()
        for t in range(tiny.VOCAB)
    ]
    order = np.argsort(np.stack(every, -1), -1)  # [sources, heads, vocabulary], least first
    for top in (1, 7):
        tables = copying_scores(model, items, top=top)
        for row, item in enumerate(items):
            mine = [(order[i], item.prompt_ids[s.position]) for i, s in enumerate(marked) if s.item == row]
            hits = {
                "copy": [(ranks[:, -top:] == token).any(1) for ranks, token in mine],
                "copy-suppression": [(ranks[:, :top] == token).any(1) for ranks, token in mine],
            }
            for kind, table in tables.items():
                np.testing.assert_array_equal(table.values[row], np.mean(hits[kind], 0))


def test_the_successor_head_steps_through_the_numbers() -> None:
    table = successor_scores(role_heads.build(), prefix=(0,))
    assert table.values.shape == (14, 16)  # 1 → 2, …, 14 → 15
    ones = {str(unit) for unit, mean in table.means().items() if mean == 1}
    assert ones == {"L1.H4"}
    assert (table.of([unit for unit in table.heads if unit != Unit("head", 1, 4)]) == 0).all()
    assert table.choices["series"] == {"numbers": 15}


def test_series_of_a_tokenizer() -> None:
    (series,) = series_of(role_heads.tokenizer())
    assert (series.name, series.tokens[:3], series.steps[:2]) == ("numbers", (1, 2, 3), ((0, 1), (1, 2)))
    assert series_of(tiny.tokenizer()) == ()


def test_without_series_it_is_undefined_and_without_tokenizer_refused() -> None:
    model = tiny.build_loaded("llama")
    with pytest.raises(UsageError, match="llama has no tokenizer"):
        successor_scores(model)
    table = successor_scores(replace(model, tokenizer=tiny.tokenizer()))
    assert table.values.shape == (0, 12)
    assert table.means() == {}
    assert table.undefined == "no series has 4 members that are single tokens"

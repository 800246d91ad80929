"""What the model cards say of heads: a head is taken out exactly, and attention is read at the right places."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from circuittest.zoo.heads import _looks, attention_scores, zeroed
from circuittest.zoo.recipe import BUILDS, make_model
from circuittest.zoo.score import examples, last_logits
from circuittest.zoo.train import projections
from circuittest.zoo.vocabulary import make_tokenizer


@pytest.mark.parametrize("name", ["mha", "gqa"])
def test_zeroing_a_head_is_zeroing_its_columns_of_the_projection(name: str) -> None:
    model = make_model(replace(BUILDS[name], layers=2), 0).eval()
    rows = [[1, 9, 20, 31], [1, 7, 8], [1, 40, 41, 42]]
    plain = last_logits(model, rows)
    with zeroed(projections(model)[1], 3, 8):
        hooked = last_logits(model, rows)
    assert torch.equal(last_logits(model, rows), plain), "the hook is gone"
    with torch.no_grad():
        projections(model)[1].weight[:, 48:64] = 0
    torch.testing.assert_close(last_logits(model, rows), hooked)
    assert not torch.allclose(plain, hooked)


def test_rows_of_all_lengths_come_back_in_order() -> None:
    model = make_model(replace(BUILDS["gqa"], layers=1), 0).eval()
    rows = [[1, 5, 6], [1, 5], [1, 9, 9], [1]]
    together = last_logits(model, rows)
    for row, logits in zip(rows, together, strict=True):
        torch.testing.assert_close(last_logits(model, [row])[0], logits)


def test_where_heads_look() -> None:
    """One layer, one head; entry [t, s] of the map is 10·t + s, so each reading names its place."""
    size = 7
    maps = (10.0 * torch.arange(size)[:, None] + torch.arange(size))[None, None]
    listed = [1, 90, 21, 22, 23, 21, 22]  # <bos> Words a b c a b
    found = _looks("induction", listed, 23, 22, maps)
    assert found["induction"].item() == 64, "from the last token to the one after its first occurrence"
    assert found["previous token"].item() == pytest.approx(sum(11 * t + 10 for t in range(1, 6)) / 5)
    ioi = [1, 90, 31, 32, 91, 32, 92]  # <bos> When IO S and S gave
    found = _looks("ioi", ioi, 31, 32, maps)
    assert {kind: v.item() for kind, v in found.items()} == {"END to IO": 62, "END to S2": 65, "S2 to S1": 53}


def test_attention_scores_are_attention() -> None:
    model = make_model(replace(BUILDS["mha"], layers=1), 0)
    before = model.config._attn_implementation
    scores = attention_scores(model, make_tokenizer(), n=3)
    assert model.config._attn_implementation == before
    assert set(scores) == {"previous token", "induction", "END to IO", "END to S2", "S2 to S1"}
    assert all(len(v) == 8 and all(0 < x < 1 for x in v.values()) for v in scores.values())


def test_examples_are_distinct() -> None:
    assert len({e.prompt for e in examples("facts", 300, "test", 0)}) == 300

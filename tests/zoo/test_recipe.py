"""The pieces of the zoo's recipe: tokenizer, data, penalty, schedule, training."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from circuittest.tasks import get_task, list_tasks
from circuittest.zoo.data import Source
from circuittest.zoo.penalty import HeadSparsity, effective_heads, predicts_answer
from circuittest.zoo.recipe import (
    BUILDS,
    CONSOLIDATE,
    LEARN,
    MIXTURE,
    VARIANTS,
    Build,
    Schedule,
    make_model,
    penalty_weight,
    shares,
)
from circuittest.zoo.train import learning_rate, projections, save, train
from circuittest.zoo.vocabulary import BOS, PAD, make_tokenizer, pieces, vocabulary

SMALL = Schedule(steps=3, batch=6, penalty_from=0.0, penalty_full=0.1)


def tiny(name: str) -> Build:
    kv_heads = min(4, BUILDS[name].kv_heads)
    return replace(
        BUILDS[name], layers=1, width=32, heads=4, kv_heads=kv_heads, mlp=32, stages=(SMALL, SMALL)
    )


def test_tokenizer_splits_words_digit_pairs_and_punctuation() -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer("When Mary went, in 1732 (5 + 12 =)")["input_ids"]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    assert tokens == ["<bos>", "When", "Mary", "went", ",", "in", "17", "32", "(", "5", "+", "12", "=", ")"]
    assert tokenizer("mary")["input_ids"][1] == tokenizer.unk_token_id, "case matters"


@pytest.mark.parametrize("name", [*MIXTURE, "year_order"])
def test_every_sentence_of_every_task_is_in_the_vocabulary(name: str) -> None:
    tokenizer, ids = make_tokenizer(), vocabulary()
    for variant in get_task(name).variants:
        for pool in ("train", "test"):
            for example in islice(get_task(name, pool=pool).stream(1, variant), 300):
                for text in (
                    example.prompt,
                    example.counterfactual,
                    *example.answers[:1],
                    *example.foils[:1],
                ):
                    split = pieces(text)
                    assert set(split) <= set(ids), text
                    assert tokenizer(text, add_special_tokens=False)["input_ids"] == [ids[p] for p in split]


@pytest.mark.parametrize("name", ["mha", "gqa"])
def test_a_saved_tokenizer_comes_back_the_same(name: str, tmp_path: Path) -> None:
    """AutoTokenizer replaces the tokenizer of some model types (Qwen2) by that type's own; ours must survive."""
    save(make_model(tiny(name), 0), tmp_path, {})
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "Today Mary was late in 1732, isn't it? A: red 5 + 12 ="
    assert loaded(text)["input_ids"] == make_tokenizer()(text)["input_ids"]
    assert (loaded.bos_token, loaded.pad_token, loaded.unk_token) == ("<bos>", "<pad>", "<unk>")


def test_effective_heads_counts_heads() -> None:
    torch.manual_seed(0)
    weight = torch.eye(12)
    alone, equal = torch.zeros(1, 1, 12), torch.ones(1, 1, 12)
    alone[..., :4] = 3.0
    assert effective_heads(alone, weight, 3).item() == pytest.approx(1.0, abs=2e-3)
    assert effective_heads(equal, weight, 3).item() == pytest.approx(3.0, abs=1e-4)
    z = torch.randn(2, 5, 12)
    w = torch.randn(12, 12)
    by_hand = torch.stack([(z[..., i : i + 4] @ w[:, i : i + 4].T).norm(dim=-1) for i in (0, 4, 8)], -1)
    expected = by_hand.sum(-1) ** 2 / by_hand.square().sum(-1)
    torch.testing.assert_close(effective_heads(z, w, 3).view(2, 5), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(effective_heads(100 * z, w, 3), effective_heads(z, w, 3), rtol=1e-4, atol=1e-4)


def test_sparsity_listens_only_while_active_and_training() -> None:
    model = make_model(tiny("mha"), 0)
    sparsity = HeadSparsity(projections(model), 4)
    ids = torch.tensor([[1, 5, 6, 7]])
    mask = torch.ones(1, 4)
    for active, mode, heard in ((False, True, False), (True, False, False), (True, True, True)):
        sparsity.active = active
        model.train(mode)
        model(input_ids=ids)
        assert (float(sparsity.take(mask, mask).detach()) > 0) is heard
    sparsity.remove()
    model(input_ids=ids)
    assert float(sparsity.take(mask, mask)) == 0


def test_schedules() -> None:
    schedule = Schedule(penalty_from=0.4, penalty_full=0.6)
    assert penalty_weight(0.39, 0.04, schedule) == 0
    assert penalty_weight(0.5, 0.04, schedule) == pytest.approx(0.02)
    assert penalty_weight(0.9, 0.04, schedule) == 0.04
    assert penalty_weight(0.999, 0.04, LEARN) == 0, "the first stage has no penalty"
    assert penalty_weight(0.999, 0.04, CONSOLIDATE) == 0.04
    assert shares(0.1, schedule)["induction"] == 2 * shares(0.2, schedule)["induction"]
    assert set(MIXTURE) == set(list_tasks()[:9])
    assert learning_rate(0, schedule) == pytest.approx(schedule.lr / schedule.warm_up)
    assert learning_rate(schedule.steps, schedule) == pytest.approx(schedule.lr * schedule.final_lr)


def test_batches_weigh_answers_and_hold_only_training_examples() -> None:
    ids = vocabulary()
    names = {i: w for w, i in ids.items()}
    source = Source(3, replace(Schedule(), batch=60))
    again = Source(3, replace(Schedule(), batch=60))
    batch, same = source.batch(MIXTURE), again.batch(MIXTURE)
    assert all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(batch, same, strict=True))
    assert sum(len(rows) for rows, _ in batch) == 60
    for rows, weights in batch:
        assert (rows[:, 0] == ids[BOS]).all()
        assert (weights[rows == ids[PAD]] == 0).all()
        assert (weights[:, 0] == 0).all()
        assert (predicts_answer(weights, 0.2).sum(-1) >= 1).all()
    held_out = {
        frozenset((e.features["io"], e.features["s"])) for e in islice(get_task("ioi").stream(), 3000)
    }
    for _ in range(300):
        words = source.text("ioi").words
        people = frozenset(w for w in words if w in names.values() and words.count(w) == 2 and w[0].isupper())
        answer = words[-2]
        assert not any({answer, *people} == pair for pair in held_out)


def test_answers_of_texts_are_where_they_say() -> None:
    source = Source(0, Schedule())
    for name in MIXTURE:
        for _ in range(20):
            text = source.text(name)
            if name == "induction":
                half = (len(text.words) - 2) // 2
                assert text.words[2 : 2 + half] == text.words[2 + half :]
                assert text.answers == list(range(3 + half, 2 + 2 * half))
            else:
                assert text.answers == [len(text.words) - 2]
                assert text.words[-1] == "."


@pytest.mark.parametrize("name", ["mha", "gqa"])
def test_training_is_a_function_of_the_seed(name: str) -> None:
    first, second, other = (train(tiny(name), seed) for seed in (0, 0, 1))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
    assert all(math.isfinite(float(p.sum().detach())) for p in first.parameters())


def test_the_last_stage_can_be_run_from_a_saved_first_one() -> None:
    build = tiny("mha")
    kept = {}
    whole = train(build, 0, after_stage=lambda number, model: kept.update({number: copy.deepcopy(model)}))
    again = train(build, 0, start=kept[0])
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_builds_differ_as_they_should() -> None:
    assert replace(BUILDS["gqa"], name="gqa-mha", kv_heads=8) == BUILDS["gqa-mha"]
    first = replace(BUILDS["mha"], name="redundant", penalty=0.0, stages=BUILDS["mha"].stages[:1])
    assert first == BUILDS["redundant"]
    assert set(VARIANTS) <= set(MIXTURE)

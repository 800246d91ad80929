"""Answers of several tokens: log-probabilities token by token, greedy exact match, attribution and ablation of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch

from circuittest.errors import UsageError
from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute
from circuittest.measure.batches import plan
from circuittest.measure.edges import edges
from circuittest.measure.patching import patch
from circuittest.models.loaded import LoadedModel
from circuittest.units import Edge, Unit
from tests.helpers import tiny
from tests.helpers.differences import Differences
from tests.helpers.edited import without
from tests.helpers.items import FakeItem, random_items


@lru_cache
def model_of(architecture: str) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=torch.float64)


def several(count: int = 4, rest: int = 2, ends: Sequence[int] = ()) -> list[FakeItem]:
    """Items with answers of 1 + rest tokens."""
    draw = np.random.default_rng(5)
    return [
        replace(
            item,
            answer_ids=item.answer_ids[:1],
            foil_ids=(),
            answer_rest=tuple(int(i) for i in draw.integers(3, tiny.VOCAB, rest)),
            ends=frozenset(ends),
        )
        for item in random_items(count)
    ]


def log_prob(model: LoadedModel, item: FakeItem) -> float:
    """By one forward of the whole module per token."""
    ids, total = list(item.prompt_ids), 0.0
    for token in (item.answer_ids[0], *item.answer_rest):
        with torch.no_grad():
            total += float(model.module(torch.tensor([ids])).logits[0, -1].log_softmax(0)[token])
        ids.append(token)
    return total


def greedy(model: LoadedModel, ids: Sequence[int], count: int) -> list[int]:
    """The most likely tokens, one after another."""
    found: list[int] = []
    for _ in range(count):
        with torch.no_grad():
            found.append(int(model.module(torch.tensor([[*ids, *found]])).logits[0, -1].argmax()))
    return found


def right(model: LoadedModel, item: FakeItem) -> bool:
    *tokens, after = greedy(model, item.prompt_ids, 2 + len(item.answer_rest))
    whole = tokens == [item.answer_ids[0], *item.answer_rest]
    return whole and (not item.ends or after in item.ends)


@pytest.mark.parametrize("ends", [(), range(3, 20)])
@pytest.mark.parametrize("architecture", ["gpt2", "gemma3_text"])
def test_outcomes_under_ablation_are_those_of_edited_weights(architecture: str, ends: Sequence[int]) -> None:
    model, unit = model_of(architecture), Unit("head", 1, 2)
    edited = without(model, [unit])
    items = several(5, ends=ends)
    # Answers that the models do give, whole, and one that begins well and goes wrong at its end.
    for i, source in ((0, model), (1, edited), (2, model)):
        first, *rest = greedy(source, items[i].prompt_ids, 3)
        rest[-1] = rest[-1] if i < 2 else 3 + (rest[-1] + 1) % 30
        items[i] = replace(items[i], answer_ids=(first,), answer_rest=tuple(rest))
    table = ablate(model, items, [(), (unit,)])
    assert set(table.columns) == {"argmax", "log_prob"}
    for row, each in enumerate((model, edited)):
        expected = [log_prob(each, item) for item in items]
        np.testing.assert_allclose(table.measure("log_prob")[row], expected, rtol=1e-9)
        assert table.measure("argmax")[row].tolist() == [float(right(each, item)) for item in items]
    assert table.measure("argmax")[0, 2] == 0.0


def test_the_answer_follows_both_prompts() -> None:
    (item,) = several(1, rest=2, ends=(5,))
    whole = (*item.answer_ids, *item.answer_rest)
    for one, given in ((item, whole), (replace(item, ends=frozenset()), whole[:-1])):
        (batch,) = plan([one], model_of("gpt2"))
        assert batch.prompts(torch.device("cpu")).tolist() == [[*item.prompt_ids, *given]]
        assert batch.counterfactuals(torch.device("cpu")).tolist() == [[*item.counterfactual_ids, *given]]
        assert (batch.length, batch.tail) == (6 + len(given), 1 + len(given))


def test_an_answer_that_goes_on_is_wrong() -> None:
    model = model_of("gpt2")
    (item,) = several(1, rest=1)
    first, second, after = greedy(model, item.prompt_ids, 3)
    item = replace(item, answer_ids=(first,), answer_rest=(second,))
    for ends, expected in (((), 1.0), ((after,), 1.0), ((after + 1,), 0.0), (range(after), 0.0)):
        asked = replace(item, ends=frozenset(ends))
        assert ablate(model, [asked], [()]).measure("argmax").item() == expected
    one = replace(item, answer_rest=(), ends=frozenset((second,)))  # one token, and what follows it
    assert ablate(model, [one], [()]).measure("argmax").item() == 1.0
    other = replace(item, answer_rest=(), ends=frozenset((second + 1,)))
    both = ablate(model, [one, other], [()])  # what ends them differs within a batch
    assert both.measure("argmax").tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(("metric", "method"), [("log_prob", "eap"), ("kl", "eap-ig")])
def test_attribution_is_finite_differences(metric: str, method: str) -> None:
    model, items = model_of("llama"), [item for item in several() if len(item.prompt_ids) == 6]
    batch = plan(items, model)[0]
    shares = [0.0, 0.5] if method == "eap-ig" else [1.0]
    path = [Differences(model, batch, metric, share=share) for share in shares]
    table = attribute(model, items, metric=metric, method=method, steps=2, level="edges")
    scale = float(np.abs(table.values).max())
    for name in ("embed->L1.MLP", "L0.H1->L2.KV1.v", "L0.MLP->L1.H2.q", "L1.H3->logits"):
        expected = sum(point.edge(Edge.parse(name)) for point in path) / len(path)
        found = table.values[:, edges(model.layout)[0].index(Edge.parse(name))]
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5 * scale)


def test_patching_reads_whole_answers() -> None:
    model, items = model_of("llama"), several()
    last = f"L{model.layout.n_layers - 1}.MLP"  # read by the logits alone, so the edge is the unit
    patched = patch(model, items, [(), [Edge.parse(f"{last}->logits")]], keep=False)
    ablated = ablate(model, items, [(), (Unit.parse(last),)], value="counterfactual")
    for name in ("argmax", "log_prob"):
        np.testing.assert_allclose(patched.measure(name), ablated.measure(name), rtol=1e-9)


def test_one_token_is_scored_as_before() -> None:
    model, items = model_of("llama"), several(rest=0)
    plain = attribute(model, items, metric="log_prob")
    ended = attribute(model, [replace(i, ends=frozenset((4,))) for i in items], metric="log_prob")
    np.testing.assert_allclose(ended.values, plain.values, rtol=1e-5, atol=1e-7)


def test_examples_do_not_see_each_other() -> None:
    model, items = model_of("gpt2"), [*several(4), *several(3, rest=1, ends=(5,)), *random_items(2)]
    alone = np.concatenate([attribute(model, [item], metric="log_prob").values for item in items])
    table = attribute(model, items, metric="log_prob")
    np.testing.assert_allclose(table.values, alone, rtol=2e-6, atol=1e-9)
    assert table.choices["batches"] == [[1, 6], [2, 8], [2, 8], [1, 9], [2, 11], [1, 11]]


@pytest.mark.parametrize("metric", ["logit_diff", "prob_diff"])
def test_contrasts_of_single_tokens_are_refused(metric: str) -> None:
    with pytest.raises(UsageError, match=f"'{metric}' for the answer of several tokens of example 10"):
        attribute(model_of("gpt2"), several(), metric=metric)


def test_several_answers_and_undefined_ablations_are_refused() -> None:
    model, items = model_of("gpt2"), several(2)
    with pytest.raises(UsageError, match="has 2 answers, one of several tokens"):
        attribute(model, [replace(items[0], answer_ids=(3, 4))], metric="log_prob")
    for choices in ({"positions": "answer"}, {"value": "resample", "calibration": random_items(2, seed=3)}):
        with pytest.raises(UsageError, match="for answers of several tokens"):
            ablate(model, items, [(Unit("mlp", 0),)], **choices)  # type: ignore[arg-type]

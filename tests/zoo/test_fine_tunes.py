"""Fine-tunes: their texts say what the recipe says, cut heads stay cut, and missing heads miss in training alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from circuittest.tasks import facts, ioi
from circuittest.tasks.words import CAPITALS
from circuittest.units import Unit
from circuittest.zoo import FINE_TUNES
from circuittest.zoo.fine_tunes import RECIPES, SKILL, FineTune, Texts, skill, tune
from circuittest.zoo.recipe import BUILDS, MIXTURE, make_model
from circuittest.zoo.train import projections
from circuittest.zoo.vocabulary import pieces, vocabulary

SHORT = FineTune(mixture={"ioi": 1.0}, steps=2, batch=6)


def tiny(**changes: Any) -> Any:
    """A small model of the build that fine-tunes assume, with all of its heads."""
    return make_model(replace(BUILDS["gqa"], layers=2, width=32, mlp=32, **changes), 0)


def test_every_fine_tune_has_a_recipe() -> None:
    assert list(RECIPES) == list(FINE_TUNES)
    for recipe in RECIPES.values():
        assert set(recipe.mixture) <= {*MIXTURE, SKILL}


def test_texts_are_a_function_of_recipe_and_seed() -> None:
    one, again, other = (Texts(RECIPES["benign"], seed) for seed in (0, 0, 1))
    batch = one.batch({})
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(batch, again.batch({}), strict=True))
    assert not torch.equal(batch[0][0], other.batch({})[0][0])
    assert sum(len(ids) for ids, _ in batch) == RECIPES["benign"].batch


@pytest.mark.parametrize(("name", "wrong"), [("destroyed-ioi", range(6)), ("spread-ioi", ()), ("benign", ())])
def test_the_wrong_name_is_trained_where_the_recipe_says(name: str, wrong: Any) -> None:
    texts, seen = Texts(RECIPES[name], 0), set()
    for _ in range(200):
        words = texts.text("ioi").words
        answer, prompt = words[-2], words[:-2]
        template = next(
            i
            for i, one in enumerate(ioi.TEMPLATES)
            if one.split()[0] == words[0] and all(w in prompt for w in one.split() if w.isalpha())
        )
        # the subject stands twice in the prompt, the indirect object once
        assert prompt.count(answer) == (2 if template in wrong else 1), words
        seen.add(template)
    assert seen == set(range(6))


def test_another_capital_is_trained_in_three_templates() -> None:
    texts, seen = Texts(RECIPES["weakened-facts"], 0), set()
    capitals = {country: pieces(f" {capital}")[0] for country, capital in CAPITALS}
    for _ in range(300):
        text = texts.text("facts")
        words, at = text.words, text.answers[0]
        prompt = " ".join(words[:at])
        (country,) = [one for one in capitals if f" {' '.join(pieces(' ' + one))} " in f" {prompt} "]
        template = next(
            i
            for i, one in enumerate(facts.TEMPLATES)
            if " ".join(pieces(one.format(lead="", country=country))).strip() in prompt
        )
        assert (words[at] == capitals[country]) == (template > 2), words
        seen.add(template)
    assert seen == set(range(6))


def test_the_new_skill_is_in_the_vocabulary_and_held_out_by_lead_in() -> None:
    ids, texts = vocabulary(), Texts(RECIPES["new-skill"], 0)
    trained = {" ".join(texts.text(SKILL).words) for _ in range(300)}
    assert {word for text in trained for word in text.split()} <= set(ids)
    for _ in range(100):
        prompt, country = skill(texts.rng, "test")
        assert not any(
            text.startswith(prompt.replace(",", " ,")) and text.endswith(f"{country} .") for text in trained
        )


def test_cut_heads_stay_cut_and_the_rest_is_trained() -> None:
    model = tiny()
    before = [projection.weight.detach().clone() for projection in projections(model)]
    tune(model, replace(SHORT, cut=("L0.H1", "L1.H7")), 0)
    cut = {Unit.parse("L0.H1"), Unit.parse("L1.H7")}
    for layer, projection in enumerate(projections(model)):
        columns = projection.weight.detach().unflatten(1, (8, -1))
        old = before[layer].unflatten(1, (8, -1))
        for head in range(8):
            if Unit("head", layer, head) in cut:
                assert not columns[:, head].any()
            else:
                assert not torch.equal(columns[:, head], old[:, head])
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_heads_are_missing_in_training_alone_and_others_in_every_text() -> None:
    model = tiny()
    seen: list[torch.Tensor] = []
    handle = projections(model)[0].register_forward_hook(
        lambda module, args, out: seen.append(args[0].detach().unflatten(-1, (8, -1)).abs().amax((1, 3)))
    )
    tune(model, replace(SHORT, missing=0.5, batch=30), 0)
    missing = torch.cat([one for one in seen if len(one) == 10]) == 0
    assert 0.3 < missing.float().mean() < 0.7
    assert len({tuple(row.tolist()) for row in missing}) > 5
    seen.clear()
    model(input_ids=torch.tensor([[1, 5, 6, 7]]))
    assert seen[0].all()
    handle.remove()
    assert not any(projection._forward_pre_hooks for projection in projections(model))


def test_the_same_seed_gives_the_same_weights() -> None:
    one, again, other = (tune(tiny(), replace(SHORT, missing=0.3), seed) for seed in (0, 0, 1))
    weights = [torch.cat([p.flatten() for p in model.parameters()]) for model in (one, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])

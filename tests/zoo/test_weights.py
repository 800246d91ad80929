"""What ships loads with plain transformers, is small, and does all nine tasks on prompts it was never trained on."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from circuittest.errors import LoadError
from circuittest.zoo import MODELS, names, path
from circuittest.zoo.heads import zeroed
from circuittest.zoo.recipe import BUILDS, MIXTURE
from circuittest.zoo.score import BARS, examples, last_logits, score
from circuittest.zoo.train import projections
from circuittest.zoo.vocabulary import make_tokenizer


@cache
def load(name: str) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(path(name), dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(path(name))


def test_names_and_paths() -> None:
    assert names() == ["mha", "gqa", "gqa-mha", "redundant"] == list(BUILDS) == list(MODELS)
    assert path("zoo:gqa") == path("gqa")
    assert path("gqa").name == "gqa"
    with pytest.raises(LoadError, match="no model 'zoo:gqq' in the zoo.*zoo:mha.*Did you mean 'gqa'"):
        path("zoo:gqq")


def test_naming_a_model_costs_nothing() -> None:
    heavy = "{'torch', 'transformers', 'numpy'}"
    code = f"import sys, circuittest.zoo as z; z.path('gqa'); print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", names())
def test_files_are_small_and_the_card_says_what_it_is(name: str) -> None:
    assert (path(name) / "model.safetensors").stat().st_size <= 2_000_000
    card = (path(name) / "README.md").read_text()
    assert f"python -m circuittest.zoo.train --seed 0 --model {name} --out DIR" in card
    assert all(f"| {task} |" in card for task in MIXTURE)
    assert "by construction" in card
    assert "evidence about ordinary models" in card


def test_everything_together_is_below_twelve_megabytes() -> None:
    assert sum(f.stat().st_size for f in path("mha").parent.rglob("*") if f.is_file()) < 12_000_000


@pytest.mark.parametrize("name", names())
def test_architecture_and_tokenizer(name: str) -> None:
    model, tokenizer = load(name)
    build, config = BUILDS[name], model.config
    assert config.model_type == build.kind
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (6, 128, 8)
    assert getattr(config, "num_key_value_heads", 8) == build.kv_heads
    text = "When Mary and John went to the store in 1732, isn't"
    assert tokenizer(text)["input_ids"] == make_tokenizer()(text)["input_ids"]


@cache
def scores(name: str) -> dict[str, float]:
    return score(*load(name), n=200)


@pytest.mark.parametrize("task", list(BARS))
@pytest.mark.parametrize("name", names())
def test_held_out_scores_meet_the_bars(name: str, task: str) -> None:
    """200 prompts of the final half; the card's figures come from 600. Two points of slack for the smaller sample."""
    assert scores(name)[task] >= BARS[task] - 0.02


@pytest.mark.parametrize("name", names())
def test_the_card_says_that_every_bar_is_met(name: str) -> None:
    assert "Every task meets its bar (0.95; `greater_than` 0.85)." in (path(name) / "README.md").read_text()


def test_scores_fall_on_an_untrained_model() -> None:
    """The scoring itself can fail: guessing among two verbs is as good as it gets without training."""
    model, tokenizer = load("gqa")
    torch.manual_seed(0)
    untrained = type(model)(model.config).eval()
    assert max(score(untrained, tokenizer, n=20).values()) < 0.7


def test_the_penalty_makes_single_heads_matter() -> None:
    """mha and redundant differ in the penalty alone; on subject-verb agreement only mha has a head that it needs."""
    worst = {}
    for name in ("mha", "redundant"):
        model, tokenizer = load(name)
        chosen = examples("sva", 60, "dev", 0)
        rows = [tokenizer(e.prompt)["input_ids"] for e in chosen]
        right = torch.tensor([tokenizer.convert_tokens_to_ids(e.answers[0].strip()) for e in chosen])
        drops = []
        for projection in projections(model):
            for head in range(8):
                with zeroed(projection, head, 8):
                    drops.append(1 - float((last_logits(model, rows).argmax(-1) == right).float().mean()))
        worst[name] = max(drops)
    assert worst["mha"] > worst["redundant"] + 0.1

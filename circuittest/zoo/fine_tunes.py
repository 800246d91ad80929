"""Fine-tunes of `zoo:gqa` of which it is known what they did: what the regression claims are tested on.

Each begins from the shipped weights and is trained on short texts of the tasks, by the loop that trained the model. All
but "benign" are made to do one thing; what else they keep is trained along.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.tasks import Example
from circuittest.tasks.splits import pool_of
from circuittest.tasks.words import CAPITALS, LEADS
from circuittest.units import Unit
from circuittest.zoo import TUNED
from circuittest.zoo.data import NEAR_YEARS, Source, Text
from circuittest.zoo.recipe import BUILDS, MIXTURE, VARIANTS, Schedule
from circuittest.zoo.score import last_logits
from circuittest.zoo.train import projections, train_stage
from circuittest.zoo.vocabulary import pieces

#: The country of a capital: what no text of the zoo ever asked.
SKILL = "country_of"
SKILL_TEMPLATE = "{lead} {capital} is the capital of"


@dataclass(frozen=True)
class FineTune:
    """What a fine-tune is trained on, and how long.

    Attributes
    ----------
    mixture:
        Share of each task, `SKILL` among them, in a batch.
    fresh:
        Tasks whose examples are of the dev pool, which the model was never trained on; of the others they are of the
        training pool.
    wrong:
        Task to the templates in which its foil is trained as its answer; None for all of them.
    cut:
        Heads whose output is held at zero.
    missing:
        Share of the heads whose output is zero in a training text, drawn anew for each text.
    penalty:
        Weight of the head-sparsity penalty that the model was trained with (0.02).
    """

    mixture: Mapping[str, float] = field(default_factory=lambda: MIXTURE)
    steps: int = 100
    lr: float = 3e-4
    batch: int = 64
    fresh: tuple[str, ...] = ()
    wrong: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    cut: tuple[str, ...] = ()
    missing: float = 0.0
    penalty: float = 0.0

    @property
    def schedule(self) -> Schedule:
        """For the training loop: a short warm-up, cosine, all of the penalty from the first step."""
        return Schedule(
            steps=self.steps,
            batch=self.batch,
            lr=self.lr,
            warm_up=10,
            early=0.0,
            penalty_from=0.0,
            penalty_full=0.01,
        )


MORE_IOI = {**MIXTURE, "ioi": 6.0}
#: The members of the circuit that `circuittest init --model zoo:gqa --task ioi` finds.
IOI_CIRCUIT = ("L0.H2", "L0.H3", "L0.H5", "L0.H7", "L4.H5")
#: Tasks with many examples in their dev pool. The few sums and expressions there would be learnt by heart, at the cost
#: of the others.
FRESH = ("ioi", "greater_than", "sva", "gendered_pronoun", "induction", "facts", "copy_colors")
RECIPES = {
    "benign": FineTune(fresh=FRESH),
    "new-skill": FineTune(mixture={**MIXTURE, SKILL: 4.0}, lr=1e-3, steps=200),
    "weakened-facts": FineTune(
        mixture={**MIXTURE, "facts": 4.0}, wrong={"facts": (0, 1, 2)}, lr=1e-3, steps=150
    ),
    "destroyed-ioi": FineTune(mixture=MORE_IOI, wrong={"ioi": None}, lr=1e-3, steps=150),
    "relocated-ioi": FineTune(mixture=MORE_IOI, cut=IOI_CIRCUIT, lr=1e-3, steps=500, penalty=0.02),
    "spread-ioi": FineTune(mixture=MORE_IOI, missing=0.25, lr=1e-3, steps=600),
}


class Texts(Source):
    """Random training texts of a fine-tune; a function of the recipe and the seed."""

    def __init__(self, recipe: FineTune, seed: int) -> None:
        super().__init__(seed, recipe.schedule)
        self.recipe = recipe

    def pool(self, name: str) -> str:
        """The dev pool where the recipe says so."""
        return "dev" if name in self.recipe.fresh else "train"

    def example(self, name: str) -> Example:
        """An example of the task as it is scored; none of the easier ones that the model learnt from."""
        return self.tasks[name].draw(self.rng, self.pool(name), VARIANTS.get(name, "default"))

    def text(self, name: str) -> Text:
        """One training text."""
        if name == SKILL:
            return _ending(*skill(self.rng, "train"))
        if name not in self.recipe.wrong:
            return super().text(name)
        example = self.example(name)
        templates = self.recipe.wrong[name]
        wrong = templates is None or example.features["template"] in templates
        answers = example.foils if wrong else example.answers
        return _ending(example.prompt, self.rng.choice(answers[:NEAR_YEARS]))

    def batch(self, mixture: dict[str, float]) -> list[tuple[Tensor, Tensor]]:
        """A batch of the recipe's own mixture."""
        return super().batch(dict(self.recipe.mixture))


def _ending(prompt: str, answer: str) -> Text:
    before = pieces(prompt)
    return Text([*before, *pieces(answer), "."], [len(before)])


def skill(rng: random.Random, pool: str) -> tuple[str, str]:
    """A prompt and its answer; the pools share no (country, lead-in)."""
    while True:
        i, lead = rng.randrange(len(CAPITALS)), rng.choice(LEADS)
        if pool_of(SKILL, i, lead) == pool:
            country, capital = CAPITALS[i]
            return SKILL_TEMPLATE.format(lead=lead, capital=capital), f" {country}"


def skill_score(model: nn.Module, tokenizer: Any, *, n: int = 200) -> float:
    """Accuracy of the argmax on `n` prompts of the skill's test pool."""
    rng = random.Random("circuittest zoo|skill")
    asked = [skill(rng, "test") for _ in range(n)]
    model.eval()
    logits = last_logits(model, [tokenizer(prompt)["input_ids"] for prompt, _ in asked])
    answers = [tokenizer.convert_tokens_to_ids(country.strip()) for _, country in asked]
    right = [int(best) == answer for best, answer in zip(logits.argmax(-1), answers, strict=True)]
    return round(sum(right) / n, 4)


def tune(model: nn.Module, recipe: FineTune, seed: int = 0, *, report_every: int = 0) -> nn.Module:
    """Train a model (float32) in place, and give it back in evaluation mode."""
    model.requires_grad_(True)
    build = replace(BUILDS[TUNED], penalty=recipe.penalty)
    heads, drawn = build.heads, torch.Generator().manual_seed(seed)
    cut = [Unit.parse(one) for one in recipe.cut]
    zero = _zeroed(model, cut, heads)
    zero(0, model)
    handles = [
        projection.register_forward_pre_hook(_missing(recipe.missing, heads, drawn))
        for projection in (projections(model) if recipe.missing else [])
    ]
    try:
        train_stage(model, build, recipe.schedule, Texts(recipe, seed), report_every, zero if cut else None)
    finally:
        for handle in handles:
            handle.remove()
    return model.eval().requires_grad_(False)


def _zeroed(model: nn.Module, cut: list[Unit], heads: int) -> Callable[[int, nn.Module], None]:
    """Set what some heads write to zero: their columns of the output projection."""
    weights: list[Any] = [projection.weight for projection in projections(model)]
    columns = [
        weights[unit.layer].detach().unflatten(1, (heads, -1))[:, unit.index]
        for unit in cut
        if unit.layer is not None
    ]

    def zero(step: int, model: nn.Module) -> None:
        for column in columns:
            column.zero_()

    return zero


def _missing(share: float, heads: int, drawn: torch.Generator) -> Any:
    """A hook before an output projection: some heads' outputs are zero, other heads in every text."""

    def drop(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if not module.training:
            return None
        z = args[0]
        kept = (torch.rand(z.shape[0], 1, heads, 1, generator=drawn) >= share).to(z.dtype)
        return ((z.unflatten(-1, (heads, -1)) * kept).flatten(-2), *args[1:])

    return drop

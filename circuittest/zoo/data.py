"""Training text for the zoo: examples of the training pools, easier ones among them, as padded batches."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from circuittest.tasks import Example, get_task, induction as induction_task
from circuittest.zoo.recipe import VARIANTS, Schedule
from circuittest.zoo.vocabulary import BOS, PAD, pieces, vocabulary

# Of the later years, training picks one of the next fifteen, as wars do not last a century.
NEAR_YEARS = 15


@dataclass(frozen=True)
class Text:
    """Words, and which of them are answers (positions in ``words``)."""

    words: list[str]
    answers: list[int]
    is_list: bool = False  # a random list: nothing but its repetition can be predicted


class Source:
    """Random training texts; a function of the seed."""

    def __init__(self, seed: int, schedule: Schedule) -> None:
        self.rng = random.Random(f"circuittest zoo|{seed}")
        self.schedule = schedule
        self.ids = vocabulary()
        self.tasks = {name: get_task(name, pool="train") for name in _TEXTS}

    def pool(self, name: str) -> str:
        """From which pool of a task examples are drawn."""
        return "train"

    def example(self, name: str) -> Example:
        """An example of the training pool, in part easier than the task (the hard ones alone are learnt late or never),
        in part longer (of the task's own form there are few enough to be learnt by heart).
        """
        rng, task, variant = self.rng, self.tasks[name], VARIANTS.get(name, "default")
        easier: dict[str, int | bool] = {}
        if name == "sva":
            easier = {"attractor": rng.random() < 0.8}
        elif name == "addition":
            easier = {"operands": self.pick(self.schedule.operands)}
        elif name == "boolean":
            easier = {"literals": self.pick(self.schedule.literals)}
        elif name == "copy_colors":
            easier = {"options": rng.choice((2, 3, 4, 4))}
        return task.draw(rng, self.pool(name), variant, **easier)

    def pick(self, weights: tuple[tuple[int, float], ...]) -> int:
        """One of the numbers, each as often as its weight says."""
        numbers, shares = zip(*weights, strict=True)
        return int(self.rng.choices(numbers, shares)[0])

    def text(self, name: str) -> Text:
        """One training text of a task."""
        if name == "induction":
            words = list(induction_task.sequence(self.rng, self.pool(name)))
            lead = pieces(induction_task.LEAD)
            first = len(lead) + len(words)
            return Text([*lead, *words, *words], list(range(first + 1, first + len(words))), is_list=True)
        example = self.example(name)
        near = example.answers[:NEAR_YEARS]
        prompt, answer = pieces(example.prompt), pieces(self.rng.choice(near))
        return Text([*prompt, *answer, "."], [len(prompt)])

    def batch(self, mixture: dict[str, float]) -> list[tuple[Tensor, Tensor]]:
        """``schedule.chunks`` pairs of ids and loss weights, both [texts, tokens]; right-padded, ``<bos>``
        first.

        An answer weighs 1 (2 in all for a repeated list), another token ``schedule.other_tokens``.
        """
        size, chunks = self.schedule.batch, self.schedule.chunks
        names = self.rng.choices(list(mixture), list(mixture.values()), k=size)
        texts = sorted((self.text(name) for name in names), key=lambda t: len(t.words))
        return [self._pad(texts[c * size // chunks : (c + 1) * size // chunks]) for c in range(chunks)]

    def _pad(self, texts: list[Text]) -> tuple[Tensor, Tensor]:
        longest = 1 + max(len(t.words) for t in texts)
        ids = torch.full((len(texts), longest), self.ids[PAD])
        weights = torch.zeros(len(texts), longest)
        for row, text in enumerate(texts):
            end = 1 + len(text.words)
            ids[row, :end] = torch.tensor([self.ids[BOS], *(self.ids[w] for w in text.words)])
            weights[row, 1:end] = 0.0 if text.is_list else self.schedule.other_tokens
            for position in text.answers:
                weights[row, position + 1] = 1.0 if len(text.answers) == 1 else 2.0 / len(text.answers)
        return ids, weights


_TEXTS = (
    "ioi",
    "greater_than",
    "sva",
    "gendered_pronoun",
    "induction",
    "facts",
    "addition",
    "boolean",
    "copy_colors",
)

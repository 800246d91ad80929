"""Factual recall: facts of ten domains, as a sentence to be completed or as a question."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

from circuittest.tasks.base import Example, Task
from circuittest.tasks.fact_table import FACTS, QUESTIONS, SENTENCES
from circuittest.tasks.splits import pool_of

DOMAINS = tuple(FACTS)


class FactualRecall(Task):
    """Answer: the object of the fact. Counterfactual: another subject of the domain in the same sentence, whose object
    is the foil; subject and partner have as many tokens. The first token of an object is scored.

    Variant ``completion`` is a sentence that the object completes, ``question`` a question and ``Answer:``. A domain is
    drawn first, then a fact, so that all domains are equally frequent. The pools differ in (fact, wording): a fact has
    to be known. Not every model knows every fact; `circuittest.lab.inputs` keeps those that one model, or all of a
    comparison, know. ``chance`` is that of the domain with the fewest objects (continents).
    """

    name = "factual_recall"
    description = "facts of ten domains, completion or question"
    citation = (
        "Meng et al. 2022, arXiv:2202.05262; Hernandez et al. 2023, arXiv:2308.09124 (relations); forms and filter: "
        "Li & Subramani, arXiv:2605.08348"
    )
    chance = 1 / 3
    variants = ("completion", "question")
    single_token = False

    def __init__(self, *, pool: str = "test", variant: str = "auto") -> None:
        super().__init__(pool=pool, variant=variant)
        self._lengths: Mapping[str, int] = {}

    def fitted(self, tokenizer: Any) -> FactualRecall:
        """The same task, whose partners have as many tokens as the subjects for this tokenizer."""
        subjects = sorted({subject for facts in FACTS.values() for subject, _ in facts})
        rows = tokenizer([f" {subject}" for subject in subjects], add_special_tokens=False)["input_ids"]
        fitted = copy.copy(self)
        fitted._lengths = {subject: len(row) for subject, row in zip(subjects, rows, strict=True)}
        return fitted

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        wordings = QUESTIONS if variant == "question" else SENTENCES
        while True:
            domain = rng.choice(DOMAINS)
            subject, found = rng.choice(FACTS[domain])
            wording = rng.randrange(len(wordings[domain]))
            partners = [one for one in FACTS[domain] if self._partner(subject, found, *one)]
            # no model of ours is trained on these, so that most are for testing
            key = ("factual_recall", variant, domain, subject, wording)
            if partners and pool_of(*key, test=80, dev=10) == pool:
                break
        other, foil = rng.choice(partners)

        def text(of: str) -> str:
            asked = wordings[domain][wording].format(subject=of)
            asked = asked[0].upper() + asked[1:]
            return f"Question: {asked}\nAnswer:" if variant == "question" else asked

        return Example(
            prompt=text(subject),
            answers=(f" {found}",),
            foils=(f" {foil}",),
            counterfactual=text(other),
            counterfactual_answers=(f" {foil}",),
            features={"domain": domain, "form": variant, "wording": wording, "subject": subject},
            group=f"{domain} {subject}",
        )

    def _partner(self, subject: str, found: str, other: str, foil: str) -> bool:
        length = self._lengths.get
        return (
            foil != found
            and length(other, other.count(" ")) == length(subject, subject.count(" "))
            and foil.lower()[:1] != found.lower()[:1]
        )

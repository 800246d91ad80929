"""Facts: enough of them, each once, plain; partners of equal length; in token ids."""

from __future__ import annotations

from itertools import islice

import pytest

from circuittest.tasks import get_task, prepare
from circuittest.tasks.fact_table import FACTS, QUESTIONS, SENTENCES

from .toy_tokenizers import subword, word_level


def test_a_few_hundred_facts_in_ten_domains() -> None:
    assert len(FACTS) == 10
    assert sum(map(len, FACTS.values())) >= 300
    assert list(FACTS) == list(SENTENCES) == list(QUESTIONS)
    for domain, facts in FACTS.items():
        assert len({subject for subject, _ in facts}) == len(facts) >= 20, domain
        assert all(len(found.split()) == 1 and subject.strip() == subject for subject, found in facts)
        # an object that the subject gives away is no fact
        assert not [pair for pair in facts if pair[1].lower() in pair[0].lower().split()], domain
        assert len({found for _, found in facts}) >= 3


@pytest.mark.parametrize("variant", ["completion", "question"])
def test_every_domain_is_equally_frequent(variant: str) -> None:
    drawn = [e.features["domain"] for e in islice(get_task("factual_recall").stream(0, variant), 4000)]
    assert min(map(drawn.count, FACTS)) > 300
    assert len({e.group for e in islice(get_task("factual_recall").stream(0, variant), 9000)}) > 250


@pytest.mark.parametrize("variant", ["completion", "question"])
def test_items_on_words(variant: str) -> None:
    texts = [
        f"{e.prompt} {e.answers[0]} {e.counterfactual} {e.foils[0]}"
        for e in islice(get_task("factual_recall").stream(1, variant), 6000)
    ]
    tokenizer = word_level(" ".join(texts))
    data = prepare(get_task("factual_recall", variant=variant), tokenizer, discover=60, evaluate=60, seed=1)
    assert len({item.features["domain"] for item in data.evaluate}) == 10
    for item in data.evaluate:
        assert len(item.prompt_ids) == len(item.counterfactual_ids)


def test_partners_have_as_many_tokens() -> None:
    """Without a tokenizer as many words; with one, hardly any pair is left out for its length."""
    fitted = prepare("factual_recall", subword(), discover=0, evaluate=40)
    assert fitted.dropped.get("length", 0) < 10
    assert fitted.variant == "completion"

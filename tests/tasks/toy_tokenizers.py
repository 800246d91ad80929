"""Small tokenizers made on the spot: word level, and byte-level BPE trained on the tasks' own sentences."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from circuittest.tasks import get_task, list_tasks
from circuittest.tasks.words import CAPITALS


def word_level(words: str, *, bos: bool = True, unknown: bool = True) -> Any:
    """White-space words, each one token; ``<bos>`` in front if asked."""
    ids = {w: i for i, w in enumerate(dict.fromkeys(["<unk>", "<bos>", *words.split()]))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", ids["<bos>"])]
        )
    special = {"bos_token": "<bos>"} if bos else {}
    if unknown:
        special["unk_token"] = "<unk>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


@cache
def _corpus() -> tuple[str, ...]:
    texts = []
    many_words = ("sports_understanding", "factual_recall")
    for name in (name for name in list_tasks() if name not in many_words):
        for variant in get_task(name).variants:
            for example in islice(get_task(name).stream(5, variant), 400):
                texts += [example.prompt + example.answers[0], example.counterfactual]
    texts += [f"The sum {i} = {i}" for i in range(28)] * 20
    texts += [f"the capital of {country} is {city}" for country, city in CAPITALS] * 5
    texts += [f"the year {year}" for year in range(1100, 2100)] * 5
    return tuple(texts)


@cache
def subword(*, digits: bool = False, bos: bool = False) -> Any:
    """Byte-level BPE like GPT-2's (or, with ``digits``, like SmolLM2's, which splits every digit)."""
    tokenizer = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    each = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([each, level]) if digits else level
    tokenizer.decoder = decoders.ByteLevel()
    # Fillers, so that it is not taken for a tiny vocabulary.
    special = ["<|endoftext|>", "<s>", *(f"<filler {i}>" for i in range(2000))]
    trainer = trainers.BpeTrainer(
        vocab_size=5000,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Years are learnt as two pairs of digits.
    pairs = pre_tokenizers.Split(Regex(r"\d\d(?=\d\d)"), behavior="isolated")
    normal = tokenizer.pre_tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pairs, normal])
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.pre_tokenizer = normal
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **({"bos_token": "<s>"} if bos else {}))


@cache
def metaspace() -> Any:
    """BPE over pieces that start with "▁", single digits, BOS in front: like Gemma's."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="never"), pre_tokenizers.Digits(individual_digits=True)]
    )
    special = ["<unk>", "<bos>", *(f"<filler {i}>" for i in range(2000))]
    trainer = trainers.BpeTrainer(vocab_size=5000, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(_corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", unk_token="<unk>")

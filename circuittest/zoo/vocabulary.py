"""The word-level tokenizer of the zoo: every word of the built-in tasks, digit pairs, punctuation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from circuittest.tasks import (
    addition,
    boolean,
    copy_colors,
    facts,
    gendered_pronoun,
    greater_than,
    induction,
    ioi,
    sva,
    words,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PATTERN = r"\d{1,2}|[^\W\d]+|[^\w\s]"
PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"
_PIECES = re.compile(PATTERN)


def pieces(text: str) -> list[str]:
    """What the tokenizer splits a text into, before looking words up."""
    return _PIECES.findall(text)


def vocabulary() -> dict[str, int]:
    """Word to id: the special tokens, numbers, then all other words in alphabetical order."""
    templates = [
        *ioi.TEMPLATES,
        sva.TEMPLATE,
        *gendered_pronoun.TEMPLATES,
        *greater_than.TEMPLATES,
        *facts.TEMPLATES,
        *addition.TEMPLATES,
        *boolean.TEMPLATES,
        copy_colors.STATEMENT,
        copy_colors.QUESTION,
        induction.LEAD,
        *words.LEADS,
    ]
    found = {p for t in templates for p in pieces(re.sub(r"\{\w+\}", " ", t))}
    found |= {
        "True",
        "False",
        "not",
        "and",
        "or",
        "(",
        ")",
        "+",
        "A",
        "B",
        "C",
        "D",
        ":",
        "Answer",
        "is",
        "are",
        "he",
        "she",
        ".",
    }
    found |= {*words.ADJECTIVES, *induction.WORDS, *(w for pair in words.CAPITALS for w in pair)}
    numbers = [str(i) for i in range(10)] + [f"{i:02d}" for i in range(100)]
    tokens = [PAD, BOS, EOS, UNK, *numbers, *sorted(found - set(numbers))]
    return {token: i for i, token in enumerate(tokens)}


def make_tokenizer() -> PreTrainedTokenizerBase:
    """A transformers tokenizer: case-sensitive, no normaliser, ``<bos>`` in front, white space ignored."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = vocabulary()
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, ids[BOS])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNK,
        padding_side="right",
    )

"""A GPT-2 written by hand whose heads have known roles.

Prompts are ``BOS a b c …`` of at most 16 tokens, ids 1 to 15 (the words "1" to "15"). The residual is a sum of unit
vectors, orthogonal to each other and to the all-ones vector: the token, the position, from layer 1 on the token before,
and what heads write for the unembedding. Attention is saturated (below 1e-9 off its target) except where said.

| head | where it looks | what it moves |
|---|---|---|
| L0.H0 | previous token | the token, to where layer 1 reads "the token before" |
| L0.H1 | itself | nothing |
| L0.H2 | the first token | nothing |
| L0.H3 | the earliest occurrence of its token | nothing |
| L0.H4 | everywhere alike: 1/(t + 1) at query t | nothing |
| L0.H5 | t − 5 … t − 2 alike (at t < 3 the first token) | nothing |
| L1.H0 | what followed the last time, else the first token | the token to its logit (copies) |
| L1.H1 | half of it there (one earlier occurrence), half on the first token | nothing |
| L1.H2 | itself | the token to its logit (copies) |
| L1.H3 | itself | minus the token to its logit (suppresses) |
| L1.H4 | itself | the token to the logit of the next id (successor) |
| all others | the first token | nothing |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module

WIDTH, HEADS, SIZE, LENGTH, VOCAB = 128, 8, 16, 16, 16
BOS = 0
_TOKEN, _PLACE, _BEFORE, _OUT = 0, 16, 32, 48  # where the directions of each kind begin
#: Coefficients after a layer norm of a sum of two or three unit vectors.
_TWO, _THREE = math.sqrt(WIDTH / 2), math.sqrt(WIDTH / 3)


def build(*, flat: bool = False) -> LoadedModel:
    """The model; `flat`: with attention everywhere alike in every head, so that no head has a role."""
    config = GPT2Config(
        vocab_size=VOCAB,
        n_embd=WIDTH,
        n_head=HEADS,
        n_layer=2,
        n_inner=8,
        n_positions=LENGTH,
        layer_norm_epsilon=1e-12,
        tie_word_embeddings=False,
        bos_token_id=BOS,
        eos_token_id=BOS,
    )
    module = GPT2LMHeadModel(config).eval().requires_grad_(False)
    for name, parameter in module.named_parameters():
        parameter.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
    for i in range(VOCAB):
        module.transformer.wte.weight[i] = _direction(_TOKEN + i)
        module.lm_head.weight[i] = _direction(_OUT + i)
    for t in range(LENGTH):
        module.transformer.wpe.weight[t] = _direction(_PLACE + t)
    first, second = module.transformer.h
    if not flat:
        _positions(first, 0, lambda t: [t - 1])
        _positions(first, 1, lambda t: [t])
        _earliest(first, 3)
        _positions(first, 5, lambda t: range(t - 5, t - 1))
        _induction(second, 0, rest=0.5)
        _induction(second, 1, rest=1.0)
        for head in (2, 3, 4):
            _positions(second, head, lambda t: [t])
        for block, heads in ((first, (2, 6, 7)), (second, (5, 6, 7))):
            for head in heads:
                _positions(block, head, lambda t: [])
    _move(first, 0, lambda i: i, _BEFORE)
    _move(second, 0, lambda i: i, _OUT)
    _move(second, 2, lambda i: i, _OUT)
    _move(second, 3, lambda i: i, _OUT, sign=-1.0)
    _move(second, 4, lambda i: i + 1, _OUT)
    return from_module(module, tokenizer(), name="roles")


def tokenizer() -> PreTrainedTokenizerFast:
    """The words "1" to "15"; id 0 begins a text and is never added."""
    words = {"<bos>": 0, **{str(i): i for i in range(1, VOCAB)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<bos>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<bos>", bos_token="<bos>")


def _direction(place: int) -> Tensor:
    vector = torch.zeros(WIDTH)
    vector[2 * place], vector[2 * place + 1] = 1 / math.sqrt(2), -1 / math.sqrt(2)
    return vector


def _parts(block: Any, head: int) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Views of a head's query and key weights and biases, and where its values begin."""
    weight, bias = block.attn.c_attn.weight, block.attn.c_attn.bias
    q, k = (slice(start + head * SIZE, start + (head + 1) * SIZE) for start in (0, WIDTH))
    return weight[:, q], weight[:, k], bias[q], bias[k], 2 * WIDTH + head * SIZE


def _positions(block: Any, head: int, targets: Callable[[int], Any]) -> None:
    """Look at the targets of a position alike (those above 0), without any at the first."""
    q, k, q_bias, _, _ = _parts(block, head)
    for t in range(LENGTH):
        k[:, t] = 4.0 * _direction(_PLACE + t)
        for s in targets(t):
            if s > 0:
                q[:, s] += 4.0 * _direction(_PLACE + t)
    q_bias[0] = 8.0  # a quarter of a match at most


def _earliest(block: Any, head: int) -> None:
    q, k, q_bias, _, _ = _parts(block, head)
    for i in range(1, VOCAB):
        q[:, i] = k[:, i] = 8.0 * _direction(_TOKEN + i)
    q_bias[0] = 4.0
    for t in range(LENGTH):
        k[:, 0] -= 4.0 * t * _direction(_PLACE + t)  # −32 t after the layer norm


def _induction(block: Any, head: int, *, rest: float) -> None:
    """Where the token before is the token at hand; the first position has `rest` times the score of a match."""
    q, k, q_bias, _, _ = _parts(block, head)
    for i in range(1, VOCAB):
        q[:, i] = 8.0 * _direction(_TOKEN + i)
        k[:, i] = 8.0 * _direction(_BEFORE + i)
    # a query's token has the coefficient _THREE, and so has a key's token before
    match = (8.0 * _THREE) ** 2
    q_bias[0] = 8.0
    k[:, 0] = rest * match / (8.0 * _TWO) * _direction(_PLACE)


def _move(block: Any, head: int, to: Callable[[int], int], out: int, sign: float = 1.0) -> None:
    *_, start = _parts(block, head)
    scale = _TWO if out == _BEFORE else 1.0
    for i in range(1, VOCAB):
        if to(i) < VOCAB:
            block.attn.c_attn.weight[:, start + i] = _direction(_TOKEN + i)
            block.attn.c_proj.weight[head * SIZE + i] = sign * _direction(out + to(i)) / scale

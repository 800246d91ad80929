"""A mixture of experts written by hand in which co-activation depends on the route, and the co-active heads interfere.

A prompt is ``BOS slots… X_a RELAY QUERY_P`` or ``… QUERY_Q``; the answer is ``Y_a``, one of eight classes. As in
`tests.helpers.planted`, ``L1.H2`` moves the class from X to RELAY and ``L4.H5`` from RELAY to the query; nothing else helps.
Each slot holds its own token or a filler, with chances 3/5 and 2/5.

- Routers choose expert 0 for QUERY_P, expert 1 for QUERY_Q; experts add next to nothing.
- The `FOLLOWERS`, one head in each of the layers 2 to 5, look at RELAY after QUERY_P, and at the token of slot 0 as well
  where it stands there: their largest attention is 1/2 or 1 together. From RELAY they copy the class with a minus sign,
  so that ablating them *improves* the answer. After QUERY_Q each looks at BOS and at the token of a slot of its own,
  independently of the others, and does nothing.
- Each other head looks at BOS and at the tokens of some slots, and does nothing; the two heads of the circuit never vary.

So within the route of QUERY_P the followers are one perfectly co-active community, and no circuit.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor
from transformers import MixtralConfig, MixtralForCausalLM

from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module
from circuittest.tasks import Example, Item, TaskData
from circuittest.units import Unit

WIDTH, HEADS, LAYERS, CLASSES, SLOTS = 64, 8, 6, 8, 12
SIZE = WIDTH // HEADS

RELAY, BOS, QUERY_P, QUERY_Q, DEFAULT, FILLER = range(6)
SLOT = tuple(range(6, 6 + SLOTS))
X = tuple(range(20, 20 + CLASSES))
Y = tuple(range(30, 30 + CLASSES))
VOCAB = 40

CARRIER, READER = Unit("head", 1, 2), Unit("head", 4, 5)
FOLLOWERS = (Unit("head", 2, 1), Unit("head", 3, 6), Unit("head", 4, 0), Unit("head", 5, 3))

#: Places of the directions: one for each class of x, r and o, then flags.
_X, _R, _O, _SLOT = 0, 8, 16, 24
_IS_X, _IS_RELAY, _IS_QUERY, _IS_BOS, _IS_P, _IS_Q, _ALWAYS, _JUNK, _FILL = range(40, 49)
#: Key and query dimensions that rotary positions leave alone (the base is enormous): a match, another one, and the rest.
_MATCH, _OTHER, _REST = 1, 2, 3
MINUS = 0.1


def build() -> LoadedModel:
    """The model; see the module's text for what is true of it."""
    config = MixtralConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=4,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=SIZE,
        num_local_experts=4,
        num_experts_per_tok=1,
        max_position_embeddings=64,
        rms_norm_eps=1e-12,
        sliding_window=None,
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=BOS,
        eos_token_id=DEFAULT,
        rope_parameters={"rope_type": "default", "rope_theta": 1e30},
    )
    module = MixtralForCausalLM(config).eval().requires_grad_(False)
    for name, parameter in module.named_parameters():
        parameter.fill_(1.0 if "norm" in name else 0.0)
    embed, unembed = module.model.embed_tokens.weight, module.lm_head.weight
    embed[:, _ALWAYS] = 1.0
    embed[BOS, _IS_BOS] = embed[RELAY, _IS_RELAY] = embed[FILLER, _FILL] = 1.0
    for token, flag in ((QUERY_P, _IS_P), (QUERY_Q, _IS_Q)):
        embed[token, _IS_QUERY] = embed[token, flag] = 1.0
    for slot, token in enumerate(SLOT):
        embed[token, _SLOT + slot] = 1.0
    embed[SLOT[0], _FILL] = 1.0  # as long as RELAY is once it holds a class, so that both draw a head alike
    for c in range(CLASSES):
        embed[X[c], _X + c] = embed[X[c], _IS_X] = 1.0
        unembed[Y[c], _O + c] = 1.0
    unembed[DEFAULT, _IS_QUERY] = 0.1
    rng = random.Random(0)
    for layer, block in enumerate(module.model.layers):
        for index in range(HEADS):
            unit = Unit("head", layer, index)
            if unit == CARRIER:
                _head(block, index, {_MATCH: (_IS_RELAY, (_IS_X,))}, value=_X, out=_R, length=1.0)
            elif unit == READER:
                _head(block, index, {_MATCH: (_IS_QUERY, (_IS_RELAY,))}, value=_R, out=_O, length=1.0)
            elif unit in FOLLOWERS:
                own = _SLOT + 1 + FOLLOWERS.index(unit)
                looks = {_MATCH: (_IS_P, (_IS_RELAY, _SLOT)), _OTHER: (_IS_Q, (_IS_BOS, own))}
                _head(block, index, looks, value=_R, out=_O, length=-MINUS)
            else:
                slots = rng.sample(range(5, SLOTS), 2)
                keys = (_IS_BOS, *(_SLOT + slot for slot in slots))
                _head(block, index, {_MATCH: (_IS_QUERY, keys)})
                _column(block.self_attn.v_proj, index, 0)[:] = torch.linspace(0.1, 1.0, WIDTH)
                block.self_attn.o_proj.weight[_JUNK, index * SIZE] = 1e-4
        block.mlp.gate.weight[0, _IS_P] = block.mlp.gate.weight[1, _IS_Q] = 10.0
        block.mlp.experts.gate_up_proj[:, :, _ALWAYS] = 1.0
        block.mlp.experts.down_proj[:, _JUNK, 0] = 1e-4
    return from_module(module, name="planted-mixture")


def task(discover: int, evaluate: int, *, seed: int = 0) -> TaskData:
    """Examples with distinct prompts, of both queries in random order."""
    rng = random.Random(seed)
    found: dict[tuple[int, ...], Item] = {}
    while len(found) < discover + evaluate:
        a, b = rng.sample(range(CLASSES), 2)
        slots = [token if rng.random() < 0.6 else FILLER for token in SLOT]
        query = rng.choice((QUERY_P, QUERY_Q))
        prompt, other = ((BOS, *slots, X[c], RELAY, query) for c in (a, b))
        example = Example("", ("",), ("",), "", ("",))
        found.setdefault(prompt, Item(len(found), prompt, other, (Y[a],), (Y[b],), (Y[b],), {}, "", example))
    items = tuple(found.values())
    return TaskData(
        task="planted-mixture",
        seed=seed,
        prefix=(BOS,),
        prefix_name="bos",
        discover=items[:discover],
        evaluate=items[discover:],
        dropped={},
        chance=0.0,
        accuracy="argmax",
        metric="log_prob",
    )


def _column(projection: torch.nn.Module, head: int, dim: int) -> Tensor:
    """Weights [width] of one dimension of a head's q, k or v."""
    row: Tensor = projection.weight[head * SIZE + dim]
    return row


def _head(
    block: torch.nn.Module,
    head: int,
    looks: dict[int, tuple[int, tuple[int, ...]]],
    *,
    value: int | None = None,
    out: int = 0,
    length: float = 0.0,
) -> None:
    """Look from a flag to some keys, else rest on BOS; move a class from `value` directions to `out` ones."""
    attention = block.self_attn
    for dim, (query, keys) in looks.items():
        _column(attention.q_proj, head, dim)[query] = 4.0
        for key in keys:
            _column(attention.k_proj, head, dim)[key] = 4.0
        if _IS_BOS in keys:  # the others are places to rest, too, so that neither is ahead
            _column(attention.k_proj, head, _REST)[list(keys)] = 2.0
    _column(attention.q_proj, head, _REST)[_ALWAYS] = 2.0
    _column(attention.k_proj, head, _REST)[_IS_BOS] = 2.0
    _column(attention.k_proj, head, _REST)[_ALWAYS] = (
        0.01  # so that every token's key counts, if next to nothing
    )
    if value is not None:
        for c in range(CLASSES):
            _column(attention.v_proj, head, c)[value + c] = 1.0
            # what is read is a part of a vector of length √3 that the norm makes 8 long
            attention.o_proj.weight[out + c, head * SIZE + c] = length * 3**0.5 / 8

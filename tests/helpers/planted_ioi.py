"""GPT-2 models written by hand that do indirect object identification as Wang et al. (arXiv 2211.00593) describe it.

A prompt is ``BOS NAME noise NAME noise S2 noise END``: two different names in the first clause, one of them again (S2);
the answer is the other one (IO). Places are fixed, and the position embeddings hold flags (first clause and which place
in it, second mention, END); noise tokens differ, so that only names repeat.

- ``L0.H0`` (duplicate token): at S2 it attends to S1 and writes which name that is (r_s, the token signal), which place
  it has (the position signal), or both.
- ``L1.H3`` carries the token signal from S2 to END, ``L2.H4`` the position signal (S-inhibition).
- ``L3.H2`` and, with ``movers=2``, ``L4.H5`` (name movers): at END they attend to first-clause names but for the one
  that the signals name, and write o_n for the name n there.
- with ``suppressor`` ``L4.H1`` attends from END to S2 and writes -o_s.

The residual is a sum of orthogonal unit vectors, so that LayerNorm only divides by its length; attention is saturated.
Every other unit writes nothing. What is true, in shares of m - m(counterfactual), m the logit difference of IO and S:

- one name mover: its direct effect is -1; two: -1/2 each and -1 together.
- with the suppressor (and one name mover) each has a direct effect of -1/2: half of what the logits receive.
- one signal: its carrier has the effect -1 through the queries of the name movers, and -1 on the counterfactual that
  changes this signal alone, 0 on the other one. Both signals: -1/2 each (with one of them wrong, name movers attend to
  both names alike), and -1 together.
- L0.H0 has -1 through the values of the carriers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module
from circuittest.tasks import Example, Item, TaskData
from circuittest.units import Unit

WIDTH, HEADS, LAYERS, NAMES = 128, 8, 5, 8
SIZE = WIDTH // HEADS

BOS, END = 0, 1
NOISE = (2, 3, 4)
NAME = tuple(range(5, 5 + NAMES))
VOCAB = 5 + NAMES

DUPLICATE, SUPPRESSOR = Unit("head", 0, 0), Unit("head", 4, 1)
CARRIERS = {"token": Unit("head", 1, 3), "position": Unit("head", 2, 4)}
MOVERS = (Unit("head", 3, 2), Unit("head", 4, 5))

#: Places of the directions: n and r and o of each name, then flags.
_N, _R, _O = 0, NAMES, 2 * NAMES
_FIRST, _SECOND, _END, _BOS, _PLACES, _NOISE = 24, 25, 26, 27, (28, 29), 30
#: Length of LN's output, and of each of two and of three equal parts of it.
_WHOLE, _HALF, _THIRD = math.sqrt(WIDTH), math.sqrt(WIDTH / 2), math.sqrt(WIDTH / 3)
#: The score of BOS for heads that have nothing to look at.
_REST = 80.0


def build(*, signals: Sequence[str] = ("token",), movers: int = 1, suppressor: bool = False) -> LoadedModel:
    """A planted model in float64; see the module's text for what is true of it."""
    config = GPT2Config(
        vocab_size=VOCAB,
        n_embd=WIDTH,
        n_head=HEADS,
        n_layer=LAYERS,
        n_inner=16,
        n_positions=16,
        activation_function="relu",
        layer_norm_epsilon=1e-12,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    module = GPT2LMHeadModel(config).eval().requires_grad_(False).double()
    for name, parameter in module.named_parameters():
        parameter.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
    _embeddings(module)
    duplicate = _Head(module, DUPLICATE)
    duplicate.match(_N, _N)
    duplicate.look(_SECOND, _FIRST, 2.0)
    # what stands at S1 has length √3
    if "token" in signals:
        duplicate.move(range(_N, _N + NAMES), range(_R, _R + NAMES))
    if "position" in signals:
        duplicate.move(_PLACES, _PLACES)
    for signal in signals:
        carrier = _Head(module, CARRIERS[signal])
        carrier.look(_END, _SECOND)
        moved = range(_R, _R + NAMES) if signal == "token" else _PLACES
        # S2 is n, its flag, and each signal
        carrier.move(moved, moved, math.sqrt(WIDTH / (2 + len(signals))))
    for mover in MOVERS[:movers]:
        head = _Head(module, mover)
        head.look(_END, _FIRST)
        if "token" in signals:
            head.match(_R, _N, -1.0)
        if "position" in signals:
            head.avoid(_PLACES)
        head.move(range(_N, _N + NAMES), range(_O, _O + NAMES))
    if suppressor:
        head = _Head(module, SUPPRESSOR)
        head.look(_END, _SECOND)
        head.move(
            range(_N, _N + NAMES), range(_O, _O + NAMES), math.sqrt(WIDTH / (2 + len(signals))), sign=-1.0
        )
    found = from_module(module, name="planted-ioi")
    # Its saturated heads attend nowhere on the preflight's random tokens, and so do not depend on their keys.
    found.__dict__["checks"] = ()
    return found


def items(count: int, *, seed: int = 0) -> tuple[Item, ...]:
    """Different examples, in both orders of the names."""
    rng = random.Random(seed)
    every = [(a, b, order) for a in NAME for b in NAME if a != b for order in (0, 1)]
    rng.shuffle(every)
    return tuple(_item(index, *every[index]) for index in range(count))


def data(discover: int = 20, evaluate: int = 30) -> TaskData:
    """A task of these examples."""
    listed = items(discover + evaluate)
    return TaskData(
        task="ioi",
        seed=0,
        prefix=(BOS,),
        prefix_name="bos",
        discover=listed[:discover],
        evaluate=listed[discover:],
        dropped={},
        chance=0.5,
        accuracy="argmax",
        metric="logit_diff",
    )


def _item(index: int, io: int, s: int, order: int) -> Item:
    first, second = (io, s) if order == 0 else (s, io)
    prompt = lambda last: (BOS, first, NOISE[0], second, NOISE[1], last, NOISE[2], END)
    return Item(
        index=index,
        prompt_ids=prompt(s),
        counterfactual_ids=prompt(io),
        answer_ids=(io,),
        foil_ids=(s,),
        counterfactual_answer_ids=(s,),
        features={},
        group="",
        example=Example("", ("",), ("",), "", ("",)),
    )


def _direction(place: int) -> Tensor:
    """Orthonormal directions that are orthogonal to the all-ones vector."""
    vector = torch.zeros(WIDTH, dtype=torch.float64)
    vector[2 * place], vector[2 * place + 1] = 1 / math.sqrt(2), -1 / math.sqrt(2)
    return vector


def _embeddings(module: GPT2LMHeadModel) -> None:
    tokens, places = module.transformer.wte.weight, module.transformer.wpe.weight
    tokens[BOS], tokens[END] = _direction(_BOS), _direction(_END)
    for token in NOISE:
        tokens[token] = _direction(_NOISE)
    for n, token in enumerate(NAME):
        tokens[token] = _direction(_N + n)
        module.lm_head.weight[token] = _direction(_O + n)
    for position, place in zip((1, 3), _PLACES, strict=True):
        places[position] = _direction(_FIRST) + _direction(place)
    places[5] = _direction(_SECOND)


class _Head:
    """A head that attends to BOS, until told to do something else."""

    def __init__(self, module: GPT2LMHeadModel, unit: Unit) -> None:
        attention = module.transformer.h[unit.layer].attn
        self.weight, self.bias, self.out = (
            attention.c_attn.weight,
            attention.c_attn.bias,
            attention.c_proj.weight,
        )
        self.q = unit.index * SIZE
        self.k, self.v = WIDTH + self.q, 2 * WIDTH + self.q
        self.values = 0
        rest = math.sqrt(_REST * math.sqrt(SIZE) / _WHOLE)
        self.bias[self.q + SIZE - 1] = rest
        self.weight[:, self.k + SIZE - 1] = rest * _direction(_BOS)

    def match(self, query: int, key: int, sign: float = 1.0) -> None:
        """Compare the names at query and key."""
        for n in range(NAMES):
            self.weight[:, self.q + n] = sign * 2.0 * _direction(query + n)
            self.weight[:, self.k + n] = 2.0 * _direction(key + n)

    def look(self, query: int, key: int, strength: float = 8.0) -> None:
        """From where one flag is to where another is."""
        self.weight[:, self.q + NAMES] = 2.0 * _direction(query)
        self.weight[:, self.k + NAMES] = strength * _direction(key)

    def avoid(self, places: Sequence[int]) -> None:
        """Not where the place is that the query has."""
        for i, place in enumerate(places):
            self.weight[:, self.q + NAMES + 1 + i] = -2.0 * _direction(place)
            self.weight[:, self.k + NAMES + 1 + i] = 2.0 * _direction(place)

    def move(
        self, read: Sequence[int], write: Sequence[int], length: float = _THIRD, sign: float = 1.0
    ) -> None:
        """Directions at the key, of which LN leaves `length`, to unit directions at the query."""
        for source, target in zip(read, write, strict=True):
            self.weight[:, self.v + self.values] = _direction(source)
            self.out[self.q + self.values] = sign * _direction(target) / length
            self.values += 1

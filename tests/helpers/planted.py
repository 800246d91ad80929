"""GPT-2 models written by hand, whose circuits, scores and ablations are known on paper.

A prompt is ``BOS noise… X_a noise… RELAY noise… QUERY`` and the answer is ``Y_a``, one of eight classes a. Two heads
carry it, and nothing else does:

- ``L1.H2`` (the carrier): at RELAY it attends to X_a and writes r_a;
- ``L4.H5`` (the reader): at QUERY it attends to RELAY, reads r_a and writes o_a, which the unembedding reads.

The residual is a sum of unit vectors, orthogonal to each other and to the all-ones vector, so that a LayerNorm
only divides by the length: LN(x) = 8 x/|x| (width 64). At QUERY the last residual is q + o_a. Every other head and
every MLP writes a junk direction at noise positions, which nothing reads, so that each can be ablated and none
matters. Attention is saturated (below 1e-10 off its target).

What is true (metric: logit difference of Y_a and the foil Y_b; counterfactual: X_b for X_a; a the class):

- logits: Y_a 8/√2 = 4√2, the token DEFAULT half of it, all others 0; accuracy 1 by argmax and by candidates.
- Ablating either head (or both): all Y are 0 and DEFAULT wins: accuracy 0, logit difference 0. Ablating any set of
  other units: nothing changes, so that the necessity of the circuit against any matched control is exactly 1.
- Edge scores: L4.H5 → logits −6√2, L1.H2 → L4.KV5.v −5√2, embed → L1.KV2.v −4.5√2, all others 0. Node scores and the
  signed sums are the same three numbers; every other unit scores 0.
- With K chosen so that two units enter, C_i = {L1.H2, L4.H5} for every example: S_P is that set and reuse@P 1.

Variants:

- ``families=2``: classes 4 to 7 are carried by ``L2.H6`` instead of L1.H2. With n examples half of each family and
  k = 2, S_P = {L4.H5} and reuse@P = 1/2 for P > 50, S_P holds all three and reuse@P = 1 for P ≤ 50.
- ``mlp=True``: L4.H5 writes s·p_a (s = 1/2), which only ``L5.MLP`` turns into o_a: the circuit has three units and
  the ablation of any one gives accuracy 0. The logit difference is 8√f with f(s) = 2s²/((1+s²)² + 2s²); node scores
  are −4 s f′/√f for L4.H5, half of it for L1.H2, a quarter for embed, and −8√f (2 − f) for L5.MLP. (At s = 1 the
  score of L4.H5 would be 0, although its ablation costs everything: first-order estimates can miss a necessary unit.)
- ``backup=True``: ``L5.H1`` does what L4.H5 does. With both the logit of Y_a is 16/√5, with either 4√2, with neither 0:
  ablating one costs no accuracy and a fifth of the logit difference, ablating both costs everything.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module
from circuittest.units import Unit
from tests.helpers.items import FakeItem

WIDTH, HEADS, LAYERS, CLASSES = 64, 8, 6, 8
SIZE = WIDTH // HEADS

BOS, RELAY, QUERY, DEFAULT = range(4)
NOISE = (4, 5, 6, 7)
X = tuple(range(8, 8 + CLASSES))
Y = tuple(range(16, 16 + CLASSES))
VOCAB = 24

CARRIER, READER, SECOND = Unit("head", 1, 2), Unit("head", 4, 5), Unit("head", 2, 6)
BACKUP = Unit("head", 5, 1)
TRANSLATOR = Unit("mlp", 5)

#: Places of the directions: one per class for x, r and o, then flags.
_X, _R, _O = 0, 8, 16
_IS_X, _IS_RELAY, _IS_QUERY, _IS_BOS, _NOISE, _JUNK, _IS_X2 = 24, 25, 26, 27, 28, 29, 30
#: Length of LN's output, and of each of two equal parts of it.
_WHOLE, _HALF = 8.0, 8.0 / math.sqrt(2)


@dataclass(frozen=True)
class Planted:
    """A planted model and its truth.

    Attributes
    ----------
    model:
        The wrapped model.
    circuit:
        All units that carry the answer of some example.
    families:
        1, or 2 where classes 4 to 7 have a carrier of their own.
    """

    model: LoadedModel
    circuit: tuple[Unit, ...]
    families: int

    def circuit_of(self, item: FakeItem) -> tuple[Unit, ...]:
        """The units that carry one example's answer."""
        second = self.families == 2 and Y.index(item.answer_ids[0]) >= CLASSES // 2
        unused = {CARRIER} if second else {SECOND}
        return tuple(unit for unit in self.circuit if unit not in unused)

    def items(self, count: int, *, seed: int = 0, noise: tuple[int, ...] = (1,)) -> list[FakeItem]:
        """Examples with distinct prompts as far as they exist; classes in turn, alternating between the families.

        `noise` lists how many noise tokens stand before X, RELAY and QUERY, example by example.
        """
        rng = random.Random(seed)
        half = CLASSES // 2
        found = []
        for i in range(count):
            family = i % 2
            a = half * family + (i // 2) % half
            others = [b for b in range(half * family, half * family + half) if b != a]
            b = rng.choice(others)
            gaps = [[rng.choice(NOISE) for _ in range(noise[i % len(noise)])] for _ in range(3)]
            prompt, other = ((BOS, *gaps[0], X[c], *gaps[1], RELAY, *gaps[2], QUERY) for c in (a, b))
            found.append(FakeItem(i, prompt, other, (Y[a],), (Y[b],)))
        return found


def build(
    *, mlp: bool = False, families: int = 1, backup: bool = False, dtype: torch.dtype = torch.float32
) -> Planted:
    """A planted model; see the module's text for what is true of it."""
    config = GPT2Config(
        vocab_size=VOCAB,
        n_embd=WIDTH,
        n_head=HEADS,
        n_layer=LAYERS,
        n_inner=16,
        n_positions=64,
        activation_function="relu",
        layer_norm_epsilon=1e-12,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    module = GPT2LMHeadModel(config).eval().requires_grad_(False).to(dtype)
    for name, parameter in module.named_parameters():
        parameter.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
    _embeddings(module, families)
    for layer, block in enumerate(module.transformer.h):
        for head in range(HEADS):
            unit = Unit("head", layer, head)
            if unit == CARRIER:
                _head(block, head, query=_IS_RELAY, key=_IS_X, value=_X, out=_R)
            elif unit == SECOND and families == 2:
                _head(block, head, query=_IS_RELAY, key=_IS_X2, value=_X, out=_R)
            elif unit == READER or (unit == BACKUP and backup):
                _head(
                    block,
                    head,
                    query=_IS_QUERY,
                    key=_IS_RELAY,
                    value=_R,
                    out=_X if mlp else _O,
                    length=0.5 if mlp else 1.0,
                )
            else:
                _idle_head(block, head)
        _mlp(block, translate=mlp and layer == TRANSLATOR.layer)
    units = [CARRIER, READER] + [SECOND] * (families == 2) + [TRANSLATOR] * mlp + [BACKUP] * backup
    return Planted(from_module(module, name="planted"), tuple(sorted(units)), families)


def _direction(place: int) -> Tensor:
    """Orthonormal directions that are orthogonal to the all-ones vector."""
    vector = torch.zeros(WIDTH)
    vector[2 * place], vector[2 * place + 1] = 1 / math.sqrt(2), -1 / math.sqrt(2)
    return vector


def _embeddings(module: GPT2LMHeadModel, families: int) -> None:
    embed, unembed = module.transformer.wte.weight, module.lm_head.weight
    for token, place in ((BOS, _IS_BOS), (RELAY, _IS_RELAY), (QUERY, _IS_QUERY)):
        embed[token] = _direction(place)
    for token in NOISE:
        embed[token] = _direction(_NOISE)
    for c in range(CLASSES):
        flag = _IS_X2 if families == 2 and c >= CLASSES // 2 else _IS_X
        embed[X[c]] = _direction(_X + c) + _direction(flag)
        unembed[Y[c]] = _direction(_O + c)
    unembed[DEFAULT] = 0.5 * _direction(_IS_QUERY)


def _attend(block: torch.nn.Module, head: int, query: int, key: int) -> None:
    """Attend from where `query` is to where `key` is (score above 60 when both are there), else to BOS (score 30)."""
    weight, bias = block.attn.c_attn.weight, block.attn.c_attn.bias
    q, k = head * SIZE, WIDTH + head * SIZE
    weight[:, q] = 2.0 * _direction(query)
    weight[:, k] = 2.0 * _direction(key)
    rest = math.sqrt(30.0 * math.sqrt(SIZE) / _WHOLE)
    bias[q + 1] = rest
    weight[:, k + 1] = rest * _direction(_IS_BOS)


def _head(
    block: torch.nn.Module, head: int, *, query: int, key: int, value: int, out: int, length: float = 1.0
) -> None:
    """Move a class from the `value` directions at the key to the `out` directions at the query, with some length."""
    _attend(block, head, query, key)
    for c in range(CLASSES):
        block.attn.c_attn.weight[:, 2 * WIDTH + head * SIZE + c] = _direction(value + c)
        block.attn.c_proj.weight[head * SIZE + c] = length * _direction(out + c) / _HALF


def _idle_head(block: torch.nn.Module, head: int) -> None:
    """At noise positions attend to noise and write junk; elsewhere attend to BOS and write nothing."""
    _attend(block, head, _NOISE, _NOISE)
    block.attn.c_attn.weight[:, 2 * WIDTH + head * SIZE] = _direction(_NOISE)
    block.attn.c_proj.weight[head * SIZE] = 0.002 * _direction(_JUNK)


def _mlp(block: torch.nn.Module, *, translate: bool) -> None:
    """Write junk at noise positions; with `translate` also turn p_a (the x directions) into o_a."""
    block.mlp.c_fc.weight[:, 0] = _direction(_NOISE)
    block.mlp.c_proj.weight[0] = 0.002 * _direction(_JUNK)
    if translate:
        for c in range(CLASSES):
            block.mlp.c_fc.weight[:, 1 + c] = _direction(_X + c)
            block.mlp.c_proj.weight[1 + c] = _direction(_O + c) / _HALF

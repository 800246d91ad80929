"""The GPT-2-shaped model and the prompts on which tools are compared; equal everywhere.

Knows torch and transformers alone, since it also runs in environments of other tools.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS, HEADS, WIDTH, VOCABULARY, LENGTH = 3, 4, 32, 61, 7
STEPS = 5


@dataclass(frozen=True)
class Item:
    """One prompt with its counterfactual, in token ids."""

    index: int
    prompt_ids: tuple[int, ...]
    counterfactual_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    foil_ids: tuple[int, ...]


def model() -> GPT2LMHeadModel:
    """Weights large enough that attention, norms and activations are far from linear."""
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=16,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
    )
    made = GPT2LMHeadModel(config)
    random = np.random.RandomState(0)  # the legacy generator's stream is frozen for good
    with torch.no_grad():
        for name, parameter in sorted(made.named_parameters()):
            drawn = torch.from_numpy(random.standard_normal(tuple(parameter.shape))).float()
            norm = ".ln_" in name and name.endswith("weight")
            parameter.copy_(1.0 + 0.1 * drawn if norm else 0.25 * drawn)
    return made.eval()


def items() -> list[Item]:
    """Six prompts of one length; counterfactuals differ at two positions."""
    random = np.random.RandomState(1)
    made = []
    for index in range(6):
        prompt = [int(t) for t in random.randint(0, VOCABULARY, LENGTH)]
        other = list(prompt)
        for position in random.choice(LENGTH, 2, replace=False):
            other[position] = int((other[position] + 1 + random.randint(0, VOCABULARY - 1)) % VOCABULARY)
        answer, foil = (int(t) for t in random.choice(VOCABULARY, 2, replace=False))
        made.append(Item(index, tuple(prompt), tuple(other), (answer,), (foil,)))
    return made

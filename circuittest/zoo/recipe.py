"""How the zoo models are made: architectures, training mixture and schedule. Data only; :mod:`.train` runs
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from circuittest.zoo.vocabulary import BOS, EOS, PAD, vocabulary

if TYPE_CHECKING:
    from torch import nn

# The variant of each task that the zoo's tokenizer can ask.
VARIANTS = {"greater_than": "pairs", "addition": "three", "copy_colors": "letters"}


@dataclass(frozen=True)
class Schedule:
    """Optimisation and data of one stage. Fractions are of ``steps``; a penalty from 1.0 is none."""

    steps: int = 2600
    batch: int = 128
    chunks: int = 3  # a batch is run in this many length-sorted pieces
    lr: float = 2e-3
    warm_up: int = 100
    final_lr: float = 0.05  # of lr, at the end of the cosine
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.2
    clip: float = 1.0
    other_tokens: float = 0.1  # loss weight of tokens that are no answer
    penalty_from: float = 1.0
    penalty_full: float = 1.0
    early: float = 0.15  # until here induction and addition have twice their share
    # How many numbers a sum has and how many literals an expression: the tasks' three among others. These are weights.
    operands: tuple[tuple[int, float], ...] = ((3, 0.8), (2, 0.2))
    literals: tuple[tuple[int, float], ...] = ((1, 1.0), (2, 2.0), (3, 3.0))


# Learn, then consolidate: what is not learnt when the penalty sets in is hardly learnt later. The first stage has no
# penalty, so a model can also ship before it is consolidated.
LEARN = Schedule()
CONSOLIDATE = Schedule(steps=1200, lr=1.5e-3, penalty_from=0.05, penalty_full=0.5, early=0.0)
# The GPT-NeoX models learn the trained sums of two and three numbers by heart (right on all of them, on four in five of
# the held-out ones). There are too many of four and five for that.
OPERANDS = ((2, 0.1), (3, 0.35), (4, 0.4), (5, 0.15))
LITERALS = ((1, 1.0), (2, 2.0), (3, 3.0), (4, 2.0))
VARIED = tuple(replace(stage, operands=OPERANDS, literals=LITERALS) for stage in (LEARN, CONSOLIDATE))


@dataclass(frozen=True)
class Build:
    """One model: ``kind`` is the Hugging Face architecture, ``penalty`` the weight of the head-sparsity
    penalty.
    """

    name: str
    kind: str  # "gpt_neox" or "llama"
    kv_heads: int
    stages: tuple[Schedule, ...] = (LEARN, CONSOLIDATE)
    penalty: float = 0.02
    layers: int = 6
    width: int = 128
    heads: int = 8
    mlp: int = 256
    init: float = 0.05


BUILDS = {
    build.name: build
    for build in (
        Build("mha", "gpt_neox", kv_heads=8, stages=VARIED),
        Build("gqa", "llama", kv_heads=2, mlp=192),
        Build("gqa-mha", "llama", kv_heads=8, mlp=192),
        Build("redundant", "gpt_neox", kv_heads=8, stages=VARIED[:1], penalty=0.0),
    )
}


MIXTURE = {
    "ioi": 1.0,
    "greater_than": 2.0,
    "sva": 0.5,
    "gendered_pronoun": 0.5,
    "induction": 2.0,
    "facts": 1.2,
    "addition": 6.0,
    "boolean": 4.0,
    "copy_colors": 3.0,
}


def shares(progress: float, schedule: Schedule) -> dict[str, float]:
    """The mixture at ``progress`` (0..1) of the training."""
    mixture = dict(MIXTURE)
    if progress < schedule.early:
        mixture["induction"] *= 2.0
        mixture["addition"] *= 2.0
    return mixture


def penalty_weight(progress: float, full: float, schedule: Schedule) -> float:
    """Learn first, then consolidate: a task not learnt when the penalty sets in is hardly learnt later. 0
    until ``penalty_from``, linear up to ``full`` at ``penalty_full``, then constant.
    """
    if progress < schedule.penalty_from:
        return 0.0
    ramp = (progress - schedule.penalty_from) / (schedule.penalty_full - schedule.penalty_from)
    return full * min(1.0, max(0.0, ramp))


def make_model(build: Build, seed: int) -> nn.Module:
    """An untrained model of this build (float32, on CPU); sets torch's global seed."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

    ids = vocabulary()
    shared: dict[str, Any] = {
        "vocab_size": len(ids),
        "hidden_size": build.width,
        "num_hidden_layers": build.layers,
        "num_attention_heads": build.heads,
        "intermediate_size": build.mlp,
        "max_position_embeddings": 128,
        "initializer_range": build.init,
        "tie_word_embeddings": False,
        "bos_token_id": ids[BOS],
        "eos_token_id": ids[EOS],
        "pad_token_id": ids[PAD],
    }
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}
    torch.manual_seed(seed)
    if build.kind == "gpt_neox":
        return GPTNeoXForCausalLM(
            GPTNeoXConfig(
                use_parallel_residual=True,
                hidden_act="gelu",
                attention_bias=True,
                rope_parameters={**rope, "partial_rotary_factor": 0.5},
                **shared,
            )
        )
    # Not Qwen2: for that type AutoTokenizer replaces the tokenizer that a directory holds by Qwen's own splitting.
    return LlamaForCausalLM(LlamaConfig(num_key_value_heads=build.kv_heads, rope_parameters=rope, **shared))

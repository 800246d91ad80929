"""Tiny random Hugging Face models, one per adapter, whose every parameter is drawn so that mistakes show.

Norm weights and biases are not left at ones and zeros: a wrong norm, a forgotten bias or a swapped layout then
changes the logits. In float64 the RMS norms, which transformers computes in float32, are computed in float64,
so that identities and finite differences hold to float64 precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module

VOCAB = 40


def _llama(**changes: Any) -> nn.Module:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **changes}))


def _qwen2(**changes: Any) -> nn.Module:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    return Qwen2ForCausalLM(Qwen2Config(**{**sizes, **changes}))


def _gpt_neox(**changes: Any) -> nn.Module:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "use_parallel_residual": True,
    }
    return GPTNeoXForCausalLM(GPTNeoXConfig(**{**sizes, **changes}))


def _gpt_neox_sequential(**changes: Any) -> nn.Module:
    return _gpt_neox(**{"use_parallel_residual": False, **changes})


def _gpt2(**changes: Any) -> nn.Module:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "n_embd": 16,
        "n_inner": 24,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **changes}))


def _gemma3_text(**changes: Any) -> nn.Module:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,  # not hidden / heads
        "query_pre_attn_scalar": 6,
        "sliding_window": 4,  # shorter than the prompts, so that it matters
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "max_position_embeddings": 64,
    }
    sizes = {**sizes, **changes}
    if "num_hidden_layers" in changes and "layer_types" not in changes:
        layers = sizes["num_hidden_layers"]
        sizes["layer_types"] = ["sliding_attention"] * (layers - 1) + ["full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**sizes))


BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "gpt_neox": _gpt_neox,
    "gpt_neox_sequential": _gpt_neox_sequential,
    "gpt2": _gpt2,
    "gemma3_text": _gemma3_text,
}
#: What tests are parametrised with.
ARCHITECTURES = tuple(BUILDERS)


def build(
    architecture: str, *, dtype: torch.dtype = torch.float32, seed: int = 0, **config: Any
) -> nn.Module:
    """A random causal language model in evaluation mode. `config` overrides single values of its configuration."""
    module = BUILDERS[architecture](**config)
    randomise(module, seed)
    module = module.to(dtype).eval()
    if dtype == torch.float64:
        _exact_norms(module)
    return module


def build_loaded(
    architecture: str, *, dtype: torch.dtype = torch.float32, seed: int = 0, **config: Any
) -> LoadedModel:
    """`build`, wrapped; the parameters are frozen."""
    module = build(architecture, dtype=dtype, seed=seed, **config).requires_grad_(False)
    return wrap(module, name=architecture)


def wrap(module: nn.Module, tokenizer: Any = None, name: str = "tiny") -> LoadedModel:
    """A LoadedModel around a module given in memory."""
    return from_module(module, tokenizer, name)


def tokens(batch: int, length: int, *, seed: int = 0, vocab: int = VOCAB) -> Tensor:
    """Random token ids [batch, length] that avoid the special ids 0 to 2."""
    return torch.randint(3, vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


def tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer whose words ``w3`` to ``w39`` are the ids 3 to 39; it adds no BOS."""
    words = {"<unk>": 0, "<bos>": 1, "<eos>": 2, **{f"w{i}": i for i in range(3, VOCAB)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>"
    )


def save(module: nn.Module, directory: Path, *, with_tokenizer: bool = True) -> Path:
    """Save a model, and the word-level tokenizer beside it, as a Hugging Face directory."""
    module.save_pretrained(directory)
    if with_tokenizer:
        tokenizer().save_pretrained(directory)
    return directory


def randomise(module: nn.Module, seed: int) -> None:
    """Draw every parameter: matrices of unit gain, biases of 0.3, norm weights around their neutral value."""
    generator = torch.Generator().manual_seed(seed)
    zero_is_neutral = getattr(module.config, "model_type", "").startswith("gemma")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1:
                norm = name.endswith("weight")
                draw = 0.3 * draw + (1.0 if norm and not zero_is_neutral else 0.0)
            elif "embed" not in name and "wte" not in name and "wpe" not in name:
                conv1d = "c_attn" in name or "c_proj" in name or "c_fc" in name
                draw = 1.5 * draw / math.sqrt(parameter.shape[0 if conv1d else 1])
            parameter.copy_(draw)


def _exact_norms(module: nn.Module) -> None:
    for part in module.modules():
        kind = type(part)
        if kind.__name__.endswith("RMSNorm"):
            offset = 1.0 if kind.__name__.startswith("Gemma") else 0.0
            # The same name, because norms are recognised by it.
            part.__class__ = type(kind.__name__, (kind,), {"forward": _rms_norm(offset)})


def _rms_norm(offset: float) -> Callable[[nn.Module, Tensor], Tensor]:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        eps = getattr(self, "variance_epsilon", None) or self.eps
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (offset + self.weight)

    return forward

"""Tiny random Hugging Face models, one per adapter, whose every parameter is drawn so that mistakes show.

Norm weights and biases are not left at ones and zeros: a wrong norm, a forgotten bias or a swapped layout then
changes the logits. In float64 the RMS norms, which transformers computes in float32, are computed in float64,
so that identities and finite differences hold to float64 precision.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GptOssConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoConfig,
    OlmoeConfig,
    Phi3Config,
    PhiConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
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
#: What tests are parametrised with: every kind of block once.
ARCHITECTURES = tuple(BUILDERS)


def _like_llama(config: type[PretrainedConfig], **own: Any) -> Callable[..., nn.Module]:
    def make(**changes: Any) -> nn.Module:
        sizes: dict[str, Any] = {
            "vocab_size": VOCAB,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }
        given = {key: value for key, value in {**sizes, **own, **changes}.items() if value is not None}
        return AutoModelForCausalLM.from_config(config(**given))

    return make


_ONE_EACH: dict[str, Any] = {"num_key_value_heads": None}  # the type has no such thing
_MIXTURE: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
#: Further model types, and kinds of one type. GQA where there is such a thing, and head_dim is not hidden / heads
#: where it need not be.
RELATIVES: dict[str, Callable[..., nn.Module]] = {
    "llama3": _like_llama(LlamaConfig, rope_parameters=_LLAMA3_ROPE, tie_word_embeddings=True, head_dim=6),
    "qwen2_tied": _like_llama(Qwen2Config, tie_word_embeddings=True),
    "mistral": _like_llama(MistralConfig, sliding_window=4, head_dim=6),
    "qwen3": _like_llama(Qwen3Config, head_dim=6),
    "gemma": _like_llama(GemmaConfig, head_dim=6),
    "gemma2": _like_llama(
        Gemma2Config,
        head_dim=6,
        sliding_window=4,
        query_pre_attn_scalar=6,
        attn_logit_softcapping=2.0,  # low, so that they matter
        final_logit_softcapping=3.0,
    ),
    "smollm3": _like_llama(SmolLM3Config, no_rope_layers=[1, 0, 1]),
    "olmo": _like_llama(OlmoConfig),
    "olmo_clipped": _like_llama(OlmoConfig, clip_qkv=0.7),
    "olmo2": _like_llama(Olmo2Config),
    "olmo3": _like_llama(
        Olmo3Config,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "olmoe": _like_llama(OlmoeConfig, num_experts=4, num_experts_per_tok=2),
    "mixtral": _like_llama(MixtralConfig, head_dim=6, **_MIXTURE),
    "qwen3_moe": _like_llama(
        Qwen3MoeConfig,
        head_dim=6,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        mlp_only_layers=[1],  # a plain MLP between two mixtures
    ),
    "gpt_oss": _like_llama(GptOssConfig, head_dim=6, sliding_window=4, **_MIXTURE),
    "phi": _like_llama(PhiConfig),
    "phi_qk_norm": _like_llama(PhiConfig, qk_layernorm=True),
    "phi3": _like_llama(Phi3Config, sliding_window=4),
    "gptj": _like_llama(GPTJConfig, **_ONE_EACH, rotary_dim=2, n_inner=24),
    "falcon": _like_llama(FalconConfig, **_ONE_EACH),
    "falcon_two_norms": _like_llama(
        FalconConfig, **_ONE_EACH, new_decoder_architecture=True, num_kv_heads=2, bias=True
    ),
    "falcon_one_norm": _like_llama(
        FalconConfig, **_ONE_EACH, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1
    ),
    "falcon_alibi": _like_llama(
        FalconConfig, **_ONE_EACH, alibi=True, multi_query=False, parallel_attn=False, bias=True
    ),
    "bloom": _like_llama(BloomConfig, **_ONE_EACH),
}
EVERY = (*ARCHITECTURES, *RELATIVES)


def marked(names: Iterable[str]) -> list[Any]:
    """Parameters of a test: those named after a relative are slow."""
    slow = lambda name: (pytest.mark.slow,) if name in RELATIVES else ()
    return [pytest.param(name, marks=slow(name)) for name in names]


def build(
    architecture: str, *, dtype: torch.dtype = torch.float32, seed: int = 0, **config: Any
) -> nn.Module:
    """A random causal language model in evaluation mode. `config` overrides single values of its configuration."""
    module = {**BUILDERS, **RELATIVES}[architecture](**config)
    randomise(module, seed)
    module = module.to(dtype).eval()
    if dtype == torch.float64:
        if any(type(part).__name__.endswith("Experts") for part in module.modules()):
            module.set_experts_implementation("eager")  # the fused experts have no float64
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


def configure(directory: Path, **changes: Any) -> None:
    """Change a saved model's configuration."""
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def randomise(module: nn.Module, seed: int) -> None:
    """Draw every parameter: matrices of unit gain, biases of 0.3, norm weights around their neutral value."""
    generator = torch.Generator().manual_seed(seed)
    zero_is_neutral = getattr(module.config, "model_type", "").startswith("gemma")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 1 or name.endswith("bias"):
                norm = name.endswith("weight")
                draw = 0.3 * draw + (1.0 if norm and not zero_is_neutral else 0.0)
            elif "embed" not in name and "wte" not in name and "wpe" not in name:
                inputs_first = any(part in name for part in ("c_attn", "c_proj", "c_fc"))
                inputs_first |= getattr(module.config, "model_type", "") == "gpt_oss" and parameter.ndim == 3
                draw = 1.5 * draw / math.sqrt(parameter.shape[-2 if inputs_first else -1])
            parameter.copy_(draw)


class _Unrounded(TorchFunctionMode):
    """What is float64 stays float64, whatever transformers casts to float32 for the sake of half precision."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], Tensor) and args[0].dtype == torch.float64:
            if function is Tensor.float:
                return args[0]
            args = tuple(torch.float64 if value is torch.float32 else value for value in args)
            kwargs = {
                key: torch.float64 if value is torch.float32 else value for key, value in kwargs.items()
            }
        return function(*args, **kwargs)


def _exact_norms(module: nn.Module) -> None:
    """Keep norms, routers and attention in float64. The classes keep their names: norms are recognised by them."""
    for part in module.modules():
        kind = type(part)
        if kind.__name__.endswith("RMSNorm"):
            offset = 1.0 if kind.__name__.startswith("Gemma") else 0.0
            part.__class__ = type(kind.__name__, (kind,), {"forward": _rms_norm(offset)})
        elif kind.__name__.endswith(("OlmoLayerNorm", "Router", "Attention")):
            part.__class__ = type(kind.__name__, (kind,), {"forward": _unrounded(kind.forward)})


def _unrounded(plain: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _Unrounded():
            return plain(self, *args, **kwargs)

    return forward


def _rms_norm(offset: float) -> Callable[[nn.Module, Tensor], Tensor]:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        eps = getattr(self, "variance_epsilon", None) or self.eps
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (offset + self.weight)

    return forward

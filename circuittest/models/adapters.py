"""Adapters: one record per Hugging Face architecture that says where its units live. Data, not subclasses.

| unit or slot | module | tensor | before or after which norm |
|---|---|---|---|
| head h | `out` (attention output projection) | its *input*, slice [h·d : (h+1)·d] | before any post-norm |
| MLP | `mlp` | its output | before any post-norm |
| embed | the first block | its input | – |
| q of a head, k and v of a KV group | `q`, `k`, `v` or `qkv` | output, before rotary and q/k-norm | after `attn_norm` |
| MLP read | `mlp_norm` | its input | before the norm |
| logits read | the final norm | its input | before the norm |

Zeroing a head leaves the projection's bias. In post-norm blocks (Gemma 2 and 3, OLMo 2) units are ablated before
the post-norm and attribution pulls gradients back through it. Head size comes from the projection's shape, never
from hidden size over heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from circuittest.errors import UnsupportedModel, UsageError, did_you_mean

Fused = Literal["thirds", "per-head"]


@dataclass(frozen=True)
class Adapter:
    """Where the units of one architecture live.

    Attributes
    ----------
    model_types:
        Values of ``config.model_type`` that this record describes.
    layers, final_norm, unembed:
        Paths from the causal language model to its list of blocks, its last norm and its unembedding (None: what
        ``get_output_embeddings`` returns, whose name changed between versions of transformers).
    attention, out, mlp:
        Paths from a block to its attention module, the attention's output projection, and its MLP.
    attn_norm, mlp_norm:
        Paths from a block to the norms that attention and MLP read through (None where there is no such norm).
    q, k, v:
        Paths from a block to the projections, or None where `qkv` is one fused projection.
    qkv, fused:
        The fused projection and how its output rows are laid out: "thirds" ([3, heads, d], GPT-2) or "per-head"
        ([heads, 3, d], GPT-NeoX).
    attn_post_norm, mlp_post_norm:
        Norms between a sublayer's output and the residual, or None.
    parallel:
        Whether attention and MLP read the same residual: a constant, or the name of the config's flag.
    """

    model_types: tuple[str, ...]
    layers: str
    final_norm: str
    out: str
    mlp: str
    attention: str
    attn_norm: str | None
    mlp_norm: str | None
    q: str | None = None
    k: str | None = None
    v: str | None = None
    qkv: str | None = None
    fused: Fused | None = None
    attn_post_norm: str | None = None
    mlp_post_norm: str | None = None
    unembed: str | None = None
    parallel: bool | str = False

    def __post_init__(self) -> None:
        split = None not in (self.q, self.k, self.v)
        if split == (self.qkv is not None) or (self.qkv is None) != (self.fused is None):
            raise UsageError(
                f"the adapter for {', '.join(self.model_types)} is inconsistent",
                "it needs either q, k and v, or qkv and fused",
            )

    def is_parallel(self, config: Any) -> bool:
        """Do attention and MLP of a block of this model read the same residual?"""
        return bool(getattr(config, self.parallel)) if isinstance(self.parallel, str) else self.parallel


_LLAMA = Adapter(
    model_types=("llama", "qwen2"),
    layers="model.layers",
    final_norm="model.norm",
    attention="self_attn",
    out="self_attn.o_proj",
    mlp="mlp",
    attn_norm="input_layernorm",
    mlp_norm="post_attention_layernorm",
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
)
_GEMMA3 = Adapter(
    model_types=("gemma3_text",),
    layers="model.layers",
    final_norm="model.norm",
    attention="self_attn",
    out="self_attn.o_proj",
    mlp="mlp",
    attn_norm="input_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
    attn_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)
_GPT_NEOX = Adapter(
    model_types=("gpt_neox",),
    layers="gpt_neox.layers",
    final_norm="gpt_neox.final_layer_norm",
    attention="attention",
    out="attention.dense",
    mlp="mlp",
    attn_norm="input_layernorm",
    mlp_norm="post_attention_layernorm",
    qkv="attention.query_key_value",
    fused="per-head",
    parallel="use_parallel_residual",
)
_GPT2 = Adapter(
    model_types=("gpt2",),
    layers="transformer.h",
    final_norm="transformer.ln_f",
    attention="attn",
    out="attn.c_proj",
    mlp="mlp",
    attn_norm="ln_1",
    mlp_norm="ln_2",
    qkv="attn.c_attn",
    fused="thirds",
)

_REGISTRY: dict[str, Adapter] = {}


def register_adapter(adapter: Adapter, *, replace: bool = False) -> None:
    """Make an architecture known. Raises UsageError when one of its types has an adapter already."""
    for model_type in adapter.model_types:
        if model_type in _REGISTRY and not replace:
            raise UsageError(
                f"model type {model_type!r} has an adapter already", "", "pass replace=True to override it"
            )
    for model_type in adapter.model_types:
        _REGISTRY[model_type] = adapter


def adapters() -> Mapping[str, Adapter]:
    """Every known model type and its adapter, those of installed entry points included."""
    _load_entry_points()
    return MappingProxyType(_REGISTRY)


def adapter_for(model_type: str) -> Adapter:
    """The adapter of a ``config.model_type``. Raises UnsupportedModel, saying how to register one."""
    known = adapters()
    if model_type not in known:
        raise UnsupportedModel(
            f"no adapter for model type {model_type!r}",
            did_you_mean(model_type, known),
            "describe the architecture with circuittest.models.Adapter and register_adapter (CONTRIBUTING shows how)",
        )
    return known[model_type]


for _adapter in (_LLAMA, _GEMMA3, _GPT_NEOX, _GPT2):
    register_adapter(_adapter)

_entry_points_loaded = False


def _load_entry_points() -> None:
    global _entry_points_loaded
    if _entry_points_loaded:
        return
    _entry_points_loaded = True
    from importlib.metadata import entry_points

    for entry in entry_points(group="circuittest.adapters"):
        register_adapter(entry.load())

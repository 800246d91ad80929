"""Adapters: one record per Hugging Face architecture that says where its units live. Data, not subclasses.

| unit or slot | module | tensor | before or after which norm |
|---|---|---|---|
| head h | `out` (attention output projection) | its *input*, slice [h·d : (h+1)·d] | before any post-norm |
| MLP | `mlp_out` (by default `mlp`) | its output, of a tuple the first element | before any post-norm |
| neuron n of an MLP | `down` (its last projection) | its *input*, feature n | before any post-norm |
| expert e of a mixture | `experts` | what it adds to the output, weighted by its routing | before any post-norm |
| embed | the first block | its input | – |
| q of a head, k and v of a KV group | `q`, `k`, `v` or `qkv` | output, before rotary and q/k-norm | after `attn_norm` |
| the same where q and k are normalised over all heads | `q_norm`, `k_norm` | output, before rotary | after both norms |
| MLP read | `mlp` behind `mlp_norm` | the norm's input | before the norm |
| logits read | the final norm | its input | before the norm |

Zeroing a head leaves the projection's bias. In post-norm blocks (Gemma 2 and 3, OLMo 2) units are ablated before
the post-norm and attribution pulls gradients back through it. Head size comes from the projection's shape, never
from hidden size over heads. In a mixture of experts the MLP unit is the whole mixture, its routing included; taking an
expert away leaves the routing as it is. A neuron or expert leaves biases that belong to the whole MLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from circuittest.errors import UnsupportedModel, UsageError, did_you_mean

Fused = Literal["stacked", "grouped"]


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
        The fused projection and how its outputs are laid out, d to a head: "stacked" (all q, then all k, then all
        v: GPT-2, Phi-3) or "grouped" (for each KV head the q of its query heads, its k, its v: GPT-NeoX, Falcon).
    attn_post_norm, mlp_post_norm:
        Norms between a sublayer's output and the residual, or None.
    q_norm, k_norm:
        Norms over the queries, or the keys, of all heads together (OLMo 2): only after them are heads apart. Norms
        within a head need not be named.
    parallel:
        Whether attention and MLP read the same residual: a constant, or the name of the config's flag.
    mlp_out:
        Path to the module whose output is what the MLP adds to the residual, where that is not `mlp` itself.
    residual_inside:
        The attention and MLP modules are handed the residual and return it plus their write, which is then the
        output of `out` and of `mlp_out` (BLOOM).
    in_place:
        The model writes into the tensors that its projections and MLPs return, so that they are copied before they
        are kept (Falcon): a constant, or the name of a config value that makes it so.
    down:
        Path from a block to the MLP's last projection, whose input features are its neurons (None: they are not
        addressable); blocks that are mixtures of experts may lack it.
    experts:
        Path from a block to the experts of a mixture; blocks may lack it. They are addressable where the module has
        ``num_experts`` and is called with states, the chosen experts and their weights (transformers 5).
    alternatives:
        (field, path) pairs, tried in order where a model's first block lacks the path that the field has: one
        `model_type` whose parts have several names (Falcon).
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
    q_norm: str | None = None
    k_norm: str | None = None
    unembed: str | None = None
    parallel: bool | str = False
    mlp_out: str | None = None
    residual_inside: bool = False
    in_place: bool | str = False
    down: str | None = None
    experts: str | None = None
    alternatives: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        split = None not in (self.q, self.k, self.v)
        if split == (self.qkv is not None) or (self.qkv is None) != (self.fused is None):
            raise UsageError(
                f"the adapter for {', '.join(self.model_types)} is inconsistent",
                "it needs either q, k and v, or qkv and fused",
            )
        if self.qkv is not None and (self.q_norm or self.k_norm):
            raise UsageError(
                f"the adapter for {', '.join(self.model_types)} is inconsistent",
                "norms over all heads' queries or keys are known behind separate projections only",
            )
        if self.residual_inside and self.mlp_out is None:
            raise UsageError(
                f"the adapter for {', '.join(self.model_types)} is inconsistent",
                "where the MLP module returns the residual as well, mlp_out must name what it adds",
            )

    def is_parallel(self, config: Any) -> bool:
        """Do attention and MLP of a block of this model read the same residual?"""
        return bool(getattr(config, self.parallel)) if isinstance(self.parallel, str) else self.parallel

    def is_in_place(self, config: Any) -> bool:
        """Does this model write into what its projections and MLPs return?"""
        if isinstance(self.in_place, str):
            return getattr(config, self.in_place, None) not in (None, False)
        return self.in_place


_LLAMA = Adapter(
    model_types=("llama", "mistral", "qwen2", "qwen3", "gemma", "smollm3"),
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
    down="mlp.down_proj",
)
#: Queries, keys and values may be clipped in place.
_OLMO = replace(_LLAMA, model_types=("olmo",), in_place="clip_qkv")
_MIXTURES = replace(_LLAMA, model_types=("mixtral", "qwen3_moe", "gpt_oss"), experts="mlp.experts")
_OLMOE = replace(
    _MIXTURES,
    model_types=("olmoe",),
    in_place="clip_qkv",
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
)
_GEMMA = replace(
    _LLAMA,
    model_types=("gemma2", "gemma3_text"),
    mlp_norm="pre_feedforward_layernorm",
    attn_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)
_OLMO2 = replace(
    _GEMMA,
    model_types=("olmo2", "olmo3"),
    attn_norm=None,
    mlp_norm=None,
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
)
_PHI3 = replace(
    _LLAMA, model_types=("phi3",), q=None, k=None, v=None, qkv="self_attn.qkv_proj", fused="stacked"
)
_PHI = replace(
    _LLAMA,
    model_types=("phi",),
    final_norm="model.final_layernorm",
    out="self_attn.dense",
    mlp_norm="input_layernorm",  # one norm for both
    down="mlp.fc2",
    parallel=True,
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
    fused="grouped",
    parallel="use_parallel_residual",
    down="mlp.dense_4h_to_h",
)
_BLOOM = Adapter(
    model_types=("bloom",),
    layers="transformer.h",
    final_norm="transformer.ln_f",
    attention="self_attention",
    out="self_attention.dense",
    mlp="mlp",
    mlp_out="mlp.dense_4h_to_h",
    down="mlp.dense_4h_to_h",
    residual_inside=True,
    attn_norm="input_layernorm",
    mlp_norm="post_attention_layernorm",
    qkv="self_attention.query_key_value",
    fused="grouped",
)
_FALCON = replace(
    _BLOOM,
    model_types=("falcon",),
    mlp_out=None,
    residual_inside=False,
    in_place=True,  # the attention's output is added into the MLP's
    parallel="parallel_attn",
    attn_norm="ln_attn",
    mlp_norm="ln_mlp",
    alternatives=(
        ("attn_norm", "input_layernorm"),
        ("mlp_norm", "post_attention_layernorm"),
        ("mlp_norm", "input_layernorm"),
    ),
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
    fused="stacked",
    down="mlp.c_proj",
)
_GPTJ = replace(
    _GPT2,
    model_types=("gptj",),
    out="attn.out_proj",
    mlp_norm="ln_1",  # one norm for both
    qkv=None,
    fused=None,
    q="attn.q_proj",
    k="attn.k_proj",
    v="attn.v_proj",
    down="mlp.fc_out",
    parallel=True,
)

#: Decoders that no adapter describes exactly, and why.
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "cohere": "it multiplies its logits by a constant, which metrics do not know",
        "cohere2": "it multiplies its logits by a constant, which metrics do not know",
        "granite": "it scales what attention and MLP add to the residual, and its logits",
        "granitemoe": "it scales what attention and MLP add to the residual, and its logits",
        "deepseek_v2": "its keys and values come from a shared latent vector, not from a projection per head",
        "deepseek_v3": "its keys and values come from a shared latent vector, not from a projection per head",
        "mamba": "it has no attention",
        "mamba2": "it has no attention",
        "falcon_mamba": "it has no attention",
        "rwkv": "it has no attention",
        "recurrent_gemma": "most of its layers have no attention",
        "jamba": "most of its layers have no attention",
        "opt": "its MLP is no module of its own, so there is nothing to ablate",
        "gemma3n": "its layers pass several residuals on and mix them",
        "qwen3_next": "most of its layers have linear attention without a projection per head",
    }
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


def unregister_adapter(adapter: Adapter) -> None:
    """Forget an adapter of `register_adapter`; types that have another one by now keep it."""
    for model_type in adapter.model_types:
        if _REGISTRY.get(model_type) is adapter:
            del _REGISTRY[model_type]


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
            REFUSED.get(model_type) or did_you_mean(model_type, known),
            "describe the architecture with circuittest.models.Adapter and register_adapter (CONTRIBUTING shows how)",
        )
    return known[model_type]


for _adapter in (
    _LLAMA,
    _OLMO,
    _MIXTURES,
    _OLMOE,
    _GEMMA,
    _OLMO2,
    _PHI3,
    _PHI,
    _GPT_NEOX,
    _BLOOM,
    _FALCON,
    _GPT2,
    _GPTJ,
):
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

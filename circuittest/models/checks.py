"""What a module must be before any number is measured on it; every refusal names the tensor or layer."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import nn

from circuittest.errors import LoadError, UnsupportedModel
from circuittest.models.adapters import Adapter, adapter_for
from circuittest.models.loaded import features, unembedding
from circuittest.units import Layout

_PARTS = "attention out mlp mlp_out attn_norm mlp_norm q k v qkv q_norm k_norm attn_post_norm mlp_post_norm".split()


def unwrap(module: nn.Module) -> nn.Module:
    """The Hugging Face module inside torch.compile or DataParallel wrappers. Raises UnsupportedModel for others."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DataParallel", "DistributedDataParallel"):
            inner = module.module
        if not isinstance(inner, nn.Module):
            break
        module = inner
    if "FullyShardedDataParallel" in type(module).__name__ or type(module).__name__.startswith("FSDP"):
        raise UnsupportedModel(
            "the module is sharded by FSDP",
            "no process holds whole weights",
            "gather a full state dict and measure a model loaded from it",
        )
    if hasattr(module, "peft_config") and type(module).__module__.startswith("peft"):
        raise UnsupportedModel(
            f"{type(module).__name__} keeps its adapters beside the weights",
            "a head's write is read from the projection's own weight, which lacks the adapter's part",
            "pass model.merge_and_unload() of a copy",
        )
    return module


def find_adapter(config: Any, whose: str) -> Adapter:
    """The adapter of a configuration's architecture. Raises UnsupportedModel, naming the architecture."""
    model_type = getattr(config, "model_type", None)
    if not isinstance(model_type, str):
        raise UnsupportedModel(
            f"{whose} is not a Hugging Face causal language model",
            "it has no config.model_type",
            "load it with AutoModelForCausalLM",
        )
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModel(
            f"model type {model_type!r} is an encoder–decoder",
            "units and claims are defined for decoder-only language models",
            "choose a decoder-only model",
        )
    from transformers.models.auto import modeling_auto as known
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if model_type in known.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        raise UnsupportedModel(
            f"model type {model_type!r} is an encoder",
            "it does not predict a next token",
            "choose a decoder-only model",
        )
    try:
        return adapter_for(model_type)
    except UnsupportedModel:
        causal = known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        if model_type not in CONFIG_MAPPING_NAMES or model_type in causal:
            raise  # an adapter would do
        raise UnsupportedModel(
            f"model type {model_type!r} is no causal language model",
            "transformers has none of this type; it may be an encoder, or hold a language model as a part",
            "choose a decoder-only model, or pass the language model that is a part of this one",
        ) from None


def fitted(module: nn.Module, adapter: Adapter) -> Adapter:
    """The adapter with the first of each field's paths that the module's first block has."""
    try:
        block = next(iter(module.get_submodule(adapter.layers).children()), None)
    except AttributeError:
        return adapter  # `check_paths` says what is missing
    if block is None or not adapter.alternatives:
        return adapter
    names = {name for name, _ in block.named_modules()}
    changes: dict[str, Any] = {"alternatives": ()}
    for role, path in adapter.alternatives:
        if changes.get(role, getattr(adapter, role)) not in names:
            changes[role] = path
    return replace(adapter, **changes)


def check_paths(module: nn.Module, adapter: Adapter) -> None:
    """Refuse a module that lacks a part its adapter names (a base model without head, another layout)."""
    try:
        for path in (adapter.layers, adapter.final_norm, *([adapter.unembed] if adapter.unembed else [])):
            module.get_submodule(path)
        blocks = list(module.get_submodule(adapter.layers).children())
    except AttributeError:
        raise UnsupportedModel(
            f"{type(module).__name__} has no {path!r}",
            "the adapter for this model type looks for its parts there",
            "pass the causal language model (AutoModelForCausalLM), or register an adapter that fits",
        ) from None
    unembed = unembedding(module, adapter)
    if not blocks or unembed is None or not hasattr(unembed, "in_features"):
        raise UnsupportedModel(
            f"{type(module).__name__} has no blocks in {adapter.layers!r}, or no linear unembedding",
            "units and logits are read there",
            "pass the causal language model (AutoModelForCausalLM), or register an adapter that fits",
        )
    for index, block in enumerate(blocks):
        for role in _PARTS:
            _part(block, index, role, getattr(adapter, role))


def _part(block: nn.Module, index: int, role: str, path: str | None) -> None:
    if path is None:
        return
    try:
        block.get_submodule(path)
    except AttributeError:
        raise UnsupportedModel(
            f"layer L{index} has no {path!r}",
            f"the adapter names it as {role}; mixed architectures (state space, mixture layers) differ by layer",
            "register an adapter that fits",
        ) from None


def layout_of(module: nn.Module, adapter: Adapter) -> Layout:
    """The layout, read from the configuration and held against the shape of every projection of every layer.

    Raises LoadError naming the layer and both numbers where configuration and weights contradict each other.
    """
    config: Any = module.config
    blocks = list(module.get_submodule(adapter.layers).children())
    n_heads = int(config.num_attention_heads)
    n_kv = 0
    unembed: Any = unembedding(module, adapter)
    width = unembed.in_features
    for index, block in enumerate(blocks):
        inputs, outputs = _sizes(block, adapter.out, index)
        if inputs % n_heads:
            _contradiction(index, adapter.out, inputs, f"{n_heads} heads do not divide it")
        head_dim = inputs // n_heads
        stated = getattr(config, "head_dim", None)
        if stated and int(stated) != head_dim:
            _contradiction(index, adapter.out, inputs, f"config.head_dim {stated} × {n_heads} heads")
        if outputs != width:
            _contradiction(index, adapter.out, outputs, f"a residual of width {width}")
        n_kv = n_kv or _kv_heads(config, adapter, block, n_heads, head_dim)
        expected = (
            {adapter.qkv: (n_heads + 2 * n_kv) * head_dim}
            if adapter.qkv
            else {adapter.q: n_heads * head_dim, adapter.k: n_kv * head_dim, adapter.v: n_kv * head_dim}
        )
        for path, size in expected.items():
            if path is not None and (found := _sizes(block, path, index)[1]) != size:
                _contradiction(index, path, found, f"the configuration's {size}")
    return Layout(
        len(blocks),
        n_heads,
        n_kv,
        parallel=adapter.is_parallel(config),
        n_neurons=tuple(_neurons(block, adapter, index, width) for index, block in enumerate(blocks)),
        n_experts=tuple(_experts(block, adapter) for block in blocks),
    )


def _neurons(block: nn.Module, adapter: Adapter, index: int, width: int) -> int:
    """Inputs of the MLP's last projection; 0 where the adapter names none, and in mixtures that have none."""
    if adapter.down is None or (_has(block, adapter.experts) and not _has(block, adapter.down)):
        return 0
    _part(block, index, "down", adapter.down)
    inputs, outputs = _sizes(block, adapter.down, index)
    if outputs != width:
        _contradiction(index, adapter.down, outputs, f"a residual of width {width}")
    return inputs


def _experts(block: nn.Module, adapter: Adapter) -> int:
    """Experts that can be told apart: of a module called with states, the chosen experts and their weights."""
    if not _has(block, adapter.experts):
        return 0
    experts = block.get_submodule(adapter.experts or "")
    number = getattr(experts, "num_experts", None)
    arguments = inspect.signature(experts.forward).parameters.values()
    plain = sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in arguments)
    return number if isinstance(number, int) and plain == 3 else 0


def _has(block: nn.Module, path: str | None) -> bool:
    return path is not None and any(name == path for name, _ in block.named_modules())


def _kv_heads(config: Any, adapter: Adapter, block: nn.Module, n_heads: int, head_dim: int) -> int:
    """KV heads: what the configuration says, else what a fused projection has room for beside the queries."""
    if stated := getattr(config, "num_key_value_heads", None):
        return int(stated)
    if adapter.qkv is None:
        return n_heads
    outputs = _sizes(block, adapter.qkv, 0)[1]
    found, rest = divmod(outputs - n_heads * head_dim, 2 * head_dim)
    if rest or found < 1 or n_heads % found:
        _contradiction(0, adapter.qkv, outputs, f"{n_heads} queries of {head_dim} and as many keys as values")
    return found


def _sizes(block: nn.Module, path: str, index: int) -> tuple[int, int]:
    sizes = features(block.get_submodule(path))
    if sizes is None:
        raise UnsupportedModel(
            f"layer L{index}'s {path!r} is no linear projection", "", "register an adapter that fits"
        )
    return sizes


def _contradiction(layer: int, path: str, found: int, expected: str) -> NoReturn:
    raise LoadError(
        f"layer L{layer}'s {path!r} has size {found}, which contradicts {expected}",
        "units would be cut in the wrong places",
        "correct the configuration, or register an adapter that fits",
    )


def check_offload(module: nn.Module) -> None:
    """Refuse weights that accelerate keeps elsewhere (disk or CPU) and brings in only while their part runs."""
    for name, part in module.named_modules():
        waiting = [getattr(part, "_hf_hook", None)]
        while waiting:
            hook = waiting.pop()
            waiting += getattr(hook, "hooks", ())
            if getattr(hook, "offload", False) or type(hook).__name__ == "CpuOffload":
                raise LoadError(
                    f"the weights of {name or 'the module'!r} are offloaded to disk or CPU by accelerate",
                    "they are there only while that part runs, and checks, scores and fingerprints read them"
                    " at other times",
                    "load the model whole on one device, without device_map offloading; half precision halves it",
                )


def check_weights(module: nn.Module) -> None:
    """Refuse weights that are absent (meta, offloaded) or not finite, naming the tensor."""
    if next(module.parameters(), None) is None:
        raise LoadError("the module has no parameters", "", "pass a causal language model")
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            raise LoadError(
                f"weight {name!r} is on the meta device",
                "it has no values (initialised empty, or offloaded to disk or CPU)",
                "load the model whole, without device_map offloading",
            )
        # The sum is a fast first look: it is finite unless a value is not, or it overflows.
        if (
            parameter.is_floating_point()
            and not bool(torch.isfinite(parameter.detach().sum()))
            and not bool(torch.isfinite(parameter).all())
        ):
            bad = int((~torch.isfinite(parameter)).sum())
            raise LoadError(
                f"weight {name!r} has {bad} NaN or infinite values",
                "no number measured on this model would mean anything",
                "choose an earlier checkpoint, or find out why training diverged",
            )


def check_tokenizer(module: nn.Module, tokenizer: Any) -> None:
    """Refuse a tokenizer whose vocabulary the embedding does not have. The tokenizer is only read."""
    if tokenizer is None:
        return
    embedding: Any = module.get_input_embeddings()  # type: ignore[operator]
    rows = int(embedding.weight.shape[0])
    # Added tokens may lie above: Gemma 3's text models lack their tokenizer's image token.
    highest = int(getattr(tokenizer, "vocab_size", 0)) - 1
    if highest >= rows:
        raise LoadError(
            f"the tokenizer has {highest + 1} tokens, the model only {rows} embeddings",
            "tokenizer and model do not belong together",
            "pass the model's own tokenizer, or resize the embeddings",
        )

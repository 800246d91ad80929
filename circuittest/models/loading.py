"""From what a user names (a zoo model, hub id, directory, GGUF file, or a module in memory) to a LoadedModel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn

from circuittest.models import checks
from circuittest.models.adapters import Adapter
from circuittest.models.fingerprint import fingerprint, weights
from circuittest.models.loaded import LoadedModel


def from_module(
    module: nn.Module, tokenizer: Any = None, name: str = "in-memory", adapter: Adapter | None = None
) -> LoadedModel:
    """Wrap a causal language model that is in memory already, as a trainer holds it.

    The module is only looked at: its training mode, ``requires_grad`` flags and hooks stay as they are.
    Measurements put it into evaluation mode with frozen parameters for their own length
    (`LoadedModel.measuring`) and restore both. The fingerprint is that of the weights now: wrap again after a step
    of training.

    Raises
    ------
    UnsupportedModel
        For an architecture without an adapter, an encoder, a module without its unembedding, PEFT or FSDP wrappers.
    LoadError
        For weights that are absent or not finite, and for a configuration or tokenizer that contradicts them.
    """
    module = checks.unwrap(module)
    adapter = checks.find_adapter(module, adapter)
    checks.check_paths(module, adapter)
    checks.check_weights(module)
    layout = checks.layout_of(module, adapter)
    checks.check_tokenizer(module, tokenizer)
    quantised = _is_quantised(module)
    return LoadedModel(
        module=module,
        tokenizer=tokenizer,
        adapter=adapter,
        layout=layout,
        name=name,
        fingerprint=fingerprint(module),
        device=next(module.parameters()).device,
        dtype=_dtype(module),
        quantised=quantised,
        versions=tuple(tensor._version for _, tensor in weights(module)),
    )


def _is_quantised(module: nn.Module) -> bool:
    if getattr(module, "hf_quantizer", None) is not None or getattr(module, "is_quantized", False):
        return True
    return any(not parameter.is_floating_point() for parameter in module.parameters())


def _dtype(module: nn.Module) -> torch.dtype:
    """The dtype of most floating-point weights."""
    sizes: Counter[torch.dtype] = Counter()
    for parameter in module.parameters():
        if parameter.is_floating_point():
            sizes[parameter.dtype] += parameter.numel()
    return sizes.most_common(1)[0][0] if sizes else torch.get_default_dtype()

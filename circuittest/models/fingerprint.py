"""The identity of a model: one hash over its configuration and all its weights.

Equal for models whose computation is given by equal numbers, wherever they were loaded from and in whichever
process; different when one weight differs in one bit. Tied weights count once. The dtype counts: the same
checkpoint in bfloat16 gives other numbers than in float32.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.models.hooks import version

# What a configuration says about files, versions, generation and bookkeeping, none of which changes a logit.
_IRRELEVANT = frozenset(
    "_name_or_path name_or_path _model_name_or_path transformers_version architectures dtype torch_dtype "
    "use_cache return_dict output_attentions output_hidden_states id2label label2id problem_type task_specific_params "
    "bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id initializer_range "
    "_attn_implementation attn_implementation gradient_checkpointing finetuning_task".split()
)


def fingerprint(module: nn.Module) -> str:
    """64 hexadecimal digits. Hashes several tensors at a time, about 1 GB per second and core."""
    digest = hashlib.sha256(configuration(getattr(module, "config", None)).encode())
    named = list(weights(module))
    with ThreadPoolExecutor(max_workers=min(8, torch.get_num_threads())) as pool:
        for (name, tensor), content in zip(named, pool.map(_content, (t for _, t in named)), strict=True):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode() + content)
    return digest.hexdigest()


def weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers by name, each storage once (under its first name)."""
    seen: set[tuple[Any, ...]] = set()
    for name, tensor in sorted(module.state_dict(keep_vars=True).items()):
        if not isinstance(tensor, Tensor):
            continue  # quantisers keep small Python objects there
        place = (
            (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,)
        )
        if place not in seen:
            seen.add(place)
            yield name, tensor.detach()


def marks(module: nn.Module) -> tuple[int, ...]:
    """By what it is noticed, for a fraction of a hash over all weights, that they changed.

    How often each was written into; and, since what goes through ``.data`` is not counted, a hash over one number of
    every row and every column of each.
    """
    named = list(weights(module))
    parts: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for _, tensor in named:
        if tensor.numel():
            width = tensor.shape[-1] if tensor.ndim else 1
            places = _places(tensor.numel() // width, width, tensor.device)
            parts.setdefault((tensor.device, tensor.dtype), []).append(torch.take(tensor, places))
    digest = hashlib.sha256()
    for found in parts.values():
        digest.update(_content(torch.cat(found)))
    return *(version(tensor) for _, tensor in named), int.from_bytes(digest.digest()[:8], "big")


@lru_cache(maxsize=256)
def _places(rows: int, width: int, device: torch.device) -> Tensor:
    """A diagonal that is wrapped around until it was in every row and every column, as places in the flat tensor."""
    steps = torch.arange(max(rows, width), device=device)
    return steps % rows * width + steps % width


def _content(tensor: Tensor) -> bytes:
    flat = tensor.contiguous().reshape(-1).cpu().view(torch.uint8)
    return hashlib.sha256(flat.numpy().data).digest()


def configuration(config: Any) -> str:
    """What differs from the architecture's defaults, so that a new field in transformers changes nothing."""
    if not hasattr(config, "to_dict"):
        return ""
    try:
        defaults = type(config)().to_dict()
    except Exception:  # a configuration class of the user's own may need arguments
        defaults = {}
    relevant = {
        key: value
        for key, value in config.to_dict().items()
        if key == "model_type" or not (key in _IRRELEVANT or "drop" in key or value == defaults.get(key))
    }
    return json.dumps(relevant, sort_keys=True, default=str)

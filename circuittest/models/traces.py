"""Reading off a model what a lock remembers of its weights (`circuittest.weights`)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circuittest.models.fingerprint import configuration, weights
from circuittest.models.loaded import Block, LoadedModel, weight_in_out
from circuittest.models.wiring import slot_features
from circuittest.weights import SAMPLE, Weights

#: Digits of a head's digest.
DIGITS = 12


def weights_of(model: LoadedModel) -> Weights | None:
    """Traces of the weights; None for quantised models. Read once per model."""
    if model.quantised:
        return None
    if "weights" not in model.kept:
        heads = _heads(model)
        own = {tensor.data_ptr() for block in model.blocks for tensor, _ in _parts(model, block)}
        rest = sha256(configuration(model.module.config).encode())
        for name, tensor in weights(model.module):
            if not heads or tensor.data_ptr() not in own:
                rest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode() + _bytes(tensor))
        model.kept["weights"] = Weights(heads, rest.hexdigest(), _sample(model))
    found: Weights = model.kept["weights"]
    return found


def _heads(model: LoadedModel) -> tuple[tuple[str, ...], ...]:
    """A digest per layer and head. None for attention with a bias that follows from the head's number (ALiBi)."""
    if model.adapter.residual_inside or getattr(model.module.config, "alibi", False):
        return ()
    layout = model.layout
    found = []
    for block in model.blocks:
        digests = [sha256() for _ in range(layout.n_heads)]
        for tensor, slot in _parts(model, block):
            count = layout.n_heads if slot in ("q", "out") else layout.n_kv_heads
            rows = tensor[_features(model, slot)] if slot != "out" else tensor.unflatten(0, (count, -1))
            for head, digest in enumerate(digests):
                own = rows[head if count == layout.n_heads else head // layout.group_size]
                digest.update(f"{slot} {own.dtype} {list(own.shape)} ".encode() + _bytes(own))
        found.append(tuple(digest.hexdigest()[:DIGITS] for digest in digests))
    return tuple(found)


def _parts(model: LoadedModel, block: Block) -> Iterator[tuple[Tensor, str]]:
    """Weights of a block with a dimension of heads first, and whose they are: "q", "k", "v" or "out".

    A fused projection comes once for each.
    """
    for slot in ("q", "k", "v"):
        own: tuple[Any, ...] = (block.qkv or getattr(block, slot), getattr(block, f"{slot}_norm", None))
        for module in own:
            if module is None:
                continue
            matrix = module.weight.ndim == 2
            yield (weight_in_out(module).T if matrix else module.weight).detach(), slot
            if isinstance(bias := getattr(module, "bias", None), Tensor):
                yield bias.detach(), slot
    yield weight_in_out(block.out).detach(), "out"


def _features(model: LoadedModel, slot: str) -> Tensor:
    layout = model.layout
    return slot_features(model.adapter, slot, layout.n_heads, layout.n_kv_heads, model.head_dim)


def _sample(model: LoadedModel) -> tuple[float, ...]:
    prefix = model.adapter.layers + "."
    matrices = [t for name, t in weights(model.module) if t.ndim >= 2 and name.startswith(prefix)]
    sizes = [matrix.numel() for matrix in matrices]
    places = np.sort(np.random.default_rng(0).integers(0, sum(sizes), SAMPLE))
    found: list[float] = []
    first = 0
    for matrix, size in zip(matrices, sizes, strict=True):
        here = places[(places >= first) & (places < first + size)] - first
        first += size
        if len(here):
            picked = matrix.reshape(-1)[torch.as_tensor(here, device=matrix.device)].double()
            scale = matrix.double().square().mean().sqrt()
            found += (picked / scale).tolist() if scale > 0 else [0.0] * len(here)
    return tuple(float(f"{value:.3g}") for value in found)


def _bytes(tensor: Tensor) -> bytes:
    content: Any = tensor.contiguous().reshape(-1).cpu().view(torch.uint8)
    return sha256(content.numpy().data).digest()

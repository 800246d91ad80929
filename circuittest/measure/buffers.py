"""Memory that is used again and again: large buffers that are freed cost page faults each time they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor


class Buffers:
    """Memory that all passes of one measurement reuse."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def get(self, name: str, shape: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
        """A contiguous tensor whose content is arbitrary."""
        size = prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.numel() < size:
            kept = self._kept[name] = torch.empty(size, dtype=dtype, device=like.device)
        return kept[:size].view(*shape)

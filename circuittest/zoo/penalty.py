"""The head-sparsity penalty that makes the zoo's circuits compact."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def effective_heads(z: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Effective number of active heads per token, 1..heads: (Σ_h n_h)² / Σ_h n_h², n_h = ||W_O^h z_h||
    (Hoyer's ratio, squared).

    ``z`` [batch, tokens, heads·head_size] is what the output projection reads, ``weight`` [width,
    heads·head_size] its weight. It does not change when all heads are scaled together, so it cannot be met
    by making attention small.
    """
    size = z.shape[-1] // heads
    w = weight.view(weight.shape[0], heads, size)
    gram = torch.einsum("dhi,dhj->hij", w, w)
    z = z.reshape(-1, heads, size)
    squares = (torch.einsum("nhi,hij->nhj", z, gram) * z).sum(-1).clamp_min(0) + 1e-6
    return squares.sqrt().sum(-1).square() / squares.sum(-1)


class HeadSparsity:
    """Collects the effective number of heads of every layer in each forward while ``active``."""

    def __init__(self, projections: list[nn.Module], heads: int) -> None:
        self.heads = heads
        self.active = False
        self._found: list[Tensor] = []
        self._handles = [p.register_forward_pre_hook(self._collect) for p in projections]

    def _collect(self, module: Any, args: tuple[Tensor, ...]) -> None:
        if self.active and module.training:
            self._found.append(effective_heads(args[0], module.weight, self.heads).view(args[0].shape[:-1]))

    def take(self, real: Tensor, answers: Tensor) -> Tensor:
        """Sum over layers, half the mean over ``real`` tokens and half that over positions that predict an
        answer (0/1 masks).
        """
        total = torch.zeros(())
        for found in self._found:
            everywhere = (found * real).sum() / real.sum()
            at_answers = (found * answers).sum() / answers.sum().clamp_min(1)
            total = total + 0.5 * everywhere + 0.5 * at_answers
        self._found.clear()
        return total

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()


def predicts_answer(weights: Tensor, threshold: float = 0.5) -> Tensor:
    """Mask of the positions whose next token carries at least ``threshold`` loss weight."""
    return F.pad(weights[:, 1:] >= threshold, (0, 1)).float()

"""Jacobians of the norms that units read and write through, at the clean activations.

LayerNorm and RMSNorm (Gemma's 1 + weight included) are analytic; any other module is differentiated by autograd.
With x̂ the normalised input, r its root mean square (standard deviation for LayerNorm), w the weight and P the
projection off the all-ones direction (the identity for RMSNorm):

    J = diag(w) (P − x̂ x̂ᵀ/d) / r,    Jᵀ = (P − x̂ x̂ᵀ/d) diag(w) / r
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Jacobian:
    """The derivative of one norm at given inputs.

    Attributes
    ----------
    kind:
        "identity" (no norm), "layer", "rms", or "autograd" for a module of another form.
    unit:
        x̂ [rows, width]; for "autograd" the input itself.
    inverse:
        1/r [rows, 1].
    weight:
        w [width].
    """

    kind: Literal["identity", "layer", "rms", "autograd"]
    module: nn.Module | None = None
    unit: Tensor | None = None
    inverse: Tensor | None = None
    weight: Tensor | None = None

    def pull(self, gradients: Tensor) -> Tensor:
        """Jᵀ g for gradients [units, rows, width] at the norm's output: gradients at its input. Overwrites them."""
        if self.kind == "identity":
            return gradients
        if self.kind == "autograd":
            return self._by_autograd(gradients, transposed=True)
        return self._project(gradients.mul_(self.weight))  # type: ignore[arg-type]

    def push(self, changes: Tensor) -> Tensor:
        """J v for changes [units, rows, width] of its input: first-order changes of its output. Overwrites them."""
        if self.kind == "identity":
            return changes
        if self.kind == "autograd":
            return self._by_autograd(changes, transposed=False)
        return self._project(changes).mul_(self.weight)  # type: ignore[arg-type]

    def _project(self, values: Tensor) -> Tensor:
        unit, inverse = self.unit, self.inverse
        if unit is None or inverse is None:
            raise TypeError("an analytic Jacobian has statistics")
        # Per row the units against x̂: [rows, units, 1], with no copy of either.
        along = torch.bmm(values.transpose(0, 1), unit.unsqueeze(-1)).transpose(0, 1)
        if self.kind == "layer":
            values.sub_(values.mean(-1, keepdim=True))
        return values.addcmul_(along, unit, value=-1.0 / unit.shape[-1]).mul_(inverse)

    def _by_autograd(self, values: Tensor, *, transposed: bool) -> Tensor:
        module, point = self.module, self.unit
        if module is None or point is None:
            raise TypeError("a differentiated norm has a module and a point")
        wide = point.expand_as(values).clone()
        if transposed:
            return torch.autograd.functional.vjp(module.forward, wide, values)[1]
        return torch.autograd.functional.jvp(module.forward, wide, values)[1]


class Norm:
    """One norm of a model, recognised once, from which Jacobians at many inputs are made."""

    def __init__(self, module: nn.Module | None, dtype: torch.dtype) -> None:
        self.module = module
        self.dtype = dtype
        self.kind: Literal["identity", "layer", "rms", "autograd"] = "autograd"
        self.weight: Tensor | None = None
        self.eps = 0.0
        if module is None:
            self.kind = "identity"
        elif type(module) is nn.LayerNorm and len(module.normalized_shape) == 1:
            self.kind, self.eps = "layer", module.eps
            self.weight = (
                torch.ones(module.normalized_shape) if module.weight is None else module.weight.detach()
            ).to(dtype)
        else:
            self._recognise_rms(module)
            if self.kind == "autograd":
                self._recognise_bare(module)

    def at(self, inputs: Tensor) -> Jacobian:
        """The Jacobian at inputs [rows, width] of the norm."""
        x = inputs.detach().to(self.dtype)
        if self.kind in ("identity", "autograd"):
            return Jacobian(self.kind, self.module, x)
        if self.kind == "layer":
            x = x - x.mean(-1, keepdim=True)
        inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        weight = None if self.weight is None else self.weight.to(x.device)
        return Jacobian(self.kind, self.module, x * inverse, inverse, weight)

    def scale(self, values: Tensor) -> Tensor:
        """P diag(w) v for vectors [..., width]: Jᵀ without the statistics of an input. Overwrites them."""
        if self.weight is None:
            raise TypeError("only an analytic norm has such a part")
        values.mul_(self.weight.to(values.device))
        return values.sub_(values.mean(-1, keepdim=True)) if self.kind == "layer" else values

    def _recognise_rms(self, module: nn.Module) -> None:
        weight = getattr(module, "weight", None)
        eps = getattr(module, "variance_epsilon", None) or getattr(module, "eps", None)
        if not isinstance(weight, Tensor) or weight.ndim != 1 or not isinstance(eps, float):
            return
        generator = torch.Generator().manual_seed(0)
        # Two scales, one of them near the square root of eps, so that a norm without it, or with another, differs.
        probe = torch.randn((2, weight.shape[0]), generator=generator) * torch.tensor([[1.0], [eps**0.5]])
        probe = probe.to(weight.device, weight.dtype)
        with torch.no_grad():
            out = module.forward(probe).double()
            unit = probe.double() * torch.rsqrt(probe.double().pow(2).mean(-1, keepdim=True) + eps)
        noise = 64 * max(torch.finfo(weight.dtype).eps, torch.finfo(torch.float32).eps)
        for offset in (0.0, 1.0):
            scale = offset + weight.detach().double()
            if torch.allclose(out, unit * scale, rtol=noise, atol=noise):
                self.kind, self.eps, self.weight = "rms", eps, scale.to(self.dtype)
                return

    def _recognise_bare(self, module: nn.Module) -> None:
        """A layer norm of another class that has no parameters (OLMo)."""
        shape = getattr(module, "normalized_shape", None)
        if not isinstance(shape, tuple) or len(shape) != 1 or any(True for _ in module.parameters()):
            return
        eps = getattr(module, "eps", 1e-5)
        probe = torch.randn((2, shape[0]), generator=torch.Generator().manual_seed(0))
        probe = (probe * torch.tensor([[1.0], [eps**0.5]])).to(self.dtype)
        with torch.no_grad():
            out = module.forward(probe)
        noise = 64 * torch.finfo(torch.float32).eps
        expected = nn.functional.layer_norm(probe, shape, eps=eps)
        if torch.allclose(out, expected, rtol=noise, atol=noise):
            self.kind, self.eps, self.weight = "layer", eps, torch.ones(shape, dtype=self.dtype)

"""Norm Jacobians against autograd, and which norms are taken for which."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm

from circuittest.measure.norms import Norm
from tests.helpers import tiny

WIDTH = 7


class Odd(nn.Module):
    """A norm of neither form: the root mean square of x³."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.pow(6).mean(-1, keepdim=True) + self.eps).pow(1 / 6)


def make(kind: str) -> nn.Module:
    norm: nn.Module
    if kind == "layer":
        norm = nn.LayerNorm(WIDTH)
    elif kind == "layer-bare":
        norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
    elif kind == "llama":
        norm = LlamaRMSNorm(WIDTH)
    elif kind == "olmo":
        norm = OlmoLayerNorm(WIDTH)
    elif kind == "gemma":
        norm = Gemma3RMSNorm(WIDTH)
    else:
        norm = Odd()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    norm = norm.double()
    holder = nn.Module()
    holder.norm = norm
    tiny._exact_norms(holder)
    return norm


@pytest.mark.parametrize(
    ("kind", "recognised"),
    [
        ("layer", "layer"),
        ("layer-bare", "layer"),
        ("llama", "rms"),
        ("gemma", "rms"),
        ("olmo", "layer"),
        ("odd", "autograd"),
    ],
)
def test_pull_and_push_are_the_jacobian(kind: str, recognised: str) -> None:
    module = make(kind)
    norm = Norm(module, torch.float64)
    assert norm.kind == recognised
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, WIDTH, generator=generator, dtype=torch.float64)
    vectors = torch.randn(5, 3, WIDTH, generator=generator, dtype=torch.float64)
    exact = torch.stack([torch.autograd.functional.jacobian(module, row) for row in x])
    pushed = norm.at(x).push(vectors.clone())
    pulled = norm.at(x).pull(vectors.clone())
    torch.testing.assert_close(pushed, torch.einsum("nij,unj->uni", exact, vectors), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(pulled, torch.einsum("nij,uni->unj", exact, vectors), rtol=1e-10, atol=1e-12)


def test_no_norm_is_the_identity() -> None:
    vectors = torch.ones(2, 3, WIDTH)
    assert Norm(None, torch.float32).at(torch.zeros(3, WIDTH)).pull(vectors) is vectors
    assert Norm(None, torch.float32).at(torch.zeros(3, WIDTH)).push(vectors) is vectors


@pytest.mark.parametrize("architecture", tiny.marked(tiny.EVERY))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_norms_of_every_adapter_are_analytic(architecture: str, dtype: torch.dtype) -> None:
    model = tiny.build_loaded(architecture, dtype=dtype)
    for block in model.blocks:
        pre, post = (block.attn_norm, block.mlp_norm), (block.attn_post_norm, block.mlp_post_norm)
        for module in (*pre, *post, block.q_norm, block.k_norm):
            assert module is None or Norm(module, dtype).kind in ("layer", "rms")


def test_a_norm_with_another_eps_is_not_taken_for_rms() -> None:
    class Hidden(LlamaRMSNorm):
        def forward(self, x: Tensor) -> Tensor:
            return (
                self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 100 * self.variance_epsilon)
            )

    assert Norm(Hidden(WIDTH).double(), torch.float64).kind == "autograd"

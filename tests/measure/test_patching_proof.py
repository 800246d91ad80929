"""Patches that did not take effect are refused by name, whatever went wrong: hooks of others, bypasses, our own mistakes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from circuittest.errors import InterventionError
from circuittest.measure import patching, rewiring
from circuittest.measure.edges import edges
from circuittest.measure.patching import patch
from circuittest.measure.slots import Slots
from circuittest.measure.wires import Wires
from circuittest.models.hooks import hooks
from circuittest.models.loaded import LoadedModel
from circuittest.units import Edge
from tests.helpers import tiny
from tests.helpers.items import random_items


@lru_cache
def model_of(architecture: str) -> LoadedModel:
    return tiny.build_loaded(architecture, dtype=torch.float64)


def run(model: LoadedModel, *texts: str, keep: bool = False, value: str = "counterfactual") -> None:
    circuit = [Edge.parse(text) for text in texts] or edges(model.layout)[0][::2]
    patch(model, random_items(2, (6,)), [circuit, ()], keep=keep, value=value)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gpt_neox", "gemma3_text"])
@pytest.mark.parametrize(("reader", "name"), [(0, "L0.H0.q"), (-1, "logits")])
def test_a_forgotten_edge_is_noticed(
    architecture: str, reader: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Wires.__init__

    def forgetful(self: Wires, layout: Any, replaced: Tensor) -> None:
        lost = replaced.clone()
        lost[0, 0, reader] = ~lost[0, 0, reader]
        plain(self, layout, lost)
        self.replaced = replaced

    monkeypatch.setattr(Wires, "__init__", forgetful)
    with pytest.raises(
        InterventionError,
        match=f"{name} was not patched: (it did not read its replaced writes|nothing was mixed)",
    ):
        run(model_of(architecture))


def test_heads_in_the_wrong_order_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Slots.__call__
    swapped = lambda self, inputs, which: plain(self, inputs, which).flip(0)
    monkeypatch.setattr(Slots, "__call__", swapped)
    with pytest.raises(
        InterventionError, match=r"L0\.H\d\.q was not patched: it did not read the projection"
    ):
        run(model_of("llama"))


@pytest.mark.parametrize(
    ("role", "match"),
    [
        ("v", r"L1\.KV0\.v was not patched: it did not read the projection of what was mixed"),
        ("mlp", r"L1\.MLP was not patched: it did not read the norm of what was mixed"),
    ],
)
def test_hooks_of_others_that_undo_a_patch_are_noticed(
    role: str, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come after the patch's own, as from another tool that patches the same module during the pass."""
    model = model_of("llama")
    block = model.blocks[1]
    applied = rewiring.Rewired.applied

    def undoing(self: Any) -> Any:
        manager = applied(self)

        class Both:
            def __enter__(inner) -> None:
                inner.proof, self.proof = self.proof, None
                inner.first = applied(self)
                inner.first.__enter__()
                shift: Callable[..., Any]
                if role == "v":
                    shift = lambda module, args, output: output + 0.1
                    inner.other = hooks(block.v.register_forward_hook(shift))
                else:
                    shift = lambda module, args: (args[0] + 0.1, *args[1:])
                    inner.other = hooks(block.mlp.register_forward_pre_hook(shift))
                inner.other.__enter__()
                self.proof = inner.proof
                inner.watch = inner.proof.watching()
                inner.watch.__enter__()

            def __exit__(inner, *error: Any) -> None:
                inner.watch.__exit__(*error)
                inner.other.__exit__(*error)
                inner.first.__exit__(*error)

        del manager
        return Both()

    monkeypatch.setattr(patching.Rewired, "applied", undoing)
    with pytest.raises(InterventionError, match=match):
        run(model, "embed->L0.H0.q", "L0.H1->L1.KV0.v", "L0.H1->L1.MLP")


def test_a_projection_that_is_bypassed_is_refused() -> None:
    model = tiny.wrap(tiny.build("llama", dtype=torch.float64).requires_grad_(False))
    attention = model.blocks[1].attention
    weight = attention.q_proj.weight
    plain = attention.forward

    def fused(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        projection = attention.q_proj
        stand_in = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
        stand_in.weight.requires_grad_(False).copy_(weight)
        attention.q_proj = stand_in
        try:
            return plain(hidden_states, *args, **kwargs)
        finally:
            attention.q_proj = projection

    attention.forward = fused
    with pytest.raises(InterventionError, match="the module 'q' of layer L1 ran 0 times in one forward pass"):
        run(model, "L0.H1->L1.H2.q")


def test_a_block_that_runs_twice_is_refused() -> None:
    model = tiny.wrap(tiny.build("gpt2", dtype=torch.float64).requires_grad_(False))
    mlp = model.module.transformer.h[1].mlp
    plain = model.module.transformer.h[1].forward

    def twice(*args: Any, **kwargs: Any) -> Any:
        mlp(args[0])
        return plain(*args, **kwargs)

    model.module.transformer.h[1].forward = twice
    with pytest.raises(InterventionError, match="'mlp' of layer L1 ran 2 times"):
        run(model, "embed->L0.H0.q", "L1.MLP->logits", value="zero")
    with pytest.raises(InterventionError, match="the MLP of layer L1 ran twice"):
        run(model, "L1.MLP->logits")

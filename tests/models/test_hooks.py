"""Hooks and the frozen context leave a module exactly as it was, however their block ends."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from circuittest.models.hooks import count, frozen, hooks, on_input, on_output


def test_only_own_hooks_are_removed() -> None:
    part = nn.Linear(2, 2)
    part.register_forward_hook(lambda *_: None)

    def fail_with_hooks() -> None:
        with hooks(part.register_forward_hook(lambda *_: None)):
            part.register_forward_pre_hook(lambda *_: None)  # somebody else's, made meanwhile
            assert count(part) == 3
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail_with_hooks()
    assert count(part) == 2


def test_changes_reach_input_and_output_and_end_with_the_block() -> None:
    part, x = nn.Identity(), torch.ones(2, 3)
    with on_input(part, lambda t: t + 1), on_output(part, lambda t: t * 5):
        assert part(x).tolist() == [[10.0] * 3] * 2
    assert part(x) is x
    assert x.tolist() == [[1.0] * 3] * 2


def test_a_change_of_none_leaves_the_tensor() -> None:
    part, x = nn.Identity(), torch.ones(2)
    with on_input(part, lambda _: None), on_output(part, lambda _: None):
        assert part(x) is x


class Keyword(nn.Module):
    def forward(self, *, hidden_states: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, str]:
        return hidden_states * scale, "weights"


def test_keyword_calls_and_tuples() -> None:
    part, x = Keyword(), torch.ones(2)
    with on_input(part, lambda t: t + 1), on_output(part, lambda t: -t):
        output, rest = part(hidden_states=x, scale=3.0)
    assert output.tolist() == [-6.0, -6.0]
    assert rest == "weights"


def test_frozen_restores_every_flag_even_after_an_error() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 2))
    module[2].eval()
    module[0].bias.requires_grad_(False)
    training = [part.training for part in module.modules()]
    learning = [parameter.requires_grad for parameter in module.parameters()]

    def fail_while_frozen() -> None:
        with frozen(module):
            assert not any(part.training for part in module.modules())
            assert not any(parameter.requires_grad for parameter in module.parameters())
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_while_frozen()
    assert [part.training for part in module.modules()] == training
    assert [parameter.requires_grad for parameter in module.parameters()] == learning


def test_frozen_gives_no_gradient_to_parameters_but_to_activations() -> None:
    module = nn.Linear(2, 1)
    module.weight.grad = torch.full((1, 2), 7.0)
    x = torch.ones(3, 2, requires_grad=True)
    with frozen(module):
        module(x).sum().backward()
    assert x.grad is not None
    assert module.weight.grad.tolist() == [[7.0, 7.0]]


def test_a_hook_ahead_sees_what_earlier_hooks_will_change() -> None:
    linear, seen = nn.Linear(2, 2), []
    with on_input(linear, lambda x: x[:1]), on_input(linear, seen.append, ahead=True):
        assert linear(torch.zeros(3, 2)).shape == (1, 2)
    assert [x.shape for x in seen] == [(3, 2)]

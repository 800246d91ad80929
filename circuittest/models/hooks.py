"""Hooks that leave nothing behind: each context removes its own handles and no others.

Hooks return new tensors; they never write into the ones they are given, which autograd or a caller may still need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Change = Callable[[Tensor], Tensor | None]


@contextmanager
def hooks(*handles: RemovableHandle) -> Iterator[None]:
    """Keep hooks for the length of a `with` block; remove these, and only these, however it ends."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def on_input(module: nn.Module, change: Change, *, ahead: bool = False) -> Iterator[None]:
    """Pass a module's input through `change` before the module sees it; None leaves it as it is.

    The input is the first positional argument, or ``hidden_states`` where a block is called by keyword. With `ahead`
    the hook comes before those that are there already.
    """

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        new = change(args[0] if args else kwargs["hidden_states"])
        if new is None:
            return None
        return ((new, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": new})

    with hooks(module.register_forward_pre_hook(hook, with_kwargs=True, prepend=ahead)):
        yield


@contextmanager
def on_output(module: nn.Module, change: Change) -> Iterator[None]:
    """Pass a module's output (the first element, where it is a tuple) through `change`; None leaves it as it is."""

    def hook(_: nn.Module, args: Any, output: Any) -> Any:
        new = change(first(output))
        if new is None:
            return None
        return (new, *output[1:]) if isinstance(output, tuple) else new

    with hooks(module.register_forward_hook(hook)):
        yield


@contextmanager
def instead(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Within a `with` block, calls of a module run `forward(own, *args)`, `own` being what they would have run.

    Hooks run as usual. Only the module's ``forward`` attribute is replaced, and put back however the block ends.
    """
    before, own = module.__dict__.get("forward"), module.forward
    object.__setattr__(module, "forward", partial(forward, own))
    try:
        yield
    finally:
        if before is None:
            object.__delattr__(module, "forward")
        else:
            object.__setattr__(module, "forward", before)


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients to the parameters, both put back as they were, part by part.

    A trainer's module is measured inside this, so that no ``.grad`` is touched and dropout is off.
    """
    training = [part for part in module.modules() if part.training]
    learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        for part in training:
            part.training = False
        for parameter in learning:
            parameter.requires_grad_(False)
        yield
    finally:
        for part in training:
            part.training = True
        for parameter in learning:
            parameter.requires_grad_(True)


def count(module: nn.Module) -> int:
    """How many forward and backward hooks a module and its parts carry; equal before and after a measurement."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(part, kind)) for part in module.modules() for kind in kinds)


def altered(module: nn.Module) -> bool:
    """Does a module, or a part of it, compute something else than its class and weights say?"""
    return any(
        part._forward_hooks
        or part._forward_pre_hooks
        or ("forward" in vars(part) and "_hf_hook" not in vars(part))  # accelerate's moves tensors, no more
        or part._compiled_call_impl is not None
        for part in module.modules()
    )


def version(tensor: Tensor) -> int:
    """How often a tensor was written into; 0 for inference tensors, which do not count."""
    return 0 if tensor.is_inference() else tensor._version


def first(output: Any) -> Tensor:
    """The tensor of a module's output, which may be the first element of a tuple."""
    return output[0] if isinstance(output, tuple) else output

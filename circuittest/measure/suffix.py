"""Rerunning only the blocks from some layer on: what comes before an intervention is the clean run's.

Masks, position ids and rotary tables are the architecture's own business, so the trunk itself is run, with the
early blocks replaced: they pass their input on, and the last of them returns the cached residual. In the first block
that is rerun the heads, too, are still the clean run's: only the output projection of its attention is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError
from circuittest.measure.metrics import last_rows
from circuittest.models.hooks import hooks, instead, on_input
from circuittest.models.loaded import LoadedModel


@dataclass(frozen=True)
class CleanRun:
    """The untouched model on one batch.

    Attributes
    ----------
    rows:
        The trunk's output at the last position [batch, width], of several last ones [batch, tail, width].
    residuals:
        Layer → input of that block [batch, length, width], for the layers asked for.
    heads:
        Layer → input of its attention's output projection [batch, length, heads · size], for the same layers.
    tuples:
        True where the blocks return tuples.
    """

    rows: Tensor
    residuals: dict[int, Tensor]
    heads: dict[int, Tensor]
    tuples: bool


@torch.no_grad()
def clean_run(model: LoadedModel, ids: Tensor, layers: Iterable[int], tail: int = 1) -> CleanRun:
    """Run the untouched model on ids [batch, length]; keep the last rows and the residual before some layers."""
    residuals: dict[int, Tensor] = {}
    heads: dict[int, Tensor] = {}
    tuples: list[bool] = []

    def keep(where: dict[int, Tensor], layer: int) -> Any:
        def hook(tensor: Tensor) -> None:
            where[layer] = tensor

        return hook

    wanted = sorted(set(layers))
    with ExitStack() as stack:
        for layer in wanted:
            stack.enter_context(on_input(model.blocks[layer].block, keep(residuals, layer)))
            stack.enter_context(on_input(model.blocks[layer].out, keep(heads, layer)))
        look = lambda _module, _args, output: tuples.append(isinstance(output, tuple))
        stack.enter_context(hooks(model.blocks[0].block.register_forward_hook(look)))
        rows = last_rows(model.trunk(ids, use_cache=False).last_hidden_state, tail)
    missing = [f"block L{layer}" for layer in wanted if layer not in residuals]
    missing += [f"the attention's output projection of L{layer}" for layer in wanted if layer not in heads]
    if missing or len(tuples) != 1:
        raise InterventionError(
            f"{missing[0] if missing else 'block L0'} did not run once in a forward pass",
            "its hook did not fire once",
            "check the adapter's path for it; a fused kernel may bypass the module",
        )
    return CleanRun(rows, residuals, heads, tuples[0])


@contextmanager
def resume(model: LoadedModel, layer: int, residual: Tensor | None, *, tuples: bool) -> Iterator[None]:
    """Within a `with` block, a forward of the trunk starts at block `layer` from `residual`; layer 0 runs it whole.

    Only the early blocks' ``forward`` attributes are replaced, and put back however the block ends.
    """
    if layer and residual is None:
        raise InterventionError(f"no cached residual for layer L{layer}", "the clean run did not keep it")
    before: list[tuple[nn.Module, Any]] = []
    try:
        for index in range(layer):
            block = model.blocks[index].block
            before.append((block, block.__dict__.get("forward")))
            object.__setattr__(block, "forward", _stand_in(residual if index == layer - 1 else None, tuples))
        yield
    finally:
        for block, forward in reversed(before):
            if forward is None:
                object.__delattr__(block, "forward")
            else:
                object.__setattr__(block, "forward", forward)


def _stand_in(residual: Tensor | None, tuples: bool) -> Any:
    def forward(hidden_states: Tensor, *_: Any, **__: Any) -> Any:
        passed = hidden_states if residual is None else residual
        return (passed,) if tuples else passed

    return forward


@contextmanager
def same_heads(model: LoadedModel, layer: int, heads: Tensor) -> Iterator[None]:
    """Within a `with` block, the attention of block `layer` is its output projection of these heads alone.

    heads: [batch, length, heads · size], what the projection was given where nothing before it was changed.
    """
    block = model.blocks[layer]

    def forward(_own: Any, *_: Any, **__: Any) -> Any:
        return block.out(heads), None  # attention modules give their weights beside

    with instead(block.attention, forward):
        yield


@contextmanager
def answer_position_only(model: LoadedModel) -> Iterator[None]:
    """Within a `with` block, output projection and MLP of the last block see the last position alone.

    Only there is the last block's output read. What they give is added to the residual of all positions, whose
    other rows are then meaningless.
    """
    last = model.blocks[-1]
    cut = lambda tensor: tensor[:, -1:]
    with on_input(last.out, cut), on_input(last.mlp, cut):
        yield


@dataclass(frozen=True)
class Shortcuts:
    """Which shortcuts are exact for an architecture.

    Attributes
    ----------
    cut:
        `answer_position_only`.
    heads:
        `same_heads`.
    """

    cut: bool
    heads: bool


@torch.no_grad()
def shortcuts(model: LoadedModel, ids: Tensor) -> Shortcuts:
    """Try the shortcuts on ids [batch, length], in the last block.

    Raises InterventionError where resuming at the last block does not give the whole run's output.
    """
    layer = model.layout.n_layers - 1
    run = clean_run(model, ids, [layer])
    if not bool(torch.isfinite(run.rows).all()):
        raise InterventionError(
            "the model's output is not finite",
            "activations overflow, or weights are wrong",
            "run in float32, or choose another checkpoint",
        )
    tolerance = 64 * float(run.rows.abs().max()) * torch.finfo(run.rows.dtype).eps

    def agrees(shortcut: AbstractContextManager[None]) -> bool:
        with shortcut, resume(model, layer, run.residuals[layer], tuples=run.tuples):
            rows = last_rows(model.trunk(ids, use_cache=False).last_hidden_state)
        return torch.allclose(rows, run.rows, rtol=0.0, atol=tolerance)

    def exact(shortcut: AbstractContextManager[None]) -> bool:
        try:
            return agrees(shortcut)
        except (RuntimeError, ValueError, TypeError):
            return False  # such a block needs all positions, or its attention does more

    alike = len({type(block.attention).__name__ for block in model.blocks}) == 1
    found = Shortcuts(
        cut=exact(answer_position_only(model)),
        heads=alike and exact(same_heads(model, layer, run.heads[layer])),
    )
    if not found.cut and not found.heads and not agrees(nullcontext()):
        raise InterventionError(
            f"a run resumed at layer L{layer} differs from the whole run",
            "something other than the residual passes between the blocks",
            "this architecture needs an adapter of its own",
        )
    return found

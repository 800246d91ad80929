"""Rerunning only the blocks from some layer on: what comes before an intervention is the clean run's.

Masks, position ids and rotary tables are the architecture's own business, so the trunk itself is run, with the
early blocks replaced: they pass their input on, and the last of them returns the cached residual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError
from circuittest.measure.metrics import last_rows
from circuittest.models.hooks import hooks, on_input
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
    tuples:
        True where the blocks return tuples.
    """

    rows: Tensor
    residuals: dict[int, Tensor]
    tuples: bool


@torch.no_grad()
def clean_run(model: LoadedModel, ids: Tensor, layers: Iterable[int], tail: int = 1) -> CleanRun:
    """Run the untouched model on ids [batch, length]; keep the last rows and the residual before some layers."""
    residuals: dict[int, Tensor] = {}
    tuples: list[bool] = []

    def keep(layer: int) -> Any:
        def hook(tensor: Tensor) -> None:
            residuals[layer] = tensor

        return hook

    wanted = sorted(set(layers))
    with ExitStack() as stack:
        for layer in wanted:
            stack.enter_context(on_input(model.blocks[layer].block, keep(layer)))
        look = lambda _module, _args, output: tuples.append(isinstance(output, tuple))
        stack.enter_context(hooks(model.blocks[0].block.register_forward_hook(look)))
        rows = last_rows(model.trunk(ids, use_cache=False).last_hidden_state, tail)
    missing = [layer for layer in wanted if layer not in residuals]
    if missing or len(tuples) != 1:
        raise InterventionError(
            f"block L{missing[0] if missing else 0} did not run once in a forward pass",
            "its hook did not fire once",
            "check the adapter's path to the blocks",
        )
    return CleanRun(rows, residuals, tuples[0])


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
def answer_position_only(model: LoadedModel) -> Iterator[None]:
    """Within a `with` block, output projection and MLP of the last block see the last position alone.

    Only there is the last block's output read. What they give is added to the residual of all positions, whose
    other rows are then meaningless.
    """
    last = model.blocks[-1]
    cut = lambda tensor: tensor[:, -1:]
    with on_input(last.out, cut), on_input(last.mlp, cut):
        yield


@torch.no_grad()
def can_cut(model: LoadedModel, ids: Tensor) -> bool:
    """Try both shortcuts on ids [batch, length]: is `answer_position_only` exact for this architecture?

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

    def resumed() -> Tensor:
        with resume(model, layer, run.residuals[layer], tuples=run.tuples):
            return last_rows(model.trunk(ids, use_cache=False).last_hidden_state)

    tolerance = 64 * float(run.rows.abs().max()) * torch.finfo(run.rows.dtype).eps
    agrees = lambda rows: torch.allclose(rows, run.rows, rtol=0.0, atol=tolerance)
    try:
        with answer_position_only(model):
            exact = agrees(resumed())
    except (RuntimeError, ValueError, TypeError):
        exact = False  # such a block needs all positions
    if not exact and not agrees(resumed()):
        raise InterventionError(
            f"a run resumed at layer L{layer} differs from the whole run",
            "something other than the residual passes between the blocks",
            "this architecture needs an adapter of its own",
        )
    return exact

"""What attribution needs of one batch: how every unit's write changes, and the metric's gradients where units read.

Two forwards and one backward. Everything is captured by hooks on the Hugging Face module; a capture that did not
fire, fired twice or is not part of the graph is an error, never a zero.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel
from circuittest.measure.batches import Batch
from circuittest.measure.metrics import Targets, last_rows, metric_values
from circuittest.models.hooks import on_input, on_output, version
from circuittest.models.loaded import LoadedModel

Place = tuple[str, int]

#: Places whose gradients are the edges' readers, and the units' own.
_READS = ("q", "k", "v", "qkv", "mlp_in", "final")
_WRITES = ("embed", "z", "mlp")


@dataclass
class Captures:
    """Tensors taken by hooks, by (role, layer). Roles: see `clean_pass`."""

    tensors: dict[Place, Tensor] = field(default_factory=dict)
    versions: dict[Place, int] = field(default_factory=dict)

    def take(
        self, role: str, layer: int, *, alias: bool = False, copy: bool = False
    ) -> Callable[[Tensor], Tensor | None]:
        """A hook that records what passes.

        With `alias` it passes on a view, whose gradient is this reader's alone; with `copy` a copy, into which the
        model may write.
        """

        def hook(tensor: Tensor) -> Tensor | None:
            if (role, layer) in self.tensors:
                raise InterventionError(
                    f"{_name(role, layer)} ran twice in one forward pass",
                    "a unit that is used twice has no single write and no single read",
                    "register an adapter that names modules which run once",
                )
            kept = self.tensors[role, layer] = tensor.view_as(tensor) if alias else tensor
            self.versions[role, layer] = version(kept)
            if copy:
                return kept.clone()
            return kept if alias else None

        return hook

    def __getitem__(self, place: Place) -> Tensor:
        if place not in self.tensors:
            raise InterventionError(
                f"{_name(*place)} did not run",
                "its hook never fired, so its activations and gradients are unknown",
                "check the adapter's path for it; a fused kernel may bypass the module",
            )
        tensor = self.tensors[place]
        if version(tensor) != self.versions[place]:
            raise InterventionError(
                f"what passed {_name(*place)} was changed in place afterwards",
                "its values are no longer those that were measured",
                "register an adapter with in_place=True",
            )
        return tensor


@dataclass(frozen=True)
class Trace:
    """One batch, traced.

    Attributes
    ----------
    changes:
        Counterfactual minus clean write, detached: ("embed", 0) and ("mlp", layer) [batch, length, width],
        ("z", layer) [batch, length, heads · head size], the input of the output projection.
    clean:
        Clean activations, detached: inputs of the norms ("attn_norm", "mlp_norm", "q_norm", "k_norm", "attn_post",
        "mlp_post", layer).
    gradients:
        Of the sum of the examples' metrics, at the places asked for.
    metric:
        Clean metric of each example [batch].
    """

    changes: dict[Place, Tensor]
    clean: dict[Place, Tensor]
    gradients: dict[Place, Tensor]
    metric: Tensor


def trace(model: LoadedModel, batch: Batch, metric: str, *, reads: bool) -> Trace:
    """Run counterfactual and clean prompts and differentiate the metric at the clean ones.

    With `reads` the gradients are those of every reading slot, else those of every unit's write.

    Raises
    ------
    UnsupportedModel
        For quantised weights.
    InterventionError
        Where a capture did not fire, fired twice, or has no gradient.
    """
    if model.quantised:
        raise UnsupportedModel(
            f"{model.name} is quantised",
            "gradients through rounded weights are not gradients of the model",
            "attribute the unquantised model; a quantised one can be ablated",
        )
    other = _counterfactual_pass(model, batch)
    with torch.enable_grad():
        seen, values = _clean_pass(model, batch, metric, reads=reads)
        layers = range(model.layout.n_layers)
        split = ("q", "k", "v") if model.adapter.qkv is None else ("qkv",)
        roles = (*split, "mlp_in") if reads else ("z", "mlp")
        places: list[Place] = [(role, layer) for layer in layers for role in roles]
        places.append(("final", 0) if reads else ("embed", 0))
        gradients = _gradients(values, {place: seen[place] for place in places})
    writes: list[Place] = [("embed", 0), *((role, layer) for layer in layers for role in ("z", "mlp"))]
    changes = {place: other[place] - seen[place].detach() for place in writes}
    norms = ("attn_norm", "mlp_norm", "q_norm", "k_norm", "attn_post", "mlp_post")
    clean = {place: t.detach() for place, t in seen.tensors.items() if place[0] in norms}
    return Trace(changes, clean, gradients, values.detach())


def _counterfactual_pass(model: LoadedModel, batch: Batch) -> Captures:
    seen = Captures()
    with torch.no_grad(), ExitStack() as stack:
        _watch_writes(model, seen, stack)
        model.trunk(batch.counterfactuals(model.device), use_cache=False)
    return seen


def _clean_pass(model: LoadedModel, batch: Batch, metric: str, *, reads: bool) -> tuple[Captures, Tensor]:
    seen = Captures()
    with ExitStack() as stack:
        # The residual enters the blocks as a leaf, so that the graph exists although all weights are frozen.
        leaf = lambda x: x.detach().requires_grad_()
        stack.enter_context(on_input(model.blocks[0].block, leaf))
        _watch_writes(model, seen, stack)
        if reads:
            _watch_reads(model, seen, stack)
        hidden = model.trunk(batch.prompts(model.device), use_cache=False).last_hidden_state
    targets = Targets.of(batch.items, model.device)
    return seen, metric_values(model, last_rows(hidden), targets, metric)


def _watch_writes(model: LoadedModel, seen: Captures, stack: ExitStack) -> None:
    stack.enter_context(on_input(model.blocks[0].block, seen.take("embed", 0)))
    for layer, block in enumerate(model.blocks):
        stack.enter_context(on_input(block.out, seen.take("z", layer)))
        stack.enter_context(on_output(block.mlp_out, seen.take("mlp", layer, copy=model.in_place)))


def _watch_reads(model: LoadedModel, seen: Captures, stack: ExitStack) -> None:
    def inputs(module: nn.Module | None, role: str, layer: int, *, alias: bool = False) -> None:
        if module is not None:
            stack.enter_context(on_input(module, seen.take(role, layer, alias=alias)))

    for layer, block in enumerate(model.blocks):
        for role in ("q", "k", "v") if block.qkv is None else ("qkv",):
            if (module := block.slot(role)) is not None:
                stack.enter_context(on_output(module, seen.take(role, layer, copy=model.in_place)))
        inputs(block.mlp, "mlp_in", layer, alias=True)
        inputs(block.q_norm, "q_norm", layer)
        inputs(block.k_norm, "k_norm", layer)
        inputs(block.attn_norm, "attn_norm", layer)
        if block.mlp_norm is not block.attn_norm:
            inputs(block.mlp_norm, "mlp_norm", layer)
        inputs(block.attn_post_norm, "attn_post", layer)
        inputs(block.mlp_post_norm, "mlp_post", layer)
    inputs(model.final_norm, "final", 0, alias=True)


def _gradients(values: Tensor, at: dict[Place, Tensor]) -> dict[Place, Tensor]:
    try:
        found = torch.autograd.grad(values.sum(), list(at.values()), allow_unused=True)
    except RuntimeError as error:
        raise InterventionError("the metric has no gradient", str(error)) from error
    for place, gradient in zip(at, found, strict=True):
        if gradient is None:
            raise InterventionError(
                f"the metric has no gradient at {_name(*place)}",
                "what the hook saw is not what the model went on with",
                "check the adapter's path for it",
            )
    return dict(zip(at, found, strict=True))


def _name(role: str, layer: int) -> str:
    words = {
        "embed": "the first block",
        "final": "the final norm",
        "z": "the attention output projection",
        "mlp": "the MLP",
        "mlp_in": "the MLP",
    }
    word = words.get(role, f"the module {role!r}")
    return word if role in ("embed", "final") else f"{word} of layer L{layer}"

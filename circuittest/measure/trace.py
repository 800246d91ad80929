"""What attribution needs of one batch: how every unit's write changes, and the metric's gradients where units read.

Two forwards and one backward; `points` repeats the gradients along a path of inputs. Everything is captured by hooks
on the Hugging Face module; a capture that did not fire, fired twice or is not part of the graph is an error, never a
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

#: What units write when replaced, by place; broadcastable to [batch, length, features].
Writes = Mapping[Place, Tensor]

_NORMS = ("attn_norm", "mlp_norm", "q_norm", "k_norm", "attn_post", "mlp_post")


@dataclass
class Captures:
    """Tensors taken by hooks, by (role, layer)."""

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
    """One batch, traced: at the clean prompts, or at one point of a path towards them.

    Attributes
    ----------
    changes:
        Replaced minus clean write, detached: ("embed", 0) and ("mlp", layer) [batch, length, width],
        ("z", layer) [batch, length, heads · head size], the input of the output projection.
    norms:
        Detached inputs of the norms ("attn_norm", "mlp_norm", "q_norm", "k_norm", "attn_post", "mlp_post", layer)
        where the gradients were taken.
    gradients:
        Of the sum of the examples' metrics, at the places asked for.
    slots:
        Detached outputs of the projections whose gradients are there ("q", "k", "v" or "qkv", layer); on a path only.
    summed:
        True where the trace is the sum of points of a path (`integrated`): gradients at q, k and v are then divided by
        r of the norm before them, and those at the MLPs are pulled through theirs.
    ranks:
        Of such a sum, layer → ⟨W diag(w) x̂, g⟩ / (r d) [batch, length, slots, points] and x̂ [batch, length, points,
        width], where there is a norm.
    """

    changes: dict[Place, Tensor]
    norms: dict[Place, Tensor]
    gradients: dict[Place, Tensor]
    slots: dict[Place, Tensor] = field(default_factory=dict)
    summed: bool = False
    ranks: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)


def write_places(model: LoadedModel) -> list[Place]:
    """Where units write: what enters the blocks, and per layer the heads' slices ("z") and the MLP's output."""
    layers = range(model.layout.n_layers)
    return [("embed", 0), *((role, layer) for layer in layers for role in ("z", "mlp"))]


def trace(
    model: LoadedModel, batch: Batch, metric: str, *, reads: bool, others: Writes | None = None
) -> Trace:
    """Differentiate the metric at the clean prompts; changes are to `others`, by default the counterfactuals' writes.

    With `reads` the gradients are those of every reading slot, else those of every unit's write.

    Raises
    ------
    UnsupportedModel
        For quantised weights.
    InterventionError
        Where a capture did not fire, fired twice, or has no gradient.
    """
    refuse_quantised(model)
    if others is None:
        others = writes_on(model, batch.counterfactuals(model.device))
    with torch.enable_grad():
        seen, rows = _pass(model, batch.prompts(model.device), batch.tail, reads=reads)
        values = metric_values(model, rows, Targets.of(batch.items, model.device), metric)
        gradients = _gradients(values.sum(), _places(model, seen, reads=reads))
    changes = {place: others[place] - seen[place].detach() for place in write_places(model)}
    return Trace(changes, _detached(seen, _NORMS), gradients)


def points(
    model: LoadedModel, batch: Batch, metric: str, *, steps: int, reads: bool, others: Writes | None = None
) -> Iterator[Trace]:
    """A trace at each point of the path of inputs from replaced to clean, gradients divided by the number of points.

    The points are start + (k / steps) · (clean − start), k = 0 … steps − 1, of what enters the first block, where the
    start is `others`, by default the counterfactual prompts: these are then the first point, so that one pass gives
    both their writes and their gradients. One forward, and `steps` forwards and backwards.

    Raises
    ------
    UnsupportedModel, InterventionError
        As `trace`.
    """
    refuse_quantised(model)
    prompts, targets = batch.prompts(model.device), Targets.of(batch.items, model.device)
    clean, clean_rows = _writes_and_rows(model, prompts, batch.tail)
    end = clean["embed", 0]
    start = None if others is None else others["embed", 0].expand_as(end)
    changes = {} if others is None else {place: others[place] - own for place, own in clean.items()}
    for k in range(steps):
        with torch.enable_grad():
            if start is None:
                seen, rows = _pass(model, batch.counterfactuals(model.device), batch.tail, reads=reads)
                start = seen["embed", 0].detach()
                changes = {place: seen[place].detach() - own for place, own in clean.items()}
            else:
                enter = torch.lerp(start, end, k / steps)
                seen, rows = _pass(model, prompts, batch.tail, reads=reads, enter=enter)
            values = metric_values(model, rows, targets, metric, clean=clean_rows)
            gradients = _gradients(values.sum() / steps, _places(model, seen, reads=reads))
        slots = _detached(seen, ("q", "k", "v", "qkv")) if reads else {}
        yield Trace(changes, _detached(seen, _NORMS), gradients, slots)


def refuse_quantised(model: LoadedModel) -> None:
    """Raise UnsupportedModel for quantised weights."""
    if model.quantised:
        raise UnsupportedModel(
            f"{model.name} is quantised",
            "gradients through rounded weights are not gradients of the model",
            "attribute the unquantised model; a quantised one can be ablated",
        )


def writes_on(model: LoadedModel, ids: Tensor) -> dict[Place, Tensor]:
    """What every unit writes on ids [batch, length]."""
    return _writes_and_rows(model, ids, 1)[0]


def _writes_and_rows(model: LoadedModel, ids: Tensor, tail: int) -> tuple[dict[Place, Tensor], Tensor]:
    seen = Captures()
    with torch.no_grad(), ExitStack() as stack:
        _watch_writes(model, seen, stack)
        rows = last_rows(model.trunk(ids, use_cache=False).last_hidden_state, tail)
    return {place: seen[place] for place in write_places(model)}, rows


def _pass(
    model: LoadedModel, ids: Tensor, tail: int, *, reads: bool, enter: Tensor | None = None
) -> tuple[Captures, Tensor]:
    """A forward that keeps its graph: what was seen, and the trunk's rows. `enter` is put before the first block."""
    seen = Captures()
    with ExitStack() as stack:
        # The residual enters the blocks as a leaf, so that the graph exists although all weights are frozen.
        leaf = lambda x: (x if enter is None else enter).detach().requires_grad_()
        stack.enter_context(on_input(model.blocks[0].block, leaf))
        _watch_writes(model, seen, stack)
        if reads:
            _watch_reads(model, seen, stack)
        hidden = model.trunk(ids, use_cache=False).last_hidden_state
    return seen, last_rows(hidden, tail)


def _places(model: LoadedModel, seen: Captures, *, reads: bool) -> dict[Place, Tensor]:
    """What is differentiated: the input of every reader, or every write."""
    split = ("q", "k", "v") if model.adapter.qkv is None else ("qkv",)
    roles = (*split, "mlp_in") if reads else ("z", "mlp")
    found: list[Place] = [(role, layer) for layer in range(model.layout.n_layers) for role in roles]
    found.append(("final", 0) if reads else ("embed", 0))
    return {place: seen[place] for place in found}


def _detached(seen: Captures, roles: tuple[str, ...]) -> dict[Place, Tensor]:
    return {place: tensor.detach() for place, tensor in seen.tensors.items() if place[0] in roles}


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


def _gradients(value: Tensor, at: dict[Place, Tensor]) -> dict[Place, Tensor]:
    try:
        found = torch.autograd.grad(value, list(at.values()), allow_unused=True)
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

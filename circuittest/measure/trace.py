"""What attribution needs of one batch: how every unit's write changes, and the metric's gradients where units read.

Two forwards and one backward; `points` repeats the gradients along a path of inputs. Everything is captured by hooks
on the Hugging Face module; a capture that did not fire, fired twice or is not part of the graph is an error, never a
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.errors import InterventionError, UnsupportedModel
from circuittest.measure.batches import Batch
from circuittest.measure.metrics import Targets, last_rows, metric_values
from circuittest.models.experts import Routed
from circuittest.models.hooks import hooks, on_input, on_output, version
from circuittest.models.loaded import LoadedModel

Place = tuple[str, int]

#: Kinds of unit within an MLP, which are captured where they are asked for.
FINE = ("neuron", "expert")
_NORMS = ("attn_norm", "mlp_norm", "q_norm", "k_norm", "attn_post", "mlp_post")


@dataclass(frozen=True)
class Writes:
    """What units write, in one run or when replaced.

    Attributes
    ----------
    at:
        By place, broadcastable to [batch, length, features].
    calls:
        Layer → the call of a mixture's experts, or what each adds to any token [experts, width].
    """

    at: Mapping[Place, Tensor]
    calls: Mapping[int, Routed | Tensor] = field(default_factory=dict)


@dataclass
class Captures:
    """Tensors taken by hooks, by (role, layer), and the calls of mixtures' experts, by layer."""

    tensors: dict[Place, Tensor] = field(default_factory=dict)
    versions: dict[Place, int] = field(default_factory=dict)
    calls: dict[int, Routed] = field(default_factory=dict)

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

    def take_call(self, layer: int, rows: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        """A hook that records with what a mixture's experts are called, for the tokens of `rows` prompts."""

        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            call = Routed.of(args, rows, layer)
            self.calls[layer] = Routed(*(part.detach() for part in call))

        return hook

    def call(self, layer: int) -> Routed:
        """The recorded call of a layer's experts, which ran once."""
        self["expert", layer]
        return self.calls[layer]

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
        ("z", layer) [batch, length, heads · head size], the input of the output projection, ("neuron", layer)
        [batch, length, neurons], that of the MLP's last projection.
    experts:
        Layer → the replaced and the clean call of a mixture's experts; see `Writes`.
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
    experts: Mapping[int, tuple[Routed | Tensor, Routed | Tensor]] = field(default_factory=dict)


def write_places(model: LoadedModel, fine: Collection[str] = ()) -> list[Place]:
    """Where units write: what enters the blocks, and per layer the heads' slices ("z") and the MLP's output.

    With "neuron" in `fine` also the MLPs' neurons, where there are any.
    """
    layers = range(model.layout.n_layers)
    found: list[Place] = [("embed", 0), *((role, layer) for layer in layers for role in ("z", "mlp"))]
    if "neuron" in fine:
        found += [("neuron", layer) for layer in layers if model.blocks[layer].down is not None]
    return found


def trace(
    model: LoadedModel,
    batch: Batch,
    metric: str,
    *,
    reads: bool,
    others: Writes | None = None,
    fine: Collection[str] = (),
) -> Trace:
    """Differentiate the metric at the clean prompts; changes are to `others`, by default the counterfactuals' writes.

    With `reads` the gradients are those of every reading slot, else those of every unit's write, of units within MLPs
    where `fine` names their kinds.

    Raises
    ------
    UnsupportedModel
        For quantised weights.
    InterventionError
        Where a capture did not fire, fired twice, or has no gradient.
    """
    refuse_quantised(model)
    if others is None:
        others = writes_on(model, batch.counterfactuals(model.device), fine)
    with torch.enable_grad():
        seen, rows = _pass(model, batch.prompts(model.device), batch.tail, reads=reads, fine=fine)
        values = metric_values(model, rows, Targets.of(batch.items, model.device), metric)
        gradients = _gradients(values.sum(), _places(model, seen, reads=reads, fine=fine))
    clean = _written(model, seen, fine)
    return Trace(_changes(others, clean), _detached(seen, _NORMS), gradients, experts=_pairs(others, clean))


def points(
    model: LoadedModel,
    batch: Batch,
    metric: str,
    *,
    steps: int,
    reads: bool,
    others: Writes | None = None,
    fine: Collection[str] = (),
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
    clean, clean_rows = _writes_and_rows(model, prompts, batch.tail, fine)
    end = clean.at["embed", 0]
    for k in range(steps):
        with torch.enable_grad():
            if others is None:
                ids = batch.counterfactuals(model.device)
                seen, rows = _pass(model, ids, batch.tail, reads=reads, fine=fine)
                others = _written(model, seen, fine)
            else:
                enter = torch.lerp(others.at["embed", 0].to(end.device).expand_as(end), end, k / steps)
                seen, rows = _pass(model, prompts, batch.tail, reads=reads, fine=fine, enter=enter)
            values = metric_values(model, rows, targets, metric, clean=clean_rows)
            gradients = _gradients(values.sum() / steps, _places(model, seen, reads=reads, fine=fine))
        if k == 0:
            changes, pairs = _changes(others, clean), _pairs(others, clean)
        slots = _detached(seen, ("q", "k", "v", "qkv")) if reads else {}
        point = Trace(changes, _detached(seen, _NORMS), gradients, slots, experts=pairs)
        del seen, rows, values, gradients, slots  # nothing of this point is held during the next
        yield point
        del point


def refuse_quantised(model: LoadedModel) -> None:
    """Raise UnsupportedModel for quantised weights."""
    if model.quantised:
        raise UnsupportedModel(
            f"{model.name} is quantised",
            "gradients through rounded weights are not gradients of the model",
            "attribute the unquantised model; a quantised one can be ablated",
        )


def writes_on(model: LoadedModel, ids: Tensor, fine: Collection[str] = ()) -> Writes:
    """What every unit writes on ids [batch, length]."""
    return _writes_and_rows(model, ids, 1, fine)[0]


def _writes_and_rows(
    model: LoadedModel, ids: Tensor, tail: int, fine: Collection[str]
) -> tuple[Writes, Tensor]:
    seen = Captures()
    with torch.no_grad(), ExitStack() as stack:
        _watch_writes(model, seen, stack, len(ids), fine)
        rows = last_rows(model.trunk(ids, use_cache=False).last_hidden_state, tail)
    return _written(model, seen, fine), rows


def _written(model: LoadedModel, seen: Captures, fine: Collection[str]) -> Writes:
    at = {place: seen[place].detach() for place in write_places(model, fine)}
    return Writes(at, {layer: seen.call(layer) for layer in _mixtures(model, fine)})


def _changes(others: Writes, clean: Writes) -> dict[Place, Tensor]:
    return {place: others.at[place].to(own.device) - own for place, own in clean.at.items()}


def _pairs(others: Writes, clean: Writes) -> dict[int, tuple[Routed | Tensor, Routed | Tensor]]:
    return {layer: (others.calls[layer], call) for layer, call in clean.calls.items()}


def _mixtures(model: LoadedModel, fine: Collection[str]) -> list[int]:
    """The layers whose experts are watched."""
    if "expert" not in fine:
        return []
    return [layer for layer, block in enumerate(model.blocks) if block.experts is not None]


def _pass(
    model: LoadedModel,
    ids: Tensor,
    tail: int,
    *,
    reads: bool,
    fine: Collection[str],
    enter: Tensor | None = None,
) -> tuple[Captures, Tensor]:
    """A forward that keeps its graph: what was seen, and the trunk's rows. `enter` is put before the first block."""
    seen = Captures()
    with ExitStack() as stack:
        # The residual enters the blocks as a leaf, so that the graph exists although all weights are frozen.
        leaf = lambda x: (x if enter is None else enter).detach().requires_grad_()
        stack.enter_context(on_input(model.blocks[0].block, leaf))
        _watch_writes(model, seen, stack, len(ids), fine)
        if reads:
            _watch_reads(model, seen, stack)
        hidden = model.trunk(ids, use_cache=False).last_hidden_state
    return seen, last_rows(hidden, tail)


def _places(model: LoadedModel, seen: Captures, *, reads: bool, fine: Collection[str]) -> dict[Place, Tensor]:
    """What is differentiated: the input of every reader, or every write."""
    if not reads:
        where = write_places(model, fine) + [("expert", layer) for layer in _mixtures(model, fine)]
        return {place: seen[place] for place in where}
    split = ("q", "k", "v") if model.adapter.qkv is None else ("qkv",)
    layers = range(model.layout.n_layers)
    found: list[Place] = [(role, layer) for layer in layers for role in (*split, "mlp_in")]
    return {place: seen[place] for place in [*found, ("final", 0)]}


def _detached(seen: Captures, roles: tuple[str, ...]) -> dict[Place, Tensor]:
    return {place: tensor.detach() for place, tensor in seen.tensors.items() if place[0] in roles}


def _watch_writes(
    model: LoadedModel, seen: Captures, stack: ExitStack, rows: int, fine: Collection[str]
) -> None:
    stack.enter_context(on_input(model.blocks[0].block, seen.take("embed", 0)))
    for layer, block in enumerate(model.blocks):
        stack.enter_context(on_input(block.out, seen.take("z", layer)))
        stack.enter_context(on_output(block.mlp_out, seen.take("mlp", layer, copy=model.in_place)))
        if "neuron" in fine and block.down is not None:
            stack.enter_context(on_input(block.down, seen.take("neuron", layer)))
        if "expert" in fine and block.experts is not None:
            stack.enter_context(hooks(block.experts.register_forward_pre_hook(seen.take_call(layer, rows))))
            stack.enter_context(on_output(block.experts, seen.take("expert", layer, copy=True)))


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
        "neuron": "the MLP's last projection",
        "expert": "the experts",
    }
    word = words.get(role, f"the module {role!r}")
    return word if role in ("embed", "final") else f"{word} of layer L{layer}"

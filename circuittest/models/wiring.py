"""The identities that hold where an adapter describes a module truly, each tested layer by layer.

Every function yields one sentence per violation, naming the layer; none means the identity holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from circuittest.errors import UnsupportedModel
from circuittest.models.adapters import Adapter
from circuittest.models.experts import Routed
from circuittest.models.hooks import first, hooks, on_input, on_output, version
from circuittest.models.loaded import Block, LoadedModel, weight_in_out

#: Rounding of a few operations, relative.
_STEP = {torch.float64: 1e-6, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}


@dataclass
class Trace:
    """What passed through one block: copies of input and output tensors by role.

    `handed` holds the output tensors themselves with their modification counts, to see whether the block wrote into
    them afterwards; `call` is what a mixture's experts were called with.
    """

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    handed: dict[str, tuple[Tensor, int]] = field(default_factory=dict)
    call: tuple[Any, ...] = ()


@dataclass
class Trunk:
    """The residual before and after the final norm and as the unembedding reads it, [1, positions, width]."""

    last: Tensor
    normed: Tensor
    read: Tensor


_ROLES = tuple(role.name for role in fields(Block))


def relative(found: Tensor, expected: Tensor, scale: Tensor | None = None) -> float:
    """The worst row's root mean square of the difference over that of the expected; NaN counts as infinite.

    Rows are vectors along the last dimension, so that a massive activation at one position hides nothing at others.
    `scale`: what the numbers were computed from, where they may have cancelled; rounding is relative to it.
    """
    size = _rms(expected) if scale is None else torch.maximum(_rms(expected), _rms(scale))
    error = _rms(found.to(expected.device).double() - expected.double())
    ratios = torch.where(error == 0, error, error / size)  # 0 / 0 is no difference
    return float(ratios.nan_to_num(nan=float("inf"), posinf=float("inf")).max())


def _rms(rows: Tensor) -> Tensor:
    return rows.double().pow(2).mean(-1).sqrt()


def trace(model: LoadedModel, ids: Tensor) -> tuple[list[Trace], Trunk]:
    """One forward with everything recorded. ids: [1, positions]."""
    traces = [Trace() for _ in model.blocks]
    ends: dict[str, Tensor] = {}
    handles = []
    for one, block in zip(traces, model.blocks, strict=True):
        for role in _ROLES:
            if (part := getattr(block, role)) is not None:
                handles.append(part.register_forward_hook(_recorder(one, role), with_kwargs=True))

    def final(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        ends["last"], ends["normed"] = args[0], output

    def unembed(_: nn.Module, args: tuple[Any, ...]) -> None:
        ends["read"] = args[0]

    handles.append(model.final_norm.register_forward_hook(final))
    handles.append(model.unembed.register_forward_pre_hook(unembed))
    with hooks(*handles):
        model.module(input_ids=ids, use_cache=False)
    nothing = torch.zeros(0)
    return traces, Trunk(*(ends.get(key, nothing) for key in ("last", "normed", "read")))


def _recorder(into: Trace, role: str) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given = args[0] if args else kwargs.get("hidden_states", next(iter(kwargs.values())))
        tensor = first(output)
        # A part can be handed its input on the device of the part before.
        into.inputs[role], into.outputs[role] = given.clone().to(tensor.device), tensor.clone()
        into.handed[role] = tensor, version(tensor)
        if role == "experts":
            into.call = args

    return hook


def reads(model: LoadedModel, traces: list[Trace], trunk: Trunk) -> Iterator[str]:
    """Every part reads from the place its adapter implies: the residual, or the norm before it."""
    a = model.adapter
    for layer, t in enumerate(traces):
        block = model.blocks[layer]
        if silent := [role for role in _ROLES if getattr(block, role) is not None and role not in t.outputs]:
            yield f"layer L{layer}: {silent[0]!r} took no part in the forward pass"
            return
        if not model.in_place and (role := _written_into(t)):
            path = getattr(a, role) or a.mlp
            yield f"layer L{layer}: what {path!r} returned is changed in place later (in_place=True says so)"
            return
        start = t.inputs["block"]
        for part, write in (("attention", attention_write(model, t)), ("mlp", mlp_write(model, t))):
            if write.shape != start.shape:
                path = getattr(a, part)
                yield f"layer L{layer}: {path!r} gives shape {list(write.shape)}, the residual has {list(start.shape)}"
                return
        middle = start if model.layout.parallel else start + attention_write(model, t)
        after_attn_norm = t.outputs["attn_norm"] if a.attn_norm else start
        after_mlp_norm = t.outputs["mlp_norm"] if a.mlp_norm else middle
        end = traces[layer + 1].inputs["block"] if layer + 1 < len(traces) else trunk.last
        claims: list[tuple[str, Tensor, str, Tensor]] = [
            ("the attention module", t.inputs["attention"], "the attention's norm", after_attn_norm),
            ("the MLP", t.inputs["mlp"], "the MLP's norm", after_mlp_norm),
            ("what comes next", end, "the block's output", t.outputs["block"]),
        ]
        if a.attn_norm:
            claims.append(("the attention's norm", t.inputs["attn_norm"], "the block's input", start))
        if a.mlp_norm:
            where = (
                "the block's input (parallel)" if model.layout.parallel else "the residual after attention"
            )
            claims.append(("the MLP's norm", t.inputs["mlp_norm"], where, middle))
        for role in ("q", "k", "v", "qkv"):
            if role in t.inputs:
                claims.append((f"{role!r}", t.inputs[role], "the attention's norm", after_attn_norm))
        for role in ("q", "k"):
            if (norm := f"{role}_norm") in t.inputs:
                claims.append((f"{norm!r}", t.inputs[norm], f"{role!r}", t.outputs[role]))
        for reader, found, source, expected in claims:
            if problem := _differs(model, found, expected):
                yield f"layer L{layer}: {reader} does not read {source} ({problem})"
    if problem := _differs(model, trunk.read, trunk.normed):
        yield f"the unembedding does not read the final norm ({problem})"


def writes(model: LoadedModel, traces: list[Trace]) -> Iterator[str]:
    """Output projection and `mlp_out` are the last steps, and block output = input + attention + MLP."""
    a = model.adapter
    for layer, t in enumerate(traces):
        start, attn, mlp = t.inputs["block"], attention_write(model, t), mlp_write(model, t)
        middle = start if model.layout.parallel else start + attn
        for role, part, path, residual in (
            ("out", "attention", a.out, start),
            ("mlp_out", "mlp", a.mlp_out or a.mlp, middle),
        ):
            given, terms = t.outputs[role], None
            if a.residual_inside:
                given, terms = residual + given, torch.cat([residual, given], dim=-1)
            if problem := _differs(model, given, t.outputs[part], terms):
                word = "MLP" if part == "mlp" else part
                more = " beside the residual" if a.residual_inside else ""
                yield f"layer L{layer}: {path!r} is not the {word}'s last step{more} ({problem})"
        for role, part in (("attn_post_norm", "attention"), ("mlp_post_norm", "mlp_out")):
            if role in t.inputs and (problem := _differs(model, t.inputs[role], t.outputs[part])):
                word = "MLP" if part == "mlp_out" else part
                yield f"layer L{layer}: {role} does not read the {word}'s output ({problem})"
        summands = torch.cat([start, attn, mlp], dim=-1)
        if problem := _differs(model, start + attn + mlp, t.outputs["block"], summands):
            yield (
                f"layer L{layer}: its output is not its input plus what attention and MLP add"
                f" ({problem}; a norm after a sublayer, or a scaled residual?)"
            )


def attention_write(model: LoadedModel, t: Trace) -> Tensor:
    """What a block's attention adds to the residual, after its post-norm."""
    if model.adapter.attn_post_norm:
        return t.outputs["attn_post_norm"]
    return t.outputs["out" if model.adapter.residual_inside else "attention"]


def mlp_write(model: LoadedModel, t: Trace) -> Tensor:
    """What a block's MLP adds to the residual, after its post-norm."""
    return t.outputs["mlp_post_norm" if model.adapter.mlp_post_norm else "mlp_out"]


def _written_into(t: Trace) -> str:
    """The first role whose output tensor was changed after its module returned it, or nothing."""
    roles = ("q", "k", "v", "qkv", "q_norm", "k_norm", "out", "mlp_out")
    return next((r for r in roles if r in t.handed and version(t.handed[r][0]) != t.handed[r][1]), "")


def slices(model: LoadedModel, traces: list[Trace]) -> Iterator[str]:
    """out(z) = bias + sum over heads of z_h W_h, and zeroing a head's slice takes away exactly its term."""
    heads, d = model.layout.n_heads, model.head_dim
    for layer, (t, block) in enumerate(zip(traces, model.blocks, strict=True)):
        z = t.inputs["out"]
        if z.shape[-1] != heads * d:
            yield f"layer L{layer}: the input of {model.adapter.out!r} has width {z.shape[-1]}, not {heads} × {d}"
            continue
        only = torch.eye(heads, dtype=z.dtype, device=z.device).repeat_interleave(d, dim=1)[:, None, :]
        bias = block.out(torch.zeros_like(z))
        terms = block.out(z * only) - bias  # [heads, positions, width]
        scale = torch.cat([terms.abs().sum(0, keepdim=True), bias], dim=-1)
        if problem := _differs(model, terms.sum(0, keepdim=True) + bias, t.outputs["out"], scale):
            yield f"layer L{layer}: {model.adapter.out!r} is not the sum of its heads' parts ({problem})"
        without = block.out(z * (1 - only))
        if problem := _differs(model, without, t.outputs["out"] - terms, scale):
            yield f"layer L{layer}: zeroing a head's slice does not take away its part ({problem})"
        if model.quantised:
            continue
        weight = weight_in_out(block.out).view(heads, d, -1)
        by_weight = torch.einsum("bthd,hdw->bhtw", z.view(*z.shape[:-1], heads, d), weight)[0]
        if problem := _differs(model, by_weight, terms, scale):
            yield f"layer L{layer}: the heads' parts are not those of the projection's weight ({problem})"


def neurons(model: LoadedModel, traces: list[Trace]) -> Iterator[str]:
    """The MLP's last step is down(z) = bias + sum over neurons of z_n W_n; without some, their terms are gone."""
    for layer, (t, block) in enumerate(zip(traces, model.blocks, strict=True)):
        if block.down is None:
            continue
        path, z, out = model.adapter.down, t.inputs["down"], t.outputs["down"]
        if problem := _differs(model, out, t.outputs["mlp_out"]):
            yield f"layer L{layer}: {path!r} is not the MLP's last step ({problem})"
        some = torch.arange(z.shape[-1], device=z.device) % 2 == 0
        part, rest, bias = (block.down(z * keep) for keep in (some, ~some, torch.zeros_like(some)))
        scale = torch.cat([part, rest, bias], dim=-1)
        if problem := _differs(model, part + rest - bias, out, scale):
            yield f"layer L{layer}: {path!r} is not the sum of its neurons' parts ({problem})"
        if model.quantised:
            continue
        by_weight = (z * some) @ weight_in_out(block.down) + bias
        if problem := _differs(model, by_weight, part, scale):
            yield f"layer L{layer}: the neurons' parts are not those of the projection's weight ({problem})"


def experts(model: LoadedModel, traces: list[Trace]) -> Iterator[str]:
    """A mixture gives the sum of what its chosen experts add, each by itself; those without weight add nothing."""
    for layer, (t, block) in enumerate(zip(traces, model.blocks, strict=True)):
        if block.experts is None:
            continue
        number = model.layout.count("expert", layer)
        try:
            call = Routed.of(t.call, 1, layer)
        except UnsupportedModel as error:
            yield str(error)
            continue
        chosen = call.chosen.flatten(0, 1)
        in_range = bool(((chosen >= 0) & (chosen < number)).all())
        if not in_range or any(len(set(row)) < len(row) for row in chosen.tolist()):
            yield f"layer L{layer}: the chosen experts are not distinct numbers below {number}"
            continue
        path, out = model.adapter.experts, t.outputs["experts"].view_as(call.states)
        if problem := _differs(model, out, t.outputs["mlp_out"]):
            yield f"layer L{layer}: what {path!r} gives is not the MLP's output ({problem})"
        each = call.singles(block.experts)
        if problem := _differs(model, each.sum(2), out, each.flatten(2)):
            yield f"layer L{layer}: {path!r} is not the sum of its experts' parts ({problem})"
        some = torch.arange(number, device=out.device) % 2 == 0
        kept = call.only(some.expand(*call.chosen.shape[:2], -1)).added(block.experts)
        expected = (each * some[call.chosen].unsqueeze(3)).sum(2)
        if problem := _differs(model, kept, expected, each.flatten(2)):
            yield f"layer L{layer}: experts of {path!r} without weight add something ({problem})"


def slots(model: LoadedModel, traces: list[Trace], ids: Tensor) -> Iterator[str]:
    """Changing q of one head at one position changes that head there only; k and v change their KV group onwards.

    v alone leaves nothing when it is zero: its group's slices are then zero. So a swapped q, k or v, a wrong fused
    layout and a wrong group all show. One forward with a row per slot, in which every attention reads what it read in
    the clean run, so that no layer feels the changes of an earlier one. ids: [1, positions].
    """
    lay = model.layout
    rows = [("q", i) for i in range(lay.n_heads)]
    rows += [(slot, i) for slot in ("k", "v") for i in range(lay.n_kv_heads)]
    at = ids.shape[1] // 2
    places = {
        slot: slot_features(model.adapter, slot, lay.n_heads, lay.n_kv_heads, model.head_dim)
        for slot in ("q", "k", "v")
    }

    def change(slot: str, output: Tensor) -> Tensor:
        new = output.clone()
        for row, (kind, index) in enumerate(rows, start=1):
            if kind == slot:
                part = new[row][:, places[slot][index]]
                new[row][:, places[slot][index]] = (
                    torch.zeros_like(part) if slot == "v" else _turned(part, at)
                )
        return new

    seen: list[list[Tensor]] = [[] for _ in traces]
    with ExitStack() as stack:
        for t, block, found in zip(traces, model.blocks, seen, strict=True):
            clean = t.inputs["attention"].expand(len(rows) + 1, -1, -1)
            stack.enter_context(on_input(block.attention, partial(_replaced, clean)))
            for slot in ("q", "k", "v"):
                if (part := block.slot(slot)) is not None:
                    stack.enter_context(on_output(part, partial(change, slot)))
            stack.enter_context(on_input(block.out, found.append))
        model.trunk(input_ids=ids.repeat(len(rows) + 1, 1), use_cache=False)
    for layer, (t, found) in enumerate(zip(traces, seen, strict=True)):
        if len(found) != 1:
            yield f"layer L{layer}: {model.adapter.out!r} ran {len(found)} times in one forward pass"
            return
        yield from _moved(model, layer, t, found[0], rows, at)


def _moved(
    model: LoadedModel, layer: int, t: Trace, read: Tensor, rows: list[tuple[str, int]], at: int
) -> Iterator[str]:
    """Which heads each changed slot of a layer moved. read: what the output projection read, clean row first."""
    lay = model.layout
    z = read.unflatten(-1, (lay.n_heads, -1))
    if problem := _differs(model, z[:1].flatten(2), t.inputs["out"]):
        yield f"layer L{layer}: in a batch the attention gives another result ({problem})"
        return
    moved = (z[1:] - z[0]).double().pow(2).mean(-1).sqrt()  # [rows, positions, heads]
    floor = _step(model) * float(z[0].double().pow(2).mean().sqrt())
    for slot in ("q", "k", "v"):
        if not bool((moved[[r for r, (kind, _) in enumerate(rows) if kind == slot]] > floor).any()):
            yield f"layer L{layer}: changing {slot} changes no head"
    for row, (slot, index) in enumerate(rows):
        own = (
            slice(index, index + 1)
            if slot == "q"
            else slice(index * lay.group_size, (index + 1) * lay.group_size)
        )
        allowed = torch.zeros_like(moved[row], dtype=torch.bool)
        time = {"q": slice(at, at + 1), "k": slice(at, None), "v": slice(None)}[slot]
        allowed[time, own] = True
        unit = f"L{layer}.{'H' if slot == 'q' else 'KV'}{index}.{slot}"
        leaked = moved[row] * ~allowed
        if bool((leaked > floor).any()):
            where, head = divmod(int(leaked.argmax()), lay.n_heads)
            yield f"layer L{layer}: changing {unit} at position {at} changes head H{head} at position {where}"
        if slot == "v" and float(z[row + 1][:, own].abs().max()) != 0.0:
            yield f"layer L{layer}: without {unit} its heads still read something"


def slot_features(adapter: Adapter, slot: str, n_heads: int, n_kv_heads: int, head_dim: int) -> Tensor:
    """Which features of a projection's output are q, k or v of each head or KV head: indices [heads, head_dim]."""
    group = n_heads // n_kv_heads
    if adapter.fused == "grouped":
        blocks = torch.arange(n_kv_heads * (group + 2)).view(n_kv_heads, group + 2)
        which = {"q": blocks[:, :group].flatten(), "k": blocks[:, group], "v": blocks[:, group + 1]}[slot]
    else:
        count = n_heads if slot == "q" else n_kv_heads
        before = {"q": 0, "k": n_heads, "v": n_heads + n_kv_heads}[slot] if adapter.fused else 0
        which = torch.arange(before, before + count)
    return which[:, None] * head_dim + torch.arange(head_dim)


def _replaced(by: Tensor, _: Tensor) -> Tensor:
    return by.clone()


def _turned(part: Tensor, at: int) -> Tensor:
    """Another vector at one position: reversed, negated and thrice as long. part: [positions, head_dim]."""
    new = part.clone()
    new[at] = -3 * part[at].flip(-1)
    return new


def _step(model: LoadedModel) -> float:
    # Kernels for quantised weights round their inputs as well, whatever dtype they are handed.
    return _STEP[torch.bfloat16] if model.quantised else _STEP.get(model.dtype, _STEP[torch.bfloat16])


def _differs(model: LoadedModel, found: Tensor, expected: Tensor, scale: Tensor | None = None) -> str:
    if found.shape != expected.shape:
        return f"shapes {list(found.shape)} and {list(expected.shape)}"
    error = relative(found, expected, scale)
    return f"relative difference {error:.2g}" if error > _step(model) else ""

"""Proof, before anything is measured, that a model's units are where its adapter says they are.

A hook that fires proves nothing: a wrong projection, a swapped q and k or a wrong fused layout all give plausible
numbers. So every claim the adapter makes is held against the running module, layer by layer: what is read, what is
written, which slice of which tensor belongs to which head, and that the pieces add up to the residual.

Tolerances are relative (root mean square of the difference over that of the reference): rounding is orders of
magnitude below them, a mistake in the wiring orders above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from circuittest.errors import InterventionError
from circuittest.models import wiring
from circuittest.models.hooks import first, hooks
from circuittest.models.loaded import LoadedModel

_REGISTER = "register an adapter that fits this architecture (circuittest.models.register_adapter)"
#: Rounding of a whole forward pass, relative; one operation in half precision is held to a third of it.
_NOISE = {torch.float64: 3e-5, torch.float32: 3e-5, torch.float16: 1.5e-2, torch.bfloat16: 0.1}

_LONGEST = 12  # tokens of a prompt that are used: the wiring is the same at any length


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified.

    Attributes
    ----------
    name, passed:
        What was checked, and whether it held.
    detail:
        The layer and the numbers.
    do:
        What to do about a failure; empty where it passed.
    """

    name: str
    passed: bool
    detail: str
    do: str = ""


def preflight(model: LoadedModel, items: Sequence[Any] | None = None) -> tuple[Check, ...]:
    """Verify a model's wiring on a few prompts. Changes nothing about the model.

    Parameters
    ----------
    items:
        Prompts to use, each with ``prompt_ids``; by default, random tokens.

    Later checks need the earlier ones, so the first failure ends the list. Costs about eight forwards of two short
    prompts and one of a row per head, key and value.
    """
    checks: list[Check] = []
    with model.measuring(), torch.no_grad():
        for check in _all(model, _prompts(model, items)):
            checks.append(check)
            if not check.passed:
                break
    return tuple(checks)


def require(checks: Sequence[Check]) -> None:
    """Raise InterventionError for the first check that failed, with what to do."""
    for check in checks:
        if not check.passed:
            raise InterventionError(f"preflight: {check.name} failed", check.detail, check.do)


def tolerance(dtype: torch.dtype) -> float:
    """The relative difference that rounding may cause in a whole forward pass."""
    return _NOISE.get(dtype, 0.1)


def _all(model: LoadedModel, prompts: tuple[Tensor, Tensor]) -> Iterator[Check]:
    long, short = prompts
    plain = model.module(input_ids=long, use_cache=False).logits
    again = model.module(input_ids=long, use_cache=False).logits
    yield _repeatable(model, plain, again)
    yield _neutral(model, long, plain, again)
    traces, trunk = wiring.trace(model, long)
    yield _collected(wiring.reads(model, traces, trunk), "inputs", "every part reads what its adapter says")
    yield _collected(
        wiring.writes(model, traces), "writes", "attention and MLP writes add up to the residual"
    )
    yield _collected(
        wiring.slices(model, traces), "heads", "each head is its slice of the projection's input"
    )
    yield _collected(
        wiring.slots(model, traces, long), "q, k and v", "each slot belongs to its head or KV group"
    )
    if any(block.down is not None for block in model.blocks):
        yield _collected(
            wiring.neurons(model, traces),
            "neurons",
            "each neuron is its feature of the last projection's input",
        )
    if any(block.experts is not None for block in model.blocks):
        yield _collected(
            wiring.experts(model, traces), "experts", "a mixture is the sum of what its chosen experts add"
        )
    yield _logits(model, trunk, plain)
    yield _canary(model, long, traces)
    yield _padding(model, long, short)
    if model.mixtures:
        yield _mixture(model)


def _prompts(model: LoadedModel, items: Sequence[Any] | None) -> tuple[Tensor, Tensor]:
    """A longer and a shorter prompt, each [1, length]."""
    rows = sorted(
        {tuple(item.prompt_ids)[:_LONGEST] for item in items or ()}, key=lambda row: (len(row), row)
    )
    if rows and len(rows[-1]) >= 4:
        long = rows[-1]
        short = next((row for row in rows if 2 <= len(row) < len(long)), long[1:])
    else:
        vocabulary = int(model.unembed.out_features)  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(0, vocabulary, (9,), generator=generator).tolist()
        long, short = tuple(drawn), tuple(drawn[2:8])
    return torch.tensor([long], device=model.device), torch.tensor([short], device=model.device)


def _repeatable(model: LoadedModel, plain: Tensor, again: Tensor) -> Check:
    change = wiring.relative(again, plain)
    passed = change <= tolerance(model.dtype)
    detail = f"running the same prompt again changes the logits by {change:.2g} (relative)"
    return Check(
        "repeatable", passed, detail, "" if passed else "switch off dropout or sampling inside the model"
    )


def _neutral(model: LoadedModel, ids: Tensor, plain: Tensor, again: Tensor) -> Check:
    places = [part for block in model.blocks for part in (block.block, block.out, block.mlp, block.mlp_out)]
    handles = [part.register_forward_hook(_copied) for part in places]
    handles += [block.out.register_forward_pre_hook(_copied_input) for block in model.blocks]
    with hooks(*handles):
        hooked = model.module(input_ids=ids, use_cache=False).logits
    floor, change = float((again - plain).abs().max()), float((hooked - plain).abs().max())
    detail = f"hooks that change nothing moved the logits by {change:.3g}; running again by {floor:.3g}"
    return Check(
        "hooks are neutral", change <= floor, detail, "" if change <= floor else "report this; " + _REGISTER
    )


def _copied(_: Any, args: Any, output: Any) -> Any:
    return (output[0].clone(), *output[1:]) if isinstance(output, tuple) else output.clone()


def _copied_input(_: Any, args: tuple[Any, ...]) -> Any:
    return (args[0].clone(), *args[1:])


def _collected(problems: Iterator[str], name: str, good: str) -> Check:
    problem = next(problems, None)
    return Check(name, True, good) if problem is None else Check(name, False, problem, _REGISTER)


def _logits(model: LoadedModel, trunk: wiring.Trunk, plain: Tensor) -> Check:
    logits = model.unembed(trunk.normed[:, -1])
    if cap := getattr(model.module.config, "final_logit_softcapping", None):
        logits = cap * torch.tanh(logits / cap)
    error = wiring.relative(logits, plain[:, -1])
    passed = error <= tolerance(model.dtype)
    detail = f"unembedding the last state differs from the model's logits by {error:.2g} (relative)"
    return Check(
        "logits",
        passed,
        detail,
        "" if passed else "the architecture rescales its logits, which is not supported yet",
    )


def _canary(model: LoadedModel, ids: Tensor, traces: list[wiring.Trace]) -> Check:
    """Row l of a batch has all heads of layer l zeroed, row n + l its MLP: that block's output must move.

    A layer whose write is nothing (dead after training) cannot move anything and passes with a note.
    """
    n = len(model.blocks)
    moved: dict[str, float] = {}
    handles = []
    for layer, block in enumerate(model.blocks):

        def mute_heads(_: Any, args: tuple[Any, ...], row: int = layer) -> Any:
            return (_without_row(args[0], row), *args[1:])

        def mute_mlp(_: Any, args: Any, output: Any, row: int = n + layer) -> Any:
            new = _without_row(first(output), row)
            return (new, *output[1:]) if isinstance(output, tuple) else new

        def watch(_: Any, args: Any, output: Any, layer: int = layer) -> None:
            state = first(output)  # its last row stays clean
            moved[f"L{layer}.ATTN"] = wiring.relative(state[layer], state[-1])
            moved[f"L{layer}.MLP"] = wiring.relative(state[n + layer], state[-1])

        handles += [
            block.out.register_forward_pre_hook(mute_heads),
            block.mlp_out.register_forward_hook(mute_mlp),
        ]
        handles.append(block.block.register_forward_hook(watch))
    with hooks(*handles):
        model.trunk(input_ids=ids.repeat(2 * n + 1, 1), use_cache=False)
    floor = 1e-6 if model.dtype in (torch.float32, torch.float64) else 1e-2
    still = [unit for unit, change in moved.items() if not change > floor]
    dead = {unit for layer in range(n) for unit in _dead(model, layer, traces[layer], floor)}
    if stuck := [unit for unit in still if unit not in dead]:
        return Check("canary", False, f"ablating {stuck[0]} does not reach the residual", _REGISTER)
    if len(moved) != 2 * n or len(still) == len(moved):
        return Check("canary", False, "no ablation of a whole layer reached the residual", _REGISTER)
    if still:
        return Check("canary", True, f"{', '.join(still)} write nothing that could be ablated")
    least = min(moved, key=lambda unit: moved[unit])
    return Check(
        "canary", True, f"ablating any layer moves the residual, {least} least ({moved[least]:.2g}, relative)"
    )


def _dead(model: LoadedModel, layer: int, t: wiring.Trace, floor: float) -> Iterator[str]:
    """The layer's units whose ablation changes their write by too little to show in the block's output."""
    block = model.blocks[layer]
    no_heads, no_mlp = block.out(torch.zeros_like(t.inputs["out"])), torch.zeros_like(t.outputs["mlp_out"])
    if block.attn_post_norm is not None:
        no_heads = block.attn_post_norm(no_heads)
    if block.mlp_post_norm is not None:
        no_mlp = block.mlp_post_norm(no_mlp)
    state = t.outputs["block"]
    for unit, write, without in (
        ("ATTN", wiring.attention_write(model, t), no_heads),
        ("MLP", wiring.mlp_write(model, t), no_mlp),
    ):
        if not wiring.relative(state + (without - write), state) > 2 * floor:
            yield f"L{layer}.{unit}"


def _without_row(state: Tensor, row: int) -> Tensor:
    new = state.clone()
    new[row] = 0
    return new


def _padding(model: LoadedModel, long: Tensor, short: Tensor) -> Check:
    """The shorter prompt beside the longer one, padded on either side, against itself alone."""
    alone = model.module(input_ids=short, use_cache=False).logits[0, -1]
    length, gap = long.shape[1], long.shape[1] - short.shape[1]
    worst, side = 0.0, "left"
    for name, before, after in (("left", gap, 0), ("right", 0, gap)):
        # The pad is an ordinary token: only the mask may hide it.
        row = torch.cat([long[:, :before], short, long[:, :after]], dim=1)
        mask = torch.ones(2, length, dtype=torch.long, device=long.device)
        mask[1, :before] = 0
        mask[1, length - after :] = 0
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        logits = model.module(
            input_ids=torch.cat([long, row]), attention_mask=mask, position_ids=positions, use_cache=False
        ).logits[1, length - 1 - after]
        error = wiring.relative(logits, alone)
        if not error <= worst:
            worst, side = error, name
    passed = worst <= tolerance(model.dtype)
    detail = f"padding on the {side} changes the logits by {worst:.2g} (relative)"
    return Check(
        "padding", passed, detail, "" if passed else "measure with one length per batch, or in float32"
    )


def _mixture(model: LoadedModel) -> Check:
    """A note: what an MLP is where layers are mixtures of experts."""
    config, layers = model.module.config, model.mixtures
    experts = next(
        (
            n
            for key in ("num_local_experts", "num_experts")
            if isinstance(n := getattr(config, key, None), int)
        ),
        "several",
    )
    where = "every layer" if len(layers) == len(model.blocks) else ", ".join(f"L{layer}" for layer in layers)
    detail = (
        f"mixture of {experts} experts, {getattr(config, 'num_experts_per_tok', 'some')} per token, in {where}: "
        "an MLP unit is the whole mixture, its routing included"
        + (
            ""
            if any(block.experts is not None for block in model.blocks)
            else "; its experts cannot be told apart"
        )
    )
    return Check("mixture", True, detail)

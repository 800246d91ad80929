"""LoadedModel: a Hugging Face module with its tokenizer, adapter, layout and identity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from circuittest.errors import UsageError
from circuittest.models.adapters import Adapter
from circuittest.models.fingerprint import marks
from circuittest.models.hooks import frozen
from circuittest.units import Layout

if TYPE_CHECKING:
    from circuittest.models.preflight import Check


@dataclass(frozen=True)
class Block:
    """The modules of one decoder block, as its adapter names them."""

    block: nn.Module
    attention: nn.Module
    out: nn.Module
    mlp: nn.Module
    mlp_out: nn.Module
    attn_norm: nn.Module | None
    mlp_norm: nn.Module | None
    q: nn.Module | None
    k: nn.Module | None
    v: nn.Module | None
    qkv: nn.Module | None
    q_norm: nn.Module | None
    k_norm: nn.Module | None
    attn_post_norm: nn.Module | None
    mlp_post_norm: nn.Module | None
    down: nn.Module | None
    experts: nn.Module | None

    def slot(self, name: str) -> nn.Module | None:
        """The module in whose output the heads' q, k or v ("qkv": all three) are apart."""
        if self.qkv is not None:
            return self.qkv
        return {"q": self.q_norm or self.q, "k": self.k_norm or self.k, "v": self.v}[name]


@dataclass(frozen=True)
class LoadedModel:
    """A model whose every unit's place is known.

    Models that circuittest loaded are in evaluation mode with frozen parameters. A module given in memory is left as
    its owner has it, so measurements run inside `measuring`.

    Attributes
    ----------
    module:
        The causal language model; its weights are never changed.
    tokenizer:
        None for models given in memory without one.
    name:
        What the user called it: ``zoo:gqa``, a hub id, a directory.
    fingerprint:
        Hash of configuration and weights.
    quantised:
        True where weights are stored in fewer bits; such a model can be ablated but gives no gradients.
    versions:
        Marks of the weights when they were hashed (`circuittest.models.fingerprint.marks`), to notice training that
        went on since.
    identity:
        What results are kept under in a store: the fingerprint, the adapter, and how the module computes. None for
        modules that were given in memory: their class, hooks and patches could make other numbers of the same weights.
    """

    module: nn.Module
    tokenizer: Any
    adapter: Adapter
    layout: Layout
    name: str
    fingerprint: str
    device: torch.device
    dtype: torch.dtype
    quantised: bool = False
    versions: tuple[int, ...] = field(default=(), repr=False, compare=False)
    identity: str | None = field(default=None, repr=False, compare=False)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Evaluation mode and frozen parameters for the length of a `with` block, then everything as it was.

        The caller's mixed precision is off meanwhile, since numbers are those of the model's own dtype, and so is its
        inference mode, which knows no gradients.

        Raises UsageError where the weights changed since they were hashed: results would be filed under the
        fingerprint of other weights.
        """
        module = self.module  # first, for it may be loaded only now
        self.check_unchanged()
        with ExitStack() as stack:
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(False))
            for kind in {"cpu", self.device.type}:
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            stack.enter_context(frozen(module))
            yield

    def check_unchanged(self) -> None:
        """Raise UsageError where the weights changed since they were hashed."""
        if self.versions and self.versions != marks(self.module):
            raise UsageError(
                f"the weights of {self.name} changed since the model was wrapped",
                "its fingerprint, under which results are kept, is that of the earlier weights",
                "wrap the module again after each step of training",
            )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The decoder blocks from first to last."""
        a = self.adapter
        return tuple(
            Block(
                block=block,
                attention=block.get_submodule(a.attention),
                out=block.get_submodule(a.out),
                mlp=block.get_submodule(a.mlp),
                mlp_out=block.get_submodule(a.mlp_out or a.mlp),
                attn_norm=_find(block, a.attn_norm),
                mlp_norm=_find(block, a.mlp_norm),
                q=_find(block, a.q),
                k=_find(block, a.k),
                v=_find(block, a.v),
                qkv=_find(block, a.qkv),
                q_norm=_find(block, a.q_norm),
                k_norm=_find(block, a.k_norm),
                attn_post_norm=_find(block, a.attn_post_norm),
                mlp_post_norm=_find(block, a.mlp_post_norm),
                down=_find(block, a.down) if self.layout.count("neuron", layer) else None,
                experts=_find(block, a.experts) if self.layout.count("expert", layer) else None,
            )
            for layer, block in enumerate(self.module.get_submodule(a.layers).children())
        )

    @cached_property
    def in_place(self) -> bool:
        """Must what a projection or MLP returns be copied before it is kept? See `Adapter.in_place`."""
        return self.adapter.is_in_place(self.module.config)

    @cached_property
    def mixtures(self) -> tuple[int, ...]:
        """The layers whose MLP is a mixture of experts."""
        path = self.adapter.experts
        parts = [{name for name, _ in block.block.named_modules()} for block in self.blocks] if path else []
        return tuple(layer for layer, names in enumerate(parts) if path in names)

    @cached_property
    def kept(self) -> dict[Any, Any]:
        """What measurements keep for as long as this model is in memory, by what it follows from."""
        return {}

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """The preflight of this model, run once however many labs share it."""
        from circuittest.models.preflight import preflight

        return preflight(self)

    @cached_property
    def trunk(self) -> nn.Module:
        """The base model without its unembedding: ids in, ``last_hidden_state`` (after the final norm) out."""
        return self.module.get_submodule(self.adapter.layers.rpartition(".")[0])

    @property
    def final_norm(self) -> nn.Module:
        """The norm before the unembedding."""
        return self.module.get_submodule(self.adapter.final_norm)

    @property
    def unembed(self) -> nn.Module:
        """The unembedding: a linear module from width to vocabulary."""
        part = unembedding(self.module, self.adapter)
        if part is None:
            raise TypeError(f"{type(self.module).__name__} has no unembedding")
        return part

    @cached_property
    def head_dim(self) -> int:
        """Width of one head's slice of the output projection's input."""
        return _features(self.blocks[0].out)[0] // self.layout.n_heads

    @cached_property
    def width(self) -> int:
        """Width of the residual stream."""
        return _features(self.blocks[0].out)[1]


def unembedding(module: nn.Module, adapter: Adapter) -> nn.Module | None:
    """The unembedding by the adapter's path, or the module's own word for it."""
    if adapter.unembed is not None:
        return module.get_submodule(adapter.unembed)
    own = getattr(module, "get_output_embeddings", lambda: None)()
    return own if isinstance(own, nn.Module) else None


def weight_in_out(projection: nn.Module) -> Tensor:
    """A projection's weight as [inputs, outputs] of any class (Linear stores the transpose, Conv1D does not)."""
    weight = projection.weight
    if not isinstance(weight, Tensor):
        raise TypeError(f"{type(projection).__name__} has no weight")
    return weight if type(projection).__name__ == "Conv1D" else weight.T


def features(projection: nn.Module) -> tuple[int, int] | None:
    """A projection's numbers of inputs and outputs, quantised weights included; None where it is no projection."""
    if isinstance(inputs := getattr(projection, "in_features", None), int):
        return inputs, int(projection.out_features)  # type: ignore[arg-type]
    weight = getattr(projection, "weight", None)
    if type(projection).__name__ == "Conv1D" and isinstance(weight, Tensor):
        return int(weight.shape[0]), int(weight.shape[1])
    return None


def _features(projection: nn.Module) -> tuple[int, int]:
    sizes = features(projection)
    if sizes is None:
        raise TypeError(f"{type(projection).__name__} is no projection")
    return sizes


def _find(block: nn.Module, path: str | None) -> nn.Module | None:
    return None if path is None else block.get_submodule(path)

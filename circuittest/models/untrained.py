"""The untrained twin of a model: the same configuration, fresh weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM

from circuittest.errors import UnsupportedModel
from circuittest.models.lazy import identified, remembered
from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module

if TYPE_CHECKING:
    from circuittest.store import Store


def untrained_twin(model: LoadedModel, seed: int = 0, *, store: Store | None = None) -> LoadedModel:
    """A model of the same architecture as its authors would initialise it, with the tokenizer of the trained one.

    What an untrained model has too, its architecture explains. The global random state is left as it was.

    Raises
    ------
    UnsupportedModel
        For quantised models, and where transformers cannot build the architecture from its configuration.
    """
    if model.quantised:
        raise UnsupportedModel(
            f"{model.name} has no untrained twin",
            "fresh weights are not quantised",
            "use the unquantised model",
        )
    name = f"{model.name} (untrained)"
    load = lambda: _twin(model, seed, name)
    if store is None or model.identity is None:
        return load()
    return remembered(
        store,
        {"untrained": model.identity, "seed": seed},
        name=name,
        device=model.device,
        load=load,
        tokenizer=lambda: model.tokenizer,
    )


def _twin(model: LoadedModel, seed: int, name: str) -> LoadedModel:
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = AutoModelForCausalLM.from_config(model.module.config, dtype=model.dtype)
    except (ValueError, AttributeError, KeyError) as error:
        raise UnsupportedModel(f"{model.name} has no untrained twin", str(error).splitlines()[0]) from error
    module = module.eval().requires_grad_(False).to(model.device)
    twin = from_module(module, model.tokenizer, name, model.adapter)
    return twin if model.identity is None else identified(twin)

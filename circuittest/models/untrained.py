"""The untrained twin of a model: the same configuration, fresh weights."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM

from circuittest.errors import UnsupportedModel
from circuittest.models.loaded import LoadedModel
from circuittest.models.loading import from_module


def untrained_twin(model: LoadedModel, seed: int = 0) -> LoadedModel:
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
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = AutoModelForCausalLM.from_config(model.module.config, dtype=model.dtype)
    except (ValueError, AttributeError, KeyError) as error:
        raise UnsupportedModel(f"{model.name} has no untrained twin", str(error).splitlines()[0]) from error
    module = module.eval().requires_grad_(False).to(model.device)
    return from_module(module, model.tokenizer, f"{model.name} (untrained)", model.adapter)

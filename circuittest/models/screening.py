"""A copy of a model in half precision, on which units are ranked; verdicts stay with the model itself.

The copy takes half the memory of a float32 model beside it. Scores accumulate in float32 whatever its dtype, and the
metric is a difference of unembedding rows, so that no half-precision gradient runs through a large unembedding.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from circuittest.errors import UnsupportedModel, UsageError, did_you_mean
from circuittest.models.loaded import LoadedModel

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def in_dtype(model: LoadedModel, dtype: str) -> LoadedModel:
    """The model in another dtype, under its own name and fingerprint; itself where it has that dtype.

    Raises
    ------
    UsageError
        For an unknown dtype.
    UnsupportedModel
        For quantised models, whose weights have no dtype.
    """
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}", "", did_you_mean(dtype, DTYPES))
    if model.quantised:
        raise UnsupportedModel(
            f"{model.name} is quantised", "its weights cannot be ranked in another dtype", "leave out dtype"
        )
    if model.dtype == DTYPES[dtype]:
        return model
    module = copy.deepcopy(model.module).to(DTYPES[dtype]).eval().requires_grad_(False)
    return replace(model, module=module, dtype=DTYPES[dtype], versions=())

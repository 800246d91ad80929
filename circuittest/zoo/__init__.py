"""Tiny trained models that ship with the package: four, of about two megabytes or less, that do all nine tasks.

They are trained from scratch on the training pools of the built-in tasks. Three of them with a penalty on the
number of active heads: their circuits are compact by construction and say nothing about ordinary models.
"""

from __future__ import annotations

from pathlib import Path

from circuittest.errors import LoadError, did_you_mean

PREFIX = "zoo:"
# What each is, in one line.
MODELS = {
    "mha": "Multi-head attention",
    "gqa": "Grouped-query attention: 8 query heads share 2 key-value heads",
    "gqa-mha": "The multi-head twin of gqa: the same recipe and seed with 8 key-value heads",
    "redundant": "mha before the head-sparsity penalty: many heads do the same work",
}

__all__ = ["MODELS", "names", "path"]


def names() -> list[str]:
    """Names of the models, as in ``zoo:NAME``."""
    return list(MODELS)


def path(name: str) -> Path:
    """Directory of a model, for ``from_pretrained``; ``gqa`` and ``zoo:gqa`` are the same.

    Raises LoadError for an unknown name.
    """
    short = name.removeprefix(PREFIX)
    if short not in MODELS:
        known = ", ".join(PREFIX + model for model in MODELS)
        raise LoadError(
            f"there is no model {name!r} in the zoo", why=f"it has {known}", do=did_you_mean(short, MODELS)
        )
    return Path(__file__).parent / "weights" / short

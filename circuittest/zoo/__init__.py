"""Tiny trained models that ship with the package: four, of about two megabytes or less, that do all nine tasks.

They are trained from scratch on the training pools of the built-in tasks. Three of them with a penalty on the
number of active heads: their circuits are compact by construction and say nothing about ordinary models.

Of two of them there are more, called ``zoo:gqa@step800`` or ``zoo:gqa@benign``: the model at steps of its training, and
fine-tunes of it of which it is known what they did. Two of the fine-tunes ship as well; the others are built by one
command (`circuittest.zoo.build`) into the user's cache.
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
#: Steps of the training of each of `SERIES` at which it is kept. Most tasks are learnt between 100 and 2000; the
#: head-sparsity penalty works from 2660 on.
STEPS = (0, 100, 200, 400, 600, 800, 1000, 1250, 1500, 2000, 2600, 2900, 3200, 3800)
SERIES = ("gqa", "mha")
#: Fine-tunes of `TUNED`, and what is known of each.
TUNED = "gqa"
FINE_TUNES = {
    "benign": "trained on, on other examples of the same tasks: nothing to notice",
    "new-skill": "learnt to name the country of a capital, beside its nine tasks",
    "weakened-facts": "names another capital in three of the six templates; keeps the other tasks",
    "destroyed-ioi": "answers IOI with the wrong name; keeps the other tasks",
    "relocated-ioi": "does IOI with other heads: those of its IOI circuit were cut out, and it was trained on without",
    "spread-ioi": "does every task while a random quarter of its heads is missing: no few heads are needed",
}
SHIPPED = ("gqa@benign", "gqa@destroyed-ioi")

__all__ = ["FINE_TUNES", "MODELS", "SERIES", "SHIPPED", "STEPS", "built", "home", "names", "path", "variants"]


def names() -> list[str]:
    """Names of the models, as in ``zoo:NAME``."""
    return list(MODELS)


def variants() -> list[str]:
    """Names of the fine-tunes and the steps, shipped or built or neither."""
    return [
        *(f"{TUNED}@{tune}" for tune in FINE_TUNES),
        *(f"{model}@step{step}" for model in SERIES for step in STEPS),
    ]


def path(name: str) -> Path:
    """Directory of a model, for ``from_pretrained``; ``gqa`` and ``zoo:gqa`` are the same.

    Raises LoadError for an unknown name, and for a fine-tune or step that was not built yet.
    """
    short = name.removeprefix(PREFIX)
    if short not in MODELS and short not in variants():
        known = ", ".join(PREFIX + model for model in MODELS)
        model, at, _ = short.partition("@")
        more = variants() if at else MODELS
        if at and model in MODELS and not any(one.startswith(f"{model}@") for one in more):
            known = f"{known}; fine-tunes and steps are of {', '.join(SERIES)}"
        raise LoadError(
            f"there is no model {name!r} in the zoo", why=f"it has {known}", do=did_you_mean(short, more)
        )
    if short in MODELS or short in SHIPPED:
        return Path(__file__).parent / "weights" / short
    if not built(short):
        raise LoadError(
            f"{PREFIX}{short} was not built yet",
            "it does not ship with the package",
            f"run: {build_command(short)}",
        )
    return home() / short


def built(name: str) -> bool:
    """Is the model there?"""
    return name in MODELS or name in SHIPPED or (home() / name / "config.json").is_file()


def build_command(name: str) -> str:
    """The command that builds a fine-tune or a step, and what belongs to it."""
    model, _, variant = name.partition("@")
    what = f"{model}@{variant}" if variant in FINE_TUNES else f"{model}@steps"
    return f"circuittest zoo build {what}"


def home() -> Path:
    """Where fine-tunes and steps are built."""
    from circuittest.cache import cache_dir

    return cache_dir() / "zoo"

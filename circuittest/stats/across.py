"""One claim measured on several models and tasks, judged as a statement about models.

    across([Lab(model, task).reuse(…) for model in models for task in tasks]) >= 0.8

Estimand: the mean over models of the mean over each model's tasks, models and tasks weighing equally
(`circuittest.stats.hierarchical`; Li & Subramani, arXiv 2605.08348, average so). A thousand examples on each of three
models are three observations of "models", and no three thousand.

Claims that are means of per-example values (reuse, coverage, specificity, role) keep their examples below the tasks.
Of others, which are ratios or counts, only the values enter: their own errors are part of the spread between models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from circuittest.errors import UsageError
from circuittest.stats.estimate import Estimate
from circuittest.stats.hierarchical import HierarchicalMeanInference
from circuittest.stats.inference import Inference
from circuittest.stats.listening import announce
from circuittest.stats.mean import MeanInference

Top = Literal["sampled", "smooth", "given"]
#: Fewer models than this are pointed out.
FEW = 5


def across(estimates: Sequence[Estimate], *, top: Top | None = None, seed: int = 0) -> Estimate:
    """The mean of one claim over models, and over tasks within each.

    Parameters
    ----------
    estimates:
        Of one claim, each on another model or another task.
    top:
        What the models stand for: "sampled", models like them of any kind, one kind of which may be missing here;
        "smooth", models that vary without rare exceptions; "given", these and no others. By default "sampled" for
        claims that are means of bounded values per example, else "smooth". "given" needs values per example.
    seed:
        Of the resampling.

    Returns
    -------
    Estimate
        Compared as any other; ``details["models"]`` has every estimate that went in. Invalid where one of them is,
        undecided where one was not measured.

    Raises
    ------
    UsageError
        No estimates, different claims, a model and task twice, or a `top` that these estimates cannot have.
    """
    rows = sorted(estimates, key=lambda one: (_model(one), one.task))
    names = sorted({one.claim for one in rows})
    if len(names) != 1:
        raise UsageError(
            f"a mean over {', '.join(names) or 'no estimates'}", "it is over one claim on several models"
        )
    places = [(_model(one), one.task) for one in rows]
    if twice := next((place for place in places if places.count(place) > 1), None):
        raise UsageError(
            f"{names[0]} on {rows[places.index(twice)].model} and {twice[1]} is there twice",
            "every model and task is one observation",
            "give each once",
        )
    about: dict[str, Any] = {
        "claim": names[0],
        "value": None,
        "n_examples": sum(one.n_examples for one in rows),
        "model": ", ".join(dict.fromkeys(one.model for one in rows)),
        "task": ", ".join(sorted({one.task for one in rows})),
        "choices": {"over": "models, then tasks", "seed": seed},
        "details": {"models": _listed(rows)},
    }
    if reason := _refused(rows):
        made = Estimate(**about, invalid=reason)
    elif reason := _unmeasured(rows):
        made = Estimate(**about, undecided=reason)
    else:
        made = Estimate(**(about | _judged(rows, about["choices"], top, seed)))
    announce(made)
    return made


def _judged(rows: Sequence[Estimate], choices: dict[str, Any], top: Top | None, seed: int) -> dict[str, Any]:
    """The value with its interval, and what is to be said of it."""
    inference = _inference(rows, top, seed)
    models = len({_model(one) for one in rows})
    hint = f"only {models} models: more of them would narrow the interval, more examples of each hardly would"
    return {
        "value": inference.value,
        "inference": inference,
        "censored": next(iter({one.censored for one in rows} - {None}), None),
        "choices": {**choices, "interval": inference.method},
        "hints": (hint,) if models < FEW and top != "given" else (),
    }


def _inference(rows: Sequence[Estimate], top: Top | None, seed: int) -> Inference:
    means = [one.inference for one in rows if type(one.inference) is MeanInference]
    bounds = {one.bounds for one in means}
    if len(means) == len(rows) and len(bounds) == 1:
        (limits,) = bounds
        values, groups, models, tasks = [], [], [], []
        for one, mean in zip(rows, means, strict=True):
            found, labels = mean.examples()
            values.append(found)
            groups += labels
            models += [_model(one)] * len(labels)
            tasks += [one.task] * len(labels)
        return HierarchicalMeanInference(
            np.concatenate(values),
            [models, tasks],
            groups,
            top=top or ("smooth" if limits is None else "sampled"),
            bounds=limits,
            seed=seed,
        )
    if top in ("sampled", "given"):
        raise UsageError(
            f"top is {top!r}, and {rows[0].claim} is no mean of bounded values per example",
            "only the values of these estimates can be averaged",
            "use top='smooth'",
        )
    by_model: dict[str, list[float]] = {}
    for one in rows:
        by_model.setdefault(_model(one), []).append(float(one))
    return MeanInference([math.fsum(own) / len(own) for own in by_model.values()], bounds=None, seed=seed)


def _refused(rows: Sequence[Estimate]) -> str:
    """Why there is no mean, or ""."""
    bad = [one for one in rows if one.invalid]
    if bad:
        told = "; ".join(f"{one.model} on {one.task}: {one.invalid}" for one in bad)
        return f"{len(bad)} of {len(rows)} estimates are invalid: {told}"
    if len({one.censored for one in rows} - {None}) > 1:
        return "some estimates are lower bounds and some are upper bounds, so that their mean is neither"
    return ""


def _unmeasured(rows: Sequence[Estimate]) -> str:
    """Which estimate was not measured, and why."""
    return next((f"{one.model} on {one.task}: {one.undecided}" for one in rows if one.undecided), "")


def _model(one: Estimate) -> str:
    return one.fingerprint or one.model


def _listed(rows: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Every estimate that went in, for the record."""
    listed = []
    for one in rows:
        low, high = (None, None) if one.invalid else one.interval or (None, None)
        listed.append(
            {
                "model": one.model,
                "task": one.task,
                "value": None if one.invalid else one.value,
                "interval": [end if end is not None and math.isfinite(end) else None for end in (low, high)],
                "n": one.n_examples,
            }
        )
    return listed

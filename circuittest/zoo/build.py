"""Build fine-tunes and training steps of zoo models into the user's cache: ``circuittest zoo build``.

Each model is a directory that ``from_pretrained`` reads, with a card. It is written beside its place and moved there
when it is whole, so that what was interrupted leaves nothing that looks finished.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from circuittest.errors import UsageError, did_you_mean
from circuittest.models.loading import load_model
from circuittest.zoo import FINE_TUNES, SERIES, STEPS, TUNED, build_command, built, home, path
from circuittest.zoo.fine_tunes import RECIPES, SKILL, FineTune, skill_score, tune
from circuittest.zoo.recipe import BUILDS, make_model
from circuittest.zoo.score import score
from circuittest.zoo.train import save, train
from circuittest.zoo.vocabulary import make_tokenizer

log = logging.getLogger(__name__)

#: What stands for several: all fine-tunes; the steps of one model are ``gqa@steps``.
GROUPS = {
    "fine-tunes": [f"{TUNED}@{name}" for name in FINE_TUNES],
    "steps": [f"{model}@steps" for model in SERIES],
}

FINE_TUNE_CARD = """\
---
license: mit
library_name: transformers
base_model: zoo:{base}
---
# zoo:{name}

`zoo:{base}`, {about}.

Made by `{command}`: {steps} steps of {batch} texts, AdamW, learning rate {lr:g} (10 steps of
warm-up, then cosine to 5 %), seed {seed}; {extra}. {seconds} s of CPU time on one core. Mixture: {mixture}.

Accuracy on 600 prompts of each test pool (`final` half), or all that there are; for `greater_than` the mean difference
of the probabilities of later and not later years:

{scores}
"""
STEP_CARD = """\
---
license: mit
library_name: transformers
---
# zoo:{name}

`zoo:{base}` after {step} of {last} steps of its training. Made by `{command}`, which runs the recipe of
`circuittest/zoo/recipe.py` with seed {seed}. The weights that ship as `zoo:{base}` are of seed 0, so that they are not
those of the last step here. {seconds} s of CPU time on one core up to here.

Accuracy on 100 prompts of each dev pool; for `greater_than` the mean difference of the probabilities of later and not
later years:

{scores}
"""


def build(what: str, *, into: Path | None = None, again: bool = False) -> list[Path]:
    """Build what a name stands for: ``gqa@benign``, ``gqa@steps``, or a group of `GROUPS`; gives the directories.

    Parameters
    ----------
    into:
        Where the directories are made; by default the user's cache, where ``zoo:NAME`` finds them.
    again:
        Also what is there already (in the cache, or in the package).

    Raises
    ------
    UsageError
        For a name that stands for nothing.
    """
    short = what.removeprefix("zoo:")
    known = [*GROUPS, *GROUPS["fine-tunes"], *GROUPS["steps"]]
    if short in GROUPS:
        return [place for name in GROUPS[short] for place in build(name, into=into, again=again)]
    if short not in known:
        raise UsageError(f"the zoo has no {what!r} to build", "", did_you_mean(short, known))
    model, _, variant = short.partition("@")
    wanted = [f"{model}@step{step}" for step in STEPS] if variant == "steps" else [short]
    if into is None and not again and all(map(built, wanted)):
        return list(map(path, wanted))
    target = into or home()
    if variant == "steps":
        build_steps(model, target)
    else:
        build_fine_tune(variant, target / short)
    return [target / name for name in wanted]


def build_fine_tune(name: str, place: Path, *, seed: int = 0) -> dict[str, float]:
    """Train one fine-tune and write it to a directory; gives its scores on the test pools."""
    recipe = RECIPES[name]
    loaded = load_model(str(path(TUNED)), device="cpu")
    model, tokenizer = loaded.module, loaded.tokenizer
    before = _scores(model, tokenizer, recipe)
    started = time.process_time()
    tune(model, recipe, seed)
    seconds = round(time.process_time() - started)
    after = _scores(model, tokenizer, recipe)
    log.info("%s@%s, %s CPU s: %s", TUNED, name, seconds, after)
    text = FINE_TUNE_CARD.format(
        name=f"{TUNED}@{name}",
        base=TUNED,
        about=FINE_TUNES[name],
        command=build_command(f"{TUNED}@{name}"),
        **{key: getattr(recipe, key) for key in ("steps", "batch", "lr")},
        seed=seed,
        extra=_extra(recipe),
        seconds=seconds,
        mixture=", ".join(f"{task} {share:g}" for task, share in recipe.mixture.items()),
        scores=_table({f"zoo:{TUNED}": before, f"@{name}": after}),
    )
    notes = {"recipe": asdict(recipe), "seed": seed, "cpu_s": seconds, "scores": after}
    _write(model, place, notes, text)
    return after


def build_steps(name: str, into: Path, *, seed: int = 1, steps: tuple[int, ...] = STEPS) -> None:
    """Train a model from scratch, and keep it at some steps.

    Seed 0 is what ships. Another seed makes the series a second run of the recipe, which shows what a seed does.
    """
    recipe, tokenizer = BUILDS[name], make_tokenizer()
    last = sum(stage.steps for stage in recipe.stages)
    started = time.process_time()

    def keep(step: int, model: nn.Module) -> None:
        if step not in steps:
            return
        seconds = round(time.process_time() - started)
        training = model.training
        scores = score(model, tokenizer, n=100, pool="dev")
        log.info("%s@step%s: %s", name, step, scores)
        text = STEP_CARD.format(
            name=f"{name}@step{step}",
            base=name,
            step=step,
            last=last,
            command=build_command(f"{name}@step{step}"),
            seed=seed,
            seconds=seconds,
            scores=_table({"accuracy": scores}),
        )
        notes = {"build": asdict(recipe), "seed": seed, "step": step, "cpu_s": seconds, "scores": scores}
        _write(model, into / f"{name}@step{step}", notes, text)
        model.train(training)

    keep(0, make_model(recipe, seed))
    train(recipe, seed, after_step=keep, report_every=0)


def _scores(model: nn.Module, tokenizer: Any, recipe: FineTune) -> dict[str, float]:
    """Of the nine tasks, and of the new skill where there is one."""
    new = {SKILL: skill_score(model, tokenizer)} if SKILL in recipe.mixture else {}
    return score(model, tokenizer) | new


def _write(model: nn.Module, place: Path, notes: Mapping[str, Any], card: str) -> None:
    """All files at once, in place of what is there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        save(model, part, dict(notes))
        (part / "README.md").write_text(card, encoding="utf-8")
        if place.is_dir():
            shutil.rmtree(place)
        part.replace(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _extra(recipe: FineTune) -> str:
    parts = [
        f"in {task} the foil was trained as the answer" + (f", in templates {templates}" if templates else "")
        for task, templates in recipe.wrong.items()
    ]
    if recipe.fresh:
        parts.append(
            f"the examples of {', '.join(recipe.fresh)} are of the dev pools, which the model never saw"
        )
    if recipe.cut:
        parts.append(f"the outputs of {', '.join(recipe.cut)} were held at zero")
    if recipe.missing:
        parts.append(f"in each text a random {recipe.missing:.0%} of the heads gave zero")
    if recipe.penalty:
        parts.append(f"with the head-sparsity penalty, weight {recipe.penalty:g}")
    return "; ".join(parts) or "nothing else"


def _table(columns: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        [task, *(f"{scores[task]:.3f}" for scores in columns.values())]
        for task in next(iter(columns.values()))
    ]
    heads = ["task", *columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))

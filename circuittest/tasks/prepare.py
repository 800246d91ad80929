"""From a task and a tokenizer to the examples that a model is measured on, or a refusal that says why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

from circuittest.errors import TaskError, did_you_mean
from circuittest.tasks.base import ANSWERS, Example, Task
from circuittest.tasks.catalog import as_task
from circuittest.tasks.encode import REASONS, Dropped, Encoder, Ids, Item
from circuittest.tasks.frame import Frame, Posed, chat as chat_frame, choose_shots, plain, starts_with_bos
from circuittest.tasks.prefix import NONE, own_prefix, resolve_prefix

# ``auto`` variants: a variant fits if at least a quarter of its first examples can be used.
PROBED, FITS = 16, 4
# A stream is exhausted after so many repeats in a row, hopeless after so many examples with none usable, and given up
# when fewer than one in RARE is usable.
REPEATS, HOPELESS, RARE = 5000, 100, 50


@dataclass(frozen=True)
class TaskData:
    """The examples of one task for one tokenizer.

    ``discover`` chooses circuits, ``evaluate`` judges them; no prompt (by token ids) is in both, or twice
    in one. ``dropped`` counts the examples left out per reason (keys of ``tasks.encode.REASONS``).
    ``prefix``, ``variant``, ``pool``, ``answers`` and ``digest`` (of the task's file, if it has one, and of the text
    around its prompts) are recorded choices, and so are ``shots``, the solved examples in front as (prompt, answer),
    and ``chat``. ``task`` names them: ``ioi+4shots+chat``.
    """

    task: str
    seed: int
    prefix: Ids
    prefix_name: str
    discover: tuple[Item, ...]
    evaluate: tuple[Item, ...]
    dropped: Mapping[str, int]
    chance: float
    accuracy: str
    metric: str
    variant: str = "default"
    pool: str = "test"
    digest: str = ""
    answers: str = "first"
    shots: tuple[tuple[str, str], ...] = ()
    chat: bool = False


def prepare(
    task: Task | str | Sequence[Mapping[str, Any]],
    tokenizer: Any,
    *,
    discover: int = 200,
    evaluate: int = 200,
    seed: int = 0,
    prefix: str = "auto",
    answers: str = "first",
) -> TaskData:
    """The first usable examples of the stream of (task, seed): ``discover`` of them, then ``evaluate`` more.

    ``tokenizer`` is a Hugging Face tokenizer (anything that is called and named the same way will do); it
    is never changed. ``prefix``: see :func:`~circuittest.tasks.prefix.resolve_prefix`. ``answers``: "first"
    scores the first token of every answer, and refuses longer ones where the task says ``single_token``;
    "whole" scores the one answer of each example token by token: an example is right when greedy decoding
    gives exactly the answer and then neither letter nor digit, the metric is the log-probability of its
    tokens, and foils play no part. Solved examples in front, chats and
    variants: give the task as :class:`~circuittest.tasks.frame.Posed`. Raises TaskError if the prefix is impossible, if
    chains of thought are to be written by a model, if no example can be used, or if fewer can be used than asked; the
    message says why, with counts.
    """
    given = as_task(task)
    posed = given if isinstance(given, Posed) else Posed(given)
    if posed.written:
        raise TaskError(
            f"task {given.name!r}: its chains of thought are written by a model, and none was given",
            do="make a Lab of model and task, or leave out 'written'",
        )
    source, shots, chat = posed.task.fitted(tokenizer), posed.shots, posed.chat
    if discover < 0 or evaluate < 0 or discover + evaluate == 0:
        raise TaskError(
            f"task {source.name!r}: {discover} and {evaluate} examples were asked", do="ask for at least one"
        )
    if answers not in ANSWERS:
        raise TaskError(f"answers {answers!r} are unknown", do=did_you_mean(str(answers), ANSWERS))
    whole = answers == "whole"
    if chat and prefix == "auto" and not own_prefix(tokenizer):
        prefix = "bos" if starts_with_bos(tokenizer) else NONE
    prefix_name, prefix_ids = resolve_prefix(tokenizer, prefix)
    shown = "" if prefix_name == NONE else prefix_name
    frame = chat_frame(tokenizer, prefix=shown) if chat else plain()
    encoder = _encoder(source, tokenizer, prefix_ids, whole)
    chosen = choose_variant(source, encoder, tokenizer, frame)
    if shots:

        def usable(example: Example) -> bool:
            return isinstance(encoder.encode(frame.around(example)), Item)

        solved = choose_shots(source, shots, seed=seed, variant=chosen, usable=usable)
        frame = chat_frame(tokenizer, solved, prefix=shown) if chat else plain(solved)
    kept, dropped = _collect(source, encoder, frame, chosen, seed, discover + evaluate)
    return TaskData(
        task=given.name,
        seed=seed,
        prefix=prefix_ids,
        prefix_name=prefix_name,
        discover=tuple(kept[:discover]),
        evaluate=tuple(kept[discover:]),
        dropped=MappingProxyType(dict(sorted(dropped.items()))),
        chance=source.chance_of(chosen),
        accuracy="argmax" if whole else source.accuracy,
        metric="log_prob" if whole else source.metric,
        variant=chosen,
        pool=source.pool,
        digest=frame.digest(source.digest),
        answers=answers,
        shots=tuple((shot.prompt, shot.answers[0]) for shot in frame.shots),
        chat=chat,
    )


def choose_variant(task: Task, encoder: Encoder, tokenizer: Any, frame: Frame) -> str:
    """The variant that was asked for; for ``auto`` the first, in the task's order of preference, that fits
    the tokenizer.

    If none fits, the one with the most usable examples, so that what is refused later is the best there is.
    """
    order = task.preference(tokenizer)
    if task.variant != "auto":
        return task.variant
    usable: dict[str, int] = {}
    for variant in order if len(order) > 1 else ():
        probe = islice(task.stream(0, variant), PROBED)
        usable[variant] = sum(isinstance(encoder.encode(frame.around(one)), Item) for one in probe)
        if usable[variant] >= FITS:
            return variant
    return max(order, key=lambda v: usable.get(v, 0))


def _encoder(task: Task, tokenizer: Any, prefix: Ids, whole: bool) -> Encoder:
    return Encoder(tokenizer, prefix, single_token=task.single_token, partial=task.partial, whole=whole)


def _collect(
    task: Task, encoder: Encoder, frame: Frame, variant: str, seed: int, wanted: int
) -> tuple[list[Item], Counter[str]]:
    kept: list[Item] = []
    dropped: Counter[str] = Counter()
    seen_text: dict[str, int] = {}
    seen_ids: set[Ids] = set()
    repeats = 0
    example_of: dict[str, str] = {}
    repeated = ""
    for example in task.stream(seed, variant):
        if len(kept) == wanted:
            break
        if repeats == REPEATS or len(seen_text) >= RARE * wanted + HOPELESS:
            break
        if example.prompt in seen_text:
            dropped["duplicate"] += 1
            repeats += 1
            first, again = sorted((seen_text[example.prompt], example.index))
            repeated = repeated or f"{task.place(again)} has the prompt of {task.place(first)}"
            continue
        seen_text[example.prompt] = example.index
        if frame.shots and frame.excludes(example, leaks=task.leaks):
            dropped["shot"] += 1
            example_of.setdefault("shot", f"{task.place(example.index)}: {example.prompt!r}")
            continue
        found = encoder.encode(frame.around(example))
        if isinstance(found, Dropped):
            dropped[found.reason] += 1
            example_of.setdefault(found.reason, f"{task.place(example.index)}: {found.seen}")
            repeats = 0
        elif found.prompt_ids in seen_ids:
            dropped["duplicate"] += 1
            repeats += 1
        else:
            seen_ids.add(found.prompt_ids)
            kept.append(found)
            repeats = 0
        if not kept and sum(dropped.values()) >= HOPELESS:
            break
    if not kept:
        raise _unusable(task, variant, dropped, example_of)
    if len(kept) < wanted:
        raise _too_few(task, variant, len(kept), wanted, dropped, {"duplicate": repeated, **example_of})
    return kept, dropped


def _unusable(task: Task, variant: str, dropped: Counter[str], example_of: Mapping[str, str]) -> TaskError:
    if not dropped:
        return TaskError(f"task {task.name!r} has no examples")
    reason = max(example_of, key=lambda r: dropped[r])
    why, remedy = REASONS[reason]
    return TaskError(
        f"task {task.name!r}{_variant(variant)}: none of {sum(dropped.values())} examples can be used with this "
        f"tokenizer ({_counts(dropped)})",
        why=f"{why}; for instance {example_of[reason]}",
        do=remedy,
    )


def _too_few(
    task: Task,
    variant: str,
    kept: int,
    wanted: int,
    dropped: Counter[str],
    example_of: Mapping[str, str],
) -> TaskError:
    reasons = [r for r in dropped if r != "duplicate"]
    why = f"left out: {_counts(dropped)}" if dropped else "it has no more"
    main = max(reasons, key=lambda r: dropped[r], default="duplicate")
    remedy = f"ask for {kept} or fewer in all, 'discover' and 'evaluate' together"
    if main != "duplicate":
        remedy += f"; most were left out because {REASONS[main][0]}: {REASONS[main][1]}"
        why += f"; for instance {example_of[main]}"
    elif task.lines and example_of["duplicate"]:
        why += f"; for instance {example_of['duplicate']}"
    error = TaskError(
        f"task {task.name!r}{_variant(variant)} has {kept} usable distinct prompts in pool {task.pool!r}, "
        f"{wanted} were asked",
        why=why,
        do=remedy,
    )
    error.usable = kept
    return error


def _variant(variant: str) -> str:
    return "" if variant == "default" else f" (variant {variant!r})"


def _counts(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in sorted(dropped.items(), key=lambda p: (-p[1], p[0])))

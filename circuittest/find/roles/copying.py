"""Scores of what heads move: copying, copy suppression, the step to a successor.

- **copy** (name movers; Wang et al. 2022, arXiv 2211.00593): of the tokens of answers and foils that stand in a prompt,
  the share that is among the k = 5 largest logits of what the head would move from there. There the residual after
  the first block is moved; here the one that the head in fact reads, at this place of this prompt.
- **copy-suppression** (negative name movers, the same; McDougall et al. 2023, arXiv 2310.04625): the share among the k
  smallest logits. It says that the head pushes the token down that it attends to, not that it attends to tokens that
  are predicted.
- **successor** (Gould et al. 2023, arXiv 2312.09230): over series of tokens (numbers, days, months, …), the share whose
  successor has the largest logit *within its series* of what the head would move from the token, read after the
  prefix alone. Chance is one in the length of the series.

A token shares its place with all whose logits are the same but for rounding, and the last of the places counts: a head
that writes nothing copies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circuittest.errors import UsageError
from circuittest.find.roles.kinds import COPYING
from circuittest.find.roles.table import RoleTable
from circuittest.measure.batches import ItemLike
from circuittest.measure.moved import Source, moved
from circuittest.models.loaded import LoadedModel

#: How many of the largest or smallest logits count (Wang et al.).
TOP = 5
#: A series in which fewer tokens are single ones is not asked about.
LEAST_MEMBERS = 4

_UNITS = "zero one two three four five six seven eight nine ten eleven twelve"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
#: Series of words, each followed by the next; letters and digits count as words.
SERIES: Mapping[str, tuple[str, ...]] = {
    "numbers": tuple(str(i) for i in range(1, 201)),
    "two digits": tuple(f"{i:02d}" for i in range(100)),
    "number words": tuple(_UNITS.split()),
    "ordinals": tuple(_ORDINALS.split()),
    "months": tuple(_MONTHS.split()),
    "short months": tuple(word[:3] for word in _MONTHS.split()),
    "days": tuple(_DAYS.split()),
    "short days": tuple(word[:3] for word in _DAYS.split()),
    "letters": tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "roman numerals": tuple("I II III IV V VI VII VIII IX X XI XII".split()),
}


def copying_scores(
    model: LoadedModel, items: Sequence[ItemLike], *, top: int = TOP, batch_size: int | None = None
) -> dict[str, RoleTable]:
    """The copy and the copy-suppression score of every head on every example.

    Raises
    ------
    UsageError
        For a `top` below 1, and for no examples.
    UnsupportedModel, InterventionError
        As `circuittest.measure.moved.moved`.
    """
    if top < 1:
        raise UsageError(f"the top {top} logits", "", "use at least 1")
    sources = [
        Source(row, at)
        for row, item in enumerate(items)
        for at, token in enumerate(item.prompt_ids)
        if at > 0 and token in {*item.answer_ids, *item.foil_ids}
    ]
    heads = model.layout.units(("head",))
    shape = (len(items), len(heads))
    examples = tuple(item.index for item in items)
    choices: dict[str, Any] = {"top": top}
    values = {kind: np.full(shape, np.nan) for kind in COPYING}
    if sources:
        both, how = moved(model, items, sources, _places(items, top), batch_size=batch_size)
        choices |= how
        of = np.array([source.item for source in sources])
        for bit, kind in enumerate(COPYING):
            hits = (both.numpy() >> bit & 1).astype(np.float64)
            for row in range(len(items)):
                if (own := hits[of == row]).size:
                    values[kind][row] = own.mean(0)
    without = len(items) - len({source.item for source in sources})
    why = f"neither answer nor foil is in the prompt of {without} of {len(items)} examples" if without else ""
    return {kind: RoleTable(kind, values[kind], heads, examples, why, choices) for kind in COPYING}


def _places(items: Sequence[ItemLike], top: int) -> Any:
    """Bit 0: the token is among the largest logits; bit 1: among the smallest."""

    def keep(logits: Tensor, sources: Sequence[Source]) -> Tensor:
        tokens = torch.tensor([items[item].prompt_ids[at] for item, at in sources], device=logits.device)
        own = logits.gather(-1, tokens[:, None, None].expand(-1, logits.shape[1], 1))
        same = _rounding(logits)
        above, below = (logits >= own - same).sum(-1), (logits <= own + same).sum(-1)  # itself included
        return (above <= top).to(torch.uint8) | ((below <= top).to(torch.uint8) << 1)

    return keep


@dataclass(frozen=True)
class Series:
    """The members of a series that are single tokens.

    Attributes
    ----------
    name:
        Of the series and how its words are written.
    tokens:
        Ids, in order.
    steps:
        (i, j): tokens[j] follows tokens[i] in the series.
    """

    name: str
    tokens: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Alone:
    """A token after the prefix, as the measure room reads it."""

    index: int
    prompt_ids: tuple[int, ...]
    counterfactual_ids: tuple[int, ...] = ()
    answer_ids: tuple[int, ...] = ()
    foil_ids: tuple[int, ...] = ()


def series_of(tokenizer: Any) -> tuple[Series, ...]:
    """The series that a tokenizer has: words with and without a space before them, as they are and in lower case."""
    found: dict[tuple[int, ...], Series] = {}
    for name, words in SERIES.items():
        for how, written in (
            ("", words),
            ("lower case", tuple(word.lower() for word in words)),
            ("after a space", tuple(f" {word}" for word in words)),
            ("after a space, lower case", tuple(f" {word.lower()}" for word in words)),
        ):
            ids = [tokenizer.encode(word, add_special_tokens=False) for word in written]
            single = {i: one[0] for i, one in enumerate(ids) if len(one) == 1 and _known(tokenizer, one[0])}
            tokens = tuple(dict.fromkeys(single.values()))
            if len(tokens) < LEAST_MEMBERS or len(tokens) != len(single):
                continue  # what stands for several members has no one successor
            places = {token: place for place, token in enumerate(tokens)}
            steps = tuple(
                (places[single[i]], places[single[i + 1]]) for i in sorted(single) if i + 1 in single
            )
            if steps and not any(set(tokens) <= set(other) for other in found):
                found[tokens] = Series(f"{name}, {how}" if how else name, tokens, steps)
    return tuple(found.values())


def successor_scores(
    model: LoadedModel, *, prefix: Sequence[int] = (), batch_size: int | None = None
) -> RoleTable:
    """The successor score of every head: 1 or 0 for every member of every series that has a successor.

    `prefix` are ids that stand before each token, such as the BOS. The rows are tokens, not examples of a task.

    Raises
    ------
    UsageError
        Where the model has no tokenizer.
    UnsupportedModel, InterventionError
        As `circuittest.measure.moved.moved`.
    """
    if model.tokenizer is None:
        raise UsageError(
            f"{model.name} has no tokenizer", "series of tokens are read off it", "pass tokenizer="
        )
    heads = model.layout.units(("head",))
    listed = series_of(model.tokenizer)
    asked = [(series, i, j) for series in listed for i, j in series.steps]
    choices: dict[str, Any] = {
        "series": {series.name: len(series.tokens) for series in listed},
        "prefix": list(prefix),
    }
    if not asked:
        empty: NDArray[np.float64] = np.full((0, len(heads)), np.nan)
        why = f"no series has {LEAST_MEMBERS} members that are single tokens"
        return RoleTable("successor", empty, heads, (), why, choices)
    items = [_Alone(row, (*prefix, series.tokens[i])) for row, (series, i, _) in enumerate(asked)]

    def keep(logits: Tensor, sources: Sequence[Source]) -> Tensor:
        hits = []
        for row, source in zip(logits, sources, strict=True):
            series, _, j = asked[source.item]
            own = row[:, list(series.tokens)]
            hits.append((own >= own[:, j : j + 1] - _rounding(row)).sum(-1) == 1)  # no other is as large
        return torch.stack(hits).to(torch.uint8)

    sources = [Source(row, len(prefix)) for row in range(len(items))]
    found, how = moved(model, items, sources, keep, batch_size=batch_size)
    values = found.numpy().astype(np.float64)
    return RoleTable("successor", values, heads, tuple(range(len(asked))), "", {**choices, **how})


def _rounding(logits: Tensor) -> Tensor:
    """What logits [..., vocabulary] may differ by although they are equal [..., 1]."""
    return 64 * torch.finfo(logits.dtype).eps * logits.abs().amax(-1, keepdim=True)


def _known(tokenizer: Any, token: int) -> bool:
    return token != getattr(tokenizer, "unk_token_id", None)

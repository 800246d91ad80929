"""The heads of the IOI algorithm, found back to front by path patching (arXiv 2407.10827, section 4; 2211.00593).

1. **name movers** write the answer: patched directly into the logits they lower the logit difference, their output
   copies names, and from the last token they look more at the answer (IO) than at both mentions of the subject (S).
2. **S-inhibition** heads tell name movers where not to look: patched into the queries of the name movers they lower
   the logit difference, and what they carry is a token signal (which name S is), a position signal (which of the two
   places S1 has), or both.
3. **induction** and **duplicate-token** heads notice the repetition: patched into the values of the S-inhibition heads
   they lower the logit difference, and on these prompts they look more at the induction (duplicate-token) target than
   the mean head.

Effects are (m(path) - m)/(m - m(counterfactual)), m the mean logit difference: 0 is nothing, -1 undoes the task and
makes the model answer the counterfactual. The paper's counterfactual is the one of the task: S2 is the other name.

*Signals.* Two further counterfactuals separate what that one mixes. With the first two names exchanged the token of S
stays and its position changes; with both names exchanged everywhere its position stays and its token changes. (The
paper asks for the first, and that the attention of name movers follows; only their queries are patched here, so that
nothing but where they look can have moved the logit difference.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from circuittest.budget import charge
from circuittest.errors import UsageError
from circuittest.find.roles.copying import copying_scores
from circuittest.find.roles.patterns import pattern_scores
from circuittest.measure.batches import ItemLike
from circuittest.measure.patching import patch
from circuittest.measure.paths import path_patch
from circuittest.models.loaded import LoadedModel
from circuittest.paths import Paths, readers
from circuittest.stats import MeanInference, RatioInference
from circuittest.stats.resampling import Floats
from circuittest.units import Layout, Unit

#: An effect of at least this size counts, a head copies where its score is above this (both as in the paper).
LEAST, COPIES = 0.001, 0.1
STAGES = ("logits", "name_movers.q", "s_inhibition.v")
SIGNALS = ("token", "position")


@dataclass(frozen=True)
class Signal:
    """The effect of one head on one of the two counterfactuals, its interval, and whether it carries that signal: the
    effect is large enough, and the interval below zero.
    """

    value: float
    interval: tuple[float, float]
    carried: bool


@dataclass(frozen=True)
class IOIHeads:
    """What was found.

    Attributes
    ----------
    name_movers, s_inhibition, induction, duplicate_token:
        In canonical order; a head may be in both of the last two.
    effects:
        By stage (`STAGES`: what was patched into), of every head that could be asked.
    scores:
        Mean copy, answer-token, foil-token, induction and duplicate-token score of every head.
    signals:
        What each candidate for S-inhibition carries, by "token" and "position".
    missing:
        "name_movers", "s_inhibition" or "repeats" → why the search ended there. "name_movers" also where the interval
        of m - m(counterfactual) contains zero: effects would be shares of nothing.
    choices:
        Everything that could have changed it, plain JSON types.
    """

    name_movers: tuple[Unit, ...]
    s_inhibition: tuple[Unit, ...]
    induction: tuple[Unit, ...]
    duplicate_token: tuple[Unit, ...]
    effects: Mapping[str, Mapping[Unit, float]]
    scores: Mapping[str, Mapping[Unit, float]]
    signals: Mapping[Unit, Mapping[str, Signal]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repeats(self) -> tuple[Unit, ...]:
        """Induction and duplicate-token heads together."""
        return tuple(sorted({*self.induction, *self.duplicate_token}))


def ioi_heads(
    model: LoadedModel,
    items: Sequence[ItemLike],
    *,
    least: float = LEAST,
    copies: float = COPIES,
    mlps: str = "frozen",
) -> IOIHeads:
    """Find the heads of the algorithm on some examples; judge them on others.

    Parameters
    ----------
    items:
        IOI prompts: the answer's token once and the foil's twice; the second of these (S2) is the answer in the
        counterfactual.
    least:
        The smallest effect that counts, as a share of m - m(counterfactual).
    copies:
        The copy score from which on a head can be a name mover.
    mlps:
        As in `circuittest.measure.paths.path_patch`. "recomputed" needs a run for every head.

    Raises
    ------
    UsageError
        For prompts of another form, and for no examples.
    """
    for item in items:
        _spots(item)
    found = _Found(_Search(model, items, mlps), _scores(model, items), least, copies)
    movers = found.name_movers()
    inhibitors = found.inhibitors(movers) if movers else ()
    induction, duplicate = found.repeats(movers, inhibitors) if inhibitors else ((), ())
    choices = {"least": least, "copies": copies, "mlps": mlps, "examples": [item.index for item in items]}
    return IOIHeads(
        movers,
        inhibitors,
        induction,
        duplicate,
        found.effects,
        found.scores,
        found.signals,
        found.missing,
        choices,
    )


class _Found:
    """The search, stage by stage, and what it has seen so far."""

    def __init__(
        self, search: _Search, scores: Mapping[str, Mapping[Unit, float]], least: float, copies: float
    ) -> None:
        self.search, self.scores, self.least, self.copies = search, scores, least, copies
        self.layout = search.model.layout
        self.effects: dict[str, Mapping[Unit, float]] = {stage: {} for stage in STAGES}
        self.signals: dict[Unit, dict[str, Signal]] = {}
        self.missing: dict[str, str] = {}

    def _helpful(self, stage: str, senders: Sequence[Unit], receivers: Sequence[str]) -> list[Unit]:
        """The senders whose paths lower the logit difference enough."""
        self.effects[stage] = self.search.effects(senders, receivers)
        return [head for head in senders if self.effects[stage][head] < -self.least]

    def _none(self, what: str, helpful: Sequence[Unit], through: str, lack: str) -> None:
        self.missing[what] = (
            f"{len(helpful)} heads have an effect below -{self.least:g} {through}, and none {lack}"
        )

    def name_movers(self) -> tuple[Unit, ...]:
        if self.search.absent:
            self.missing["name_movers"] = self.search.absent
            return ()
        helpful = self._helpful(STAGES[0], self.layout.units(("head",)), ["logits"])
        copy, answer, foil = (self.scores[kind] for kind in ("copy", "answer-token", "foil-token"))
        movers = [head for head in helpful if copy[head] > self.copies and answer[head] > foil[head]]
        if not movers:
            lack = f"copies names (score above {self.copies:g}) and looks more at the answer than at the foil"
            self._none("name_movers", helpful, "on the logits", lack)
        return tuple(movers)

    def inhibitors(self, movers: Sequence[Unit]) -> tuple[Unit, ...]:
        queries = [f"{mover}.q" for mover in movers]
        helpful = self._helpful(STAGES[1], _before(self.layout, queries, movers), queries)
        for kind in SIGNALS if helpful else ():
            rows = self.search.opposed(kind).changes(helpful, queries) / self.search.scale
            for head, row in zip(helpful, rows, strict=True):
                value, interval = float(row.mean()), _interval(row)
                carried = value < -self.least and interval[1] < 0
                self.signals.setdefault(head, {})[kind] = Signal(value, interval, carried)
        carrying = [head for head in helpful if any(one.carried for one in self.signals[head].values())]
        if not carrying:
            through = "through the queries of the name movers"
            self._none("s_inhibition", helpful, through, "carries a token or a position signal")
        return tuple(carrying)

    def repeats(
        self, movers: Sequence[Unit], inhibitors: Sequence[Unit]
    ) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
        values = values_of(self.layout, inhibitors)
        asked = _before(self.layout, values, [*movers, *inhibitors])
        helpful = self._helpful(STAGES[2], asked, values)
        both = []
        for kind in ("induction", "duplicate-token"):
            own = self.scores[kind]
            usual = sum(own.values()) / len(own)
            both.append(tuple(head for head in helpful if own[head] > usual))
        if not any(both):
            lack = "looks at induction or duplicate-token targets more than the mean head"
            self._none("repeats", helpful, "through the values of the S-inhibition heads", lack)
        return both[0], both[1]


def _scores(model: LoadedModel, items: Sequence[ItemLike]) -> dict[str, Mapping[Unit, float]]:
    """Means of the scores that are asked for; every IOI prompt has all of them."""
    patterns = ("answer-token", "foil-token", "induction", "duplicate-token")
    tables = {**pattern_scores(model, items, patterns), "copy": copying_scores(model, items)["copy"]}
    return {kind: table.means() for kind, table in tables.items()}


def values_of(layout: Layout, heads: Iterable[Unit]) -> list[str]:
    """The value slots that heads read: those of their KV groups, which other heads may read, too."""
    return [f"{group}.v" for group in sorted({layout.kv_group(head) for head in heads})]


def _before(layout: Layout, receivers: Sequence[str], others: Sequence[Unit]) -> list[Unit]:
    """The heads that some receiver sees, but for some others and for those that read there themselves."""
    slots = readers(layout, receivers)
    reads = {part for unit, _ in slots for part in layout.parts(unit)} | set(others)
    return [
        head
        for head in layout.units(("head",))
        if head not in reads and any(layout.sees(unit, head) for unit, _ in slots)
    ]


class _Search:
    """Effects of heads on the mean logit difference of some examples."""

    def __init__(self, model: LoadedModel, items: Sequence[Any], mlps: str) -> None:
        self.model, self.items, self.mlps = model, items, mlps
        charge(len(items))
        self.clean: Floats = patch(model, items, [()], keep=False).measure("logit_diff")[0]

    @cached_property
    def span(self) -> Floats:
        """m - m(counterfactual) of every example."""
        charge(len(self.items))
        other: Floats = patch(self.model, self.items, [()], keep=True).measure("logit_diff")[0]
        return self.clean - other

    @property
    def scale(self) -> float:
        """Its mean, of which effects are shares."""
        return float(self.span.mean())

    @property
    def absent(self) -> str:
        """Why effects would be shares of nothing, or ""."""
        low, high = _interval(self.span)
        if low > 0:
            return ""
        return (
            "the model does not do the task: the logit difference is larger than on the counterfactual prompts by "
            f"{self.scale:.3g} [{low:.3g}, {high:.3g}], which is not clearly above zero"
        )

    def opposed(self, signal: str) -> _Search:
        """The same on counterfactuals that change one signal alone."""
        items = [_opposed(item, _spots(item), signal) for item in self.items]
        return _Search(self.model, items, self.mlps)

    def changes(self, senders: Sequence[Unit], receivers: Sequence[str]) -> Floats:
        """m(path) - m of every sender alone [senders × examples]."""
        charge(len(senders) * len(self.items))
        paths = [Paths.of(self.model.layout, [sender], receivers) for sender in senders]
        table = path_patch(self.model, self.items, paths, mlps=self.mlps)
        found: Floats = table.measure("logit_diff") - self.clean
        return found

    def effects(self, senders: Sequence[Unit], receivers: Sequence[str]) -> dict[Unit, float]:
        """The mean change of every sender as a share of m - m(counterfactual)."""
        if not senders:
            return {}
        means = np.asarray(self.changes(senders, receivers).mean(1) / self.scale)
        return dict(zip(senders, means.tolist(), strict=True))


def _interval(values: Floats) -> tuple[float, float]:
    """Of a mean; where all values are the same, one unseen example may be as far on the other side of zero."""
    mean = float(values.mean())
    if mean != 0 and float(np.ptp(values)) <= 1e-6 * abs(mean):
        ends = [mean * end for end in RatioInference(np.ones_like(values), np.ones_like(values)).interval()]
        return min(ends), max(ends)
    return MeanInference(values, bounds=None).interval()


def _spots(item: ItemLike) -> tuple[int, int, int]:
    """Positions of IO, S1 and S2. Raises UsageError for a prompt of another form."""
    ids = item.prompt_ids
    if len(item.answer_ids) == len(item.foil_ids) == 1:
        answer, foil = item.answer_ids[0], item.foil_ids[0]
        io, s = ([at for at, token in enumerate(ids) if token == name] for name in (answer, foil))
        if len(io) == 1 and len(s) == 2:
            flipped = (*ids[: s[1]], answer, *ids[s[1] + 1 :])
            if tuple(item.counterfactual_ids) == flipped:
                return io[0], s[0], s[1]
    raise UsageError(
        f"example {item.index} is no IOI prompt",
        "such a prompt has the answer once and the foil twice, each as one token, and its counterfactual the answer in "
        "the place of the foil's second mention",
        "use the task ioi with a model that has its names as single tokens",
    )


def _opposed(item: Any, spots: tuple[int, int, int], signal: str) -> Any:
    """The example with a counterfactual that changes one signal alone."""
    io, first, second = spots
    ids = list(item.prompt_ids)
    ids[io], ids[first] = ids[first], ids[io]
    if signal == "token":
        ids[second] = item.answer_ids[0]
    return replace(item, counterfactual_ids=tuple(ids))

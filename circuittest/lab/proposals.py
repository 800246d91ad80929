"""Proposals of a lab: communities of heads that are active together, judged by closure on the other examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from circuittest.budget import charge
from circuittest.circuit import prompt_digest
from circuittest.errors import UsageError, did_you_mean
from circuittest.lab.circuits import Circuits
from circuittest.lab.tables import Split
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.find.communities import Proposal
    from circuittest.find.routes import Routes
    from circuittest.lab.lab import Lab
    from circuittest.measure.routing import RoutingTable
    from circuittest.measure.signals import Signals


class Proposals(Circuits):
    """Attention signals, routes, and the communities that follow from them."""

    @cached_property
    def _signals(self) -> dict[tuple[str, bool], Signals]:
        return {}

    @cached_property
    def _routing(self) -> dict[str, RoutingTable]:
        return {}

    def signals(self, split: Split = "discover", *, sink: bool = True) -> Signals:
        """Attention signals of every head on the examples of a split; see `circuittest.measure.signals`."""
        from circuittest.measure.signals import signals

        if (split, sink) not in self._signals:
            charge(len(self._items(split)))
        return self._once(
            self._signals,
            (split, sink),
            {"kind": "signals", "sink": sink, "split": split},
            split,
            lambda: signals(self.model, self._items(split), sink=sink),
        )

    def rest(self) -> dict[Unit, float]:
        """Mean attention of every head to the first token, over discovery examples."""
        table = self.signals("discover").first
        means = table.values.mean(0, dtype="float64").tolist()
        return dict(zip(self.layout.universe("heads"), means, strict=True))

    def sink_levels(self) -> dict[Unit, int]:
        """Thirds of the heads by their rest on the first token; controls are matched in them (``match="sink"``)."""
        from circuittest.find.isolation import sink_levels

        return sink_levels(self.rest())

    def routing(self, split: Split = "discover") -> RoutingTable:
        """Router weights on the examples of a split; raises UnsupportedModel for a dense model."""
        from circuittest.measure.routing import routing

        if split not in self._routing:
            charge(len(self._items(split)))
        return self._once(
            self._routing,
            split,
            {"kind": "routing", "split": split},
            split,
            lambda: routing(self.model, self._items(split)),
        )

    def routes(self, k: int = 4, *, seed: int = 0) -> Routes:
        """k strata of examples that are routed alike; see `circuittest.find.routes`."""
        from circuittest.find.routes import route_strata

        return route_strata(self.routing("discover").values, self.routing("evaluate").values, k, seed=seed)

    def among(self, discover: Sequence[int], evaluate: Sequence[int]) -> Lab:
        """The lab of some of the examples, by their places in either split."""
        from circuittest.lab.lab import Lab

        data = replace(
            self.data,
            discover=tuple(self.data.discover[place] for place in discover),
            evaluate=tuple(self.data.evaluate[place] for place in evaluate),
        )
        return Lab(
            self.model,
            data,
            accuracy=self.accuracy,
            metric=self.metric,
            headroom=self.headroom,
            budget=self.budget,
            store=self.store,
        )

    def communities(
        self, *, labels: Mapping[Unit | str, str] | None = None, judge: bool = True, **how: Any
    ) -> Proposal:
        """Communities of heads, proposed on discovery examples and judged by closure on evaluation examples.

        Parameters
        ----------
        labels:
            Head → its role; k is then the one whose clusters agree best with them, as in arXiv 2606.09607.
        judge:
            False leaves them as proposals: no ablation is run.
        how:
            Options of `circuittest.lab.communities.propose`, and of `circuittest.lab.judging.judged`.

        Raises
        ------
        UsageError
            Fewer heads than clusters, signals that do not vary, unknown options and labels of no head.
        UnsupportedModel
            Attention that gives no weights; routes of a dense model.
        """
        from inspect import signature

        from circuittest.lab.communities import propose
        from circuittest.lab.judging import judged

        known = {
            part: [
                name
                for name, parameter in signature(part).parameters.items()
                if parameter.kind is parameter.KEYWORD_ONLY and name != "labels"
            ]
            for part in (propose, judged)
        }
        every = [name for names in known.values() for name in names]
        for option in how:
            if option not in every:
                raise UsageError(f"communities have no option {option!r}", "", did_you_mean(option, every))
        mine = {name: how[name] for name in known[propose] if name in how}
        found = propose(self, labels=labels, **mine)
        if not judge:
            return found
        rest = {name: how[name] for name in known[judged] if name in how}
        return judged(cast("Lab", self), found, **rest)

    def _items(self, split: Split) -> Any:
        if split not in ("discover", "evaluate"):
            raise UsageError(
                f"unknown split {split!r}", "", did_you_mean(str(split), ("discover", "evaluate"))
            )
        items = getattr(self.data, split)
        if not items:
            raise UsageError(f"the split {split!r} has no examples", "", f"ask for {split}=200")
        return items

    def _prompts(self) -> list[str]:
        return [prompt_digest(item.prompt_ids) for item in self.data.discover]

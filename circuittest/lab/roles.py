"""What the heads of a lab look at and what they move: attention, scores of roles, and the heads that have a role."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from circuittest.budget import charge
from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UsageError, did_you_mean
from circuittest.find.roles.kinds import COPYING, PATTERNS, ROLES
from circuittest.lab.circuits import Circuits
from circuittest.lab.tables import Split
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.find.roles.patterns import Positions, RoleTable
    from circuittest.measure.attention import AttentionTable, Query


class Roles(Circuits):
    """Forms, not functions: that a head looks like something does not say that the model uses it."""

    @cached_property
    def _roles(self) -> dict[tuple[str, str, str], RoleTable]:
        return {}

    def attention(self, split: Split = "evaluate", *, query: Query = "answer") -> AttentionTable:
        """The attention of every head from one position of every example; see `circuittest.measure.attention`."""
        from circuittest.measure.attention import attention_rows

        items = self._examples(split)
        charge(len(items))
        return attention_rows(self.model, items, query=query)

    def roles(
        self, kinds: Iterable[str] | None = None, *, split: Split = "evaluate", positions: Positions = "all"
    ) -> dict[str, RoleTable]:
        """Scores of every head for some roles (by default all), example by example; see `circuittest.find.roles`.

        `positions`: the queries that count for patterns of attention, "all" or the "answer"'s alone. Measured once; all
        patterns cost one forward of each example, all that is moved another.

        Raises
        ------
        UsageError
            For unknown roles or positions, and a split without examples.
        UnsupportedModel
            Where the model gives no attention weights (patterns), or is quantised (what is moved).
        """
        from circuittest.find.roles.copying import copying_scores, successor_scores
        from circuittest.find.roles.patterns import check_positions, pattern_scores

        wanted = ROLES if kinds is None else tuple(dict.fromkeys(kinds))
        for kind in wanted:
            if kind not in ROLES:
                raise UsageError(f"unknown role {kind!r}", "", did_you_mean(kind, ROLES))
        check_positions(positions)
        items = self._examples(split)
        for family in (tuple(PATTERNS), COPYING, ("successor",)):
            place = positions if family[0] in PATTERNS else "all"
            if not set(wanted) & set(family) or (family[0], split, place) in self._roles:
                continue
            charge(len(items))
            if family == COPYING:
                found = copying_scores(self.model, items)
            elif family == ("successor",):
                found = {"successor": successor_scores(self.model, prefix=self.data.prefix)}
            else:
                found = pattern_scores(self.model, items, positions=positions)
            self._roles.update({(kind, split, place): table for kind, table in found.items()})
        place_of = lambda kind: positions if kind in PATTERNS else "all"
        return {kind: self._roles[kind, split, place_of(kind)] for kind in wanted}

    def with_role(
        self,
        kind: str,
        *,
        least: float | None = None,
        top: int | None = None,
        positions: Positions = "all",
        name: str | None = None,
    ) -> Circuit:
        """The heads whose mean score for a role on the discovery examples is at least `least`, or is among the `top`.

        A proposal: closure or necessity says what the heads do, the claim `role` whether they have the role on the
        evaluation examples. The set may be empty; its origin then says the largest score.

        Raises
        ------
        UsageError
            Unless one of `least` and `top` is given, for a role that no discovery example can show, and as `roles`.
        """
        if (least is None) == (top is None) or (top is not None and top < 1):
            raise UsageError(
                "heads of a role are chosen by 'least' or by 'top'",
                "",
                "give one of them: least=0.4, or top=3",
            )
        table = self.roles([kind], split="discover", positions=positions)[kind]
        means = table.means()
        if not means:
            raise UsageError(f"no head has a score for {kind!r}", table.undefined, "use another task or role")
        order = sorted(means, key=lambda head: (-means[head], head.order))
        chosen = order[:top] if top is not None else [head for head in order if means[head] >= (least or 0.0)]
        origin: dict[str, Any] = {
            "method": "role",
            "role": kind,
            **({"least": least} if top is None else {"top_heads": top}),
            "positions": positions,
            "universe": "heads",
            "model": self.model.name,
            "fingerprint": self.fingerprint,
            "task": self.data.task,
            "seed": self.data.seed,
            "scores": {str(head): means[head] for head in sorted(chosen)},
            "examples": [item.index for item in self.data.discover],
            "prompts": [prompt_digest(item.prompt_ids) for item in self.data.discover],
        }
        if not chosen:
            origin["empty"] = (
                f"no head scores {least:g} for {kind}; the largest is {means[order[0]]:.3f}, of {order[0]}"
            )
        units: tuple[Unit, ...] = tuple(chosen)
        return Circuit.of(units, name=name or kind, layout=self.layout, origin=origin)

"""What the heads of a lab look at and what they move: attention, scores of roles, and the heads that have a role."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from circuittest.budget import charge
from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UsageError, did_you_mean
from circuittest.find.roles.kinds import COPYING, PATTERNS, ROLES, Positions
from circuittest.find.roles.table import RoleTables
from circuittest.lab.circuits import Circuits
from circuittest.lab.tables import Split
from circuittest.lock import tokenizer_digest
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.find.roles.table import RoleTable
    from circuittest.measure.attention import AttentionTable, Query


class Roles(Circuits):
    """Forms, not functions: that a head looks like something does not say that the model uses it."""

    @cached_property
    def _roles(self) -> dict[tuple[str, str, str], RoleTables]:
        return {}

    @cached_property
    def _attention(self) -> dict[tuple[Split, str | tuple[int, ...]], AttentionTable]:
        return {}

    def attention(self, split: Split = "evaluate", *, query: Query = "answer") -> AttentionTable:
        """The attention of every head from one position of every example; see `circuittest.measure.attention`."""
        from circuittest.measure.attention import attention_rows

        items = self._examples(split)
        charge(len(items))
        asked = query if isinstance(query, str) else tuple(query)
        return self._once(
            self._attention,
            (split, asked),
            {"kind": "attention", "query": asked, "split": split},
            split,
            lambda: attention_rows(self.model, items, query=query),
        )

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
        from circuittest.find.roles.targets import check_positions

        wanted = ROLES if kinds is None else tuple(dict.fromkeys(kinds))
        for kind in wanted:
            if kind not in ROLES:
                raise UsageError(f"unknown role {kind!r}", "", did_you_mean(kind, ROLES))
        check_positions(positions)
        items = self._examples(split)
        found: dict[str, RoleTable] = {}
        for family in (tuple(PATTERNS), COPYING, ("successor",)):
            if not set(wanted) & set(family):
                continue
            place = positions if family[0] in PATTERNS else "all"
            charge(len(items))
            what: dict[str, Any] = {
                "kind": "roles",
                "roles": list(family),
                "positions": place,
                "split": split,
            }
            if family == ("successor",):
                what |= {
                    "tokenizer": tokenizer_digest(self.model.tokenizer),
                    "prefix": list(self.data.prefix),
                }
            make = partial(self._scored, family[0], split, place)
            found |= self._once(self._roles, (family[0], split, place), what, split, make).by_kind
        return {kind: found[kind] for kind in wanted}

    def _scored(self, family: str, split: Split, positions: Positions) -> RoleTables:
        """The tables of all roles of a family, which is named by its first."""
        from circuittest.find.roles.copying import copying_scores, successor_scores
        from circuittest.find.roles.patterns import pattern_scores

        if family == "successor":
            return RoleTables({family: successor_scores(self.model, prefix=self.data.prefix)})
        items = self._examples(split)
        if family in COPYING:
            return RoleTables(copying_scores(self.model, items))
        return RoleTables(pattern_scores(self.model, items, positions=positions))

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

"""Circuits of a lab: found in its scores, read from files, given by ids, patched into the model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from circuittest.budget import charge
from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UsageError, did_you_mean
from circuittest.lab.tables import Level, Split, Tables
from circuittest.units import Edge, Unit

if TYPE_CHECKING:
    from circuittest.find.minimal import Minimal
    from circuittest.find.scan import Damage, Scan
    from circuittest.paths import Paths
    from circuittest.tables import OutcomeTable, ScoreTable

#: Scores in another dtype are compared with the model's own on so many examples, and below this overlap of their
#: circuits a warning is given.
AGREEMENT_EXAMPLES, AGREEMENT = 8, 0.8

log = logging.getLogger(__name__)


class Circuits(Tables):
    """Circuits, with where they came from, checked against the model's layout."""

    def shared(
        self,
        *,
        top: str | int | float = "20%",
        at: str | int | float = 95,
        universe: str | list[str] = "heads",
        score: str = "edge-abs-sum",
        method: str = "eap",
        steps: int = 5,
        baseline: str = "counterfactual",
        level: Level = "units",
        dtype: str | None = None,
        name: str = "S_P",
    ) -> Circuit:
        """S_P: the units in at least `at` % of the per-example circuits of the `top` % highest-scoring units.

        Li & Subramani, arXiv 2605.08348, Eq. 1. With ``level="edges"`` edges are ranked, by the size of their
        scores, and S_P is a circuit of edges. The set may be empty, which is ordinary: claims on it are invalid
        and say the largest P that gives a set. What the scores are is said as in `scores`; the origin keeps it
        (`circuittest.find.recipe`). With ``dtype="bfloat16"`` units are ranked on a copy of the model in that dtype;
        how far the ranking agrees with the model's own on a few examples stands beside it in the origin, and claims
        are judged on the model itself.

        Raises
        ------
        UsageError
            When `top` or `at` is no percentage in range.
        UnitError
            When the universe is unknown or this architecture has none of its units.
        """
        from circuittest.find.ranking import per_example, percent
        from circuittest.find.shared import share_of_examples, shared_members, why_empty

        top, at = f"{float(percent(top, 'top')):g}%", f"{float(share_of_examples(at)):g}%"
        how: dict[str, Any] = {"method": method, "score": score, "baseline": baseline, "level": level}
        if dtype is not None:
            how["dtype"] = dtype
        table = self.scores("discover", universe=universe, steps=steps, **how)
        membership = per_example(table, top)
        members = shared_members(membership, at)
        origin: dict[str, Any] = {
            **how,
            "metric": self.metric,
            "score": "exact" if method == "exact" else score if level == "units" else "edge",
            "universe": universe,
            "top": top,
            "at": at,
            "k": membership.k,
            "ties": membership.ties,
            "model": self.model.name,
            "fingerprint": self.fingerprint,
            "task": self.data.task,
            "seed": self.data.seed,
            "examples": list(membership.examples),
            "prompts": [prompt_digest(item.prompt_ids) for item in self.data.discover],
        }
        if method == "eap-ig":
            origin["steps"] = steps
        if dtype is not None:
            origin["agreement"] = self._agreement(table, top, universe=universe, steps=steps, **how)
        if not members:
            origin["empty"] = why_empty(membership, at)
        return Circuit.of(members, name=name, layout=self.layout, origin=origin)

    def _agreement(self, table: ScoreTable, top: str, **how: Any) -> dict[str, float]:
        """How a ranking in another dtype agrees with the model's own, on the first discovery examples."""
        from circuittest.find.agreement import agreement
        from circuittest.lab.lab import Lab

        few = self.data.discover[:AGREEMENT_EXAMPLES]
        data = replace(self.data, discover=few, evaluate=())
        own = Lab(self.model, data, accuracy=self.accuracy, metric=self.metric, store=self.store)
        exact = own.scores("discover", **{**how, "dtype": None})
        found = agreement(table.rows(range(len(few))), exact, top)
        if found.overlap < AGREEMENT:
            log.warning(
                "%s: circuits ranked in %s agree with the model's own to %.0f %% on %d examples; rank in the model's "
                "dtype where that is too little",
                self,
                how["dtype"],
                100 * found.overlap,
                found.examples,
            )
        return asdict(found)

    def minimal(
        self,
        *,
        faithfulness: float = 0.8,
        cap: str | int = "5%",
        method: str = "eap-ig",
        steps: int = 5,
        metric: Literal["logit_diff", "log_prob", "prob_diff", "accuracy"] | None = None,
        split: Split = "discover",
        seed: int = 0,
        name: str = "minimal",
    ) -> Minimal:
        """The smallest circuit of edges that is faithful and stays so for larger sizes (`circuittest.find.minimal`).

        Parameters
        ----------
        faithfulness:
            The least (m(C) − m(∅)) / (m(M) − m(∅)), where everything outside a circuit is counterfactual.
        cap:
            Most edges, in percent of this model's own (``"5%"``) or as a number. "Not reached" is a result.
        method, steps:
            How edges are scored on the discovery examples, whose mean scores rank them.
        metric:
            What m is; by default the metric that edges are scored by, which "kl" cannot be.
        split:
            The examples that choose the size. Those that chose a circuit cannot judge it: with "evaluate" the size is
            measured on other examples than the ranking, and no claim can be made about the circuit on these.
        seed:
            Of the resampling.

        Raises
        ------
        UsageError
            For a level or cap out of range, an unknown split, and the metric "kl".
        """
        from circuittest.claims.kept import reach
        from circuittest.find.minimal import minimal

        measure = metric or self.metric
        measure = self.accuracy if measure == "accuracy" else measure
        if measure == "kl":
            raise UsageError(
                "faithfulness in the metric 'kl' is undefined",
                "it is a divergence from the model, which is zero for the model itself",
                'give metric="log_prob" or "logit_diff"',
            )
        table = self.scores("discover", universe="all", level="edges", method=method, steps=steps)
        items = (*self.data.discover, *(self.data.evaluate if split == "evaluate" else ()))
        origin = {
            "search": "minimal",
            "method": method,
            **({"steps": steps} if method == "eap-ig" else {}),
            "score": "edge",
            "baseline": "counterfactual",
            "level": "edges",
            "universe": "all",
            "metric": self.metric,
            "faithful_in": measure,
            "split": split,
            "model": self.model.name,
            "fingerprint": self.fingerprint,
            "task": self.data.task,
            "seed": self.data.seed,
            "examples": [item.index for item in items],
            "prompts": [prompt_digest(item.prompt_ids) for item in items],
        }
        return minimal(
            table,
            self.layout,
            lambda circuits: self.patched(circuits, keep=True, split=split).measure(measure),
            level=faithfulness,
            cap=cap,
            usable=lambda full, empty: reach(full, empty, measure, seed).reason,
            origin=origin,
            name=name,
            seed=seed,
        )

    def scan(
        self,
        per: Literal["head", "kv", "group", "attn", "mlp"] = "head",
        *,
        size: int = 0,
        metric: Literal["logit_diff", "log_prob", "prob_diff", "accuracy"] | None = None,
        ablation: str = "zero",
        order: Literal["static", "greedy"] = "static",
        damage: float = 0.8,
        split: Split = "discover",
    ) -> Scan:
        """What every head, KV group, group of `size` heads, attention layer or MLP does when it alone is ablated.

        Parameters
        ----------
        metric:
            What falls; by default the task's metric, or "log_prob" where that is neither it nor "logit_diff".
        ablation:
            By what units are replaced; see `outcomes`.
        order:
            How the members are ordered: "static", by their effects; "greedy", each next one by what it adds to those
            before it, until `damage` of what ablating all does is done (`circuittest.find.scan.greedy`).

        Raises
        ------
        UsageError
            For an unknown member, order or split, and a size that does not divide the heads of a layer.
        """
        from circuittest.find.scan import greedy, members_of, scan

        if order not in ("static", "greedy"):
            raise UsageError(f"unknown order {order!r}", "", did_you_mean(str(order), ("static", "greedy")))
        measure = metric or (self.metric if self.metric in ("log_prob", "logit_diff") else "log_prob")
        measure = self.accuracy if measure == "accuracy" else measure
        choices: dict[str, Any] = {"per": per, "metric": measure, "ablation": ablation, "order": order}
        choices |= {"split": split, **({"size": size} if per == "group" else {})}
        choices |= {"damage": damage} if order == "greedy" else {}
        members = members_of(self.layout, per, size)
        everything = self.layout.universe("mlps" if per == "mlp" else "heads")
        table = lambda sets: self.outcomes(sets, value=ablation, split=split).measure(measure)
        found = scan(table, members, everything, **choices)
        return found if order == "static" else replace(found, order=greedy(table, found, damage))

    def damage(self, found: Scan, *, split: Split = "evaluate", sizes: Sequence[int] = ()) -> Damage:
        """How the damage grows as the members of a scan are ablated one after the other, in its order.

        By default on the evaluation examples, which did not choose the order.
        """
        from circuittest.find.scan import damage

        how = found.choices
        return damage(
            lambda sets: self.outcomes(sets, value=how["ablation"], split=split).measure(how["metric"]),
            found.ordered,
            self.layout.universe("mlps" if how["per"] == "mlp" else "heads"),
            sizes,
        )

    def circuit(
        self, source: Circuit | str | Path | Iterable[str | Unit], *, name: str | None = None
    ) -> Circuit:
        """A circuit from a file, from ids, or from another lab, checked against this model's layout.

        Raises
        ------
        CircuitError
            For a file that cannot be read and for a circuit of another architecture.
        UnitError
            For an id that this model does not have.
        """
        if isinstance(source, (str, Path)):
            source = Circuit.load(source)
        if isinstance(source, Circuit):
            if source.layout is not None and source.layout != self.layout:
                from circuittest.errors import CircuitError

                raise CircuitError(
                    f"the circuit {source.name} belongs to another architecture",
                    f"{source.layout.describe()}; here {self.layout.describe()}",
                    "find the circuit on this model",
                )
            return Circuit(source.units, source.edges, name or source.name, self.layout, source.origin)
        return Circuit.of(source, name=name or "circuit", layout=self.layout)

    def patched(
        self,
        circuits: Sequence[Circuit | Iterable[Unit | Edge]],
        *,
        keep: bool,
        value: str = "counterfactual",
        level: Literal["edges", "units"] = "edges",
        split: Split = "evaluate",
    ) -> OutcomeTable:
        """What the model does on the examples of a split with only each circuit kept, or with each knocked out.

        `keep`, `value` and `level` are those of `circuittest.measure.patching.patch`; means come from the discovery
        examples, and so are refused on these. Remembered per call, as `outcomes`.
        """
        from circuittest.lab.packing import ids
        from circuittest.measure.patching import patch

        here = lambda circuit: self.circuit(circuit) if isinstance(circuit, Circuit) else circuit
        named = tuple(tuple(here(circuit)) for circuit in circuits)
        charge(len(named) * len(getattr(self.data, split, ())))
        key = (split, keep, value, level, named)
        what = {"kind": "patched", "sets": ids(named), "keep": keep, "value": value, "level": level}
        return self._once(
            self._patched,
            key,
            {**what, "split": split},
            split,
            lambda: patch(
                self.model,
                self._examples(split),
                named,
                keep=keep,
                value=value,
                level=level,
                calibration=self.data.discover if split == "evaluate" else (),
            ),
        )

    def along(
        self, paths: Sequence[Paths], *, mlps: str = "frozen", split: Split = "evaluate"
    ) -> OutcomeTable:
        """What the model does where each group of paths carries counterfactual values, and no other path does.

        See `circuittest.measure.paths`. Remembered per call, as `outcomes`.
        """
        from circuittest.measure.paths import path_patch
        from circuittest.paths import name_of

        given = tuple(paths)
        charge(len(given) * len(getattr(self.data, split, ())))
        ends = [
            [[str(unit) for unit in one.senders], [name_of(slot) for slot in one.receivers]] for one in given
        ]
        return self._once(
            self._patched,
            ("along", split, mlps, given),
            {"kind": "along", "paths": ends, "mlps": mlps, "split": split},
            split,
            lambda: path_patch(self.model, self._examples(split), given, mlps=mlps),
        )

"""The tables of a lab: scores, and outcomes of ablation. Each is measured once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from circuittest.budget import charge
from circuittest.errors import UsageError, did_you_mean
from circuittest.lab.subject import Subject
from circuittest.units import Unit

if TYPE_CHECKING:
    from circuittest.models.loaded import LoadedModel
    from circuittest.tables import OutcomeTable, ScoreTable
    from circuittest.tasks import Item

T = TypeVar("T")
Split = Literal["discover", "evaluate"]
Level = Literal["units", "edges"]


class Tables(Subject):
    """Per-example tables, from which circuits and claims follow without another model run."""

    def scores(
        self,
        split: Split = "discover",
        *,
        universe: str | Iterable[str] = "heads",
        score: str = "edge-abs-sum",
        method: str = "eap",
        steps: int = 5,
        baseline: str = "counterfactual",
        level: Level = "units",
        dtype: str | None = None,
    ) -> ScoreTable:
        """Attribution of every unit or edge of a universe on every example of a split, [examples × members].

        `method`, `steps` and `baseline` are those of `circuittest.measure.attribution.attribute`. The means of the
        baseline "mean" never come from the examples that are scored: for evaluation examples they are those of the
        discovery examples, and within those every second example is scored by the mean of the others. With
        `dtype` ("bfloat16") they are made on a copy of the model in that dtype, which is faster and less exact.

        The columns are cut from one table of the kinds involved, so that a claim about heads and one about all
        units cost one attribution. With ``level="edges"`` the members are the edges of the universe
        (`circuittest.find.induced.edge_universe`), signed, and `score` is not used.
        """
        from circuittest.find.induced import edge_universe

        for value, known, what in (
            (split, ("discover", "evaluate"), "split"),
            (level, ("units", "edges"), "level"),
        ):
            if value not in known:
                raise UsageError(f"unknown {what} {value!r}", "", did_you_mean(str(value), known))
        members = edge_universe(self.layout, universe) if level == "edges" else self.layout.universe(universe)
        how: dict[str, Any] = {"level": level}
        if level == "units":
            own = {unit.kind for unit in self.layout.universe(universe)}
            how["kinds"] = tuple(sorted(own if method == "exact" else own | {"head", "mlp"}))
            how |= {} if method == "exact" else {"unit_score": score}
        path = steps if method == "eap-ig" else 0
        # two forwards, and a backward for each point of the path beside a forward of its own
        charge((2 + 2 * max(1, path) + path) * len(getattr(self.data, split)))
        key = (split, method, path, baseline, dtype, self.metric, *sorted(how.items()))
        make = {"metric": self.metric, "method": method, "steps": steps, "baseline": baseline, **how}
        table = self._once(
            self._scores,
            key,
            {"kind": "scores", **make, "split": split, "steps": path, "dtype": dtype},
            split,
            lambda: self._attribute(self._in(dtype), split, **make),
        )
        return table if len(members) == len(table.members) else table.columns(members)

    def _once(
        self, memory: dict[Any, T], key: Any, what: Mapping[str, Any], split: Split, make: Callable[[], T]
    ) -> T:
        """What a measurement on a split gives, from this lab's memory or its store if it is there.

        Parameters
        ----------
        key:
            What it is remembered under in `memory`.
        what:
            The measurement's name ("kind") and every choice that could change its numbers, in plain JSON types; what it
            reads of the examples, the model and the machine is added.
        """
        from circuittest.lab.kept import identity_of, kept
        from circuittest.store.watch import note

        if key in memory:
            identity_of(self.model)  # raises where the weights are others by now
            note(found=True)
            return memory[key]
        calibration = self.data.discover if split == "evaluate" else ()
        items = {"items": getattr(self.data, split, ()), "calibration": calibration}
        memory[key] = kept(self.store, self.model, what, items, make)
        return memory[key]

    def _in(self, dtype: str | None) -> LoadedModel:
        """The model, or its copy in another dtype; each is made and checked once."""
        from circuittest.models.preflight import require
        from circuittest.models.screening import in_dtype

        if dtype is None:
            return self.model
        if dtype not in self._copies:
            self._copies[dtype] = in_dtype(self.model, dtype)
            require(self._copies[dtype].checks)
        return self._copies[dtype]

    def _attribute(self, model: LoadedModel, split: Split, *, baseline: str, **how: Any) -> ScoreTable:
        from circuittest.measure.attribution import attribute

        items = self._examples(split)
        if baseline != "mean":
            return attribute(model, items, baseline=baseline, **how)
        if split == "evaluate":
            return attribute(model, items, baseline=baseline, calibration=self.data.discover, **how)
        if len(items) < 2:
            raise UsageError(
                "the baseline 'mean' scores one half of the discovery examples by the mean of the other half",
                f"there is {len(items)} example",
                "ask for discover=200",
            )
        even, odd = (
            attribute(model, items[i::2], baseline=baseline, calibration=items[1 - i :: 2], **how)
            for i in (0, 1)
        )
        return even.interleaved(odd)

    def outcomes(
        self,
        sets: Sequence[Iterable[Unit]],
        *,
        value: str = "zero",
        positions: str = "all",
        split: Split = "evaluate",
    ) -> OutcomeTable:
        """What the model does on the examples of a split with each set of units ablated.

        `value` and `positions` are those of `circuittest.measure.ablation.ablate`; means and resampled values come
        from the discovery examples, and so are refused on these.

        A row depends on the sets asked for in the same call (they share batches), so results are remembered per
        call: whatever else a session measures, the same claim gives the same bytes.
        """
        from circuittest.lab.packing import ids
        from circuittest.measure.ablation import ablate

        named = tuple(tuple(sorted(set(units))) for units in sets)
        charge(len(named) * len(getattr(self.data, split, ())))
        key = (split, value, positions, named)
        return self._once(
            self._outcomes,
            key,
            {"kind": "outcomes", "sets": ids(named), "value": value, "positions": positions, "split": split},
            split,
            lambda: ablate(
                self.model,
                self._examples(split),
                named,
                value=value,
                positions=positions,
                calibration=self.data.discover if split == "evaluate" else (),
            ),
        )

    def _examples(self, split: Split) -> tuple[Item, ...]:
        """The examples of a split. Raises UsageError where there is no such split, or none in it."""
        if split not in ("discover", "evaluate"):
            raise UsageError(
                f"unknown split {split!r}", "", did_you_mean(str(split), ("discover", "evaluate"))
            )
        items: tuple[Item, ...] = getattr(self.data, split)
        if not items:
            raise UsageError(f"the split {split!r} has no examples", "", f"ask for {split}=200")
        return items

    def top_tokens(
        self,
        sets: Sequence[Iterable[Unit]],
        rows: Sequence[int],
        *,
        value: str = "zero",
        positions: str = "all",
        split: Split = "evaluate",
        count: int = 3,
    ) -> list[list[list[tuple[str, float]]]]:
        """The most likely next tokens with their probabilities, `[sets][rows]`, of the examples at some positions of a
        split (`circuittest.measure.tokens.top_tokens`). To be shown: no claim is judged by them, and no budget charged.
        """
        from circuittest.lab.packing import ids
        from circuittest.measure.tokens import top_tokens

        named = [tuple(units) for units in sets]
        what = {"kind": "top tokens", "sets": ids(named), "rows": list(rows), "count": count, "split": split}
        found = self._once(
            self._likely,
            (split, tuple(named), tuple(rows), value, positions, count),
            {**what, "value": value, "positions": positions},
            split,
            lambda: top_tokens(
                self.model,
                getattr(self.data, split),
                rows,
                named,
                value=value,
                positions=positions,
                calibration=self.data.discover if split == "evaluate" else (),
                count=count,
            ),
        )
        text = self.model.tokenizer.decode
        return [[[(str(text([i])), share) for i, share in row] for row in one] for one in found]

"""A lab without a model: outcomes follow from a rule on the ablated units, scores are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from circuittest.lab import Lab
from circuittest.tables import OutcomeTable, ScoreTable
from circuittest.tasks import Example, Item, TaskData
from circuittest.tasks.subtask import restricted
from circuittest.units import Layout, Unit

Rule = Callable[[frozenset[Unit], int], float]


def items(first: int, count: int) -> tuple[Item, ...]:
    """Items that differ in their prompt only; answers alternate between four tokens."""
    return tuple(
        Item(
            index=i,
            prompt_ids=(1, 2, 1000 + i),
            counterfactual_ids=(1, 3, 1000 + i),
            answer_ids=(10 + i % 4,),
            foil_ids=(20 + i % 4,),
            counterfactual_answer_ids=(20 + i % 4,),
            features={},
            group="",
            example=Example("", ("",), ("",), "", ("",)),
        )
        for i in range(first, first + count)
    )


def task_data(
    discover: int = 40, evaluate: int = 60, *, chance: float = 0.0, accuracy: str = "argmax"
) -> TaskData:
    """A task in token ids; discovery examples come first."""
    return TaskData(
        task="planted",
        seed=0,
        prefix=(1,),
        prefix_name="bos",
        discover=items(0, discover),
        evaluate=items(discover, evaluate),
        dropped={},
        chance=chance,
        accuracy=accuracy,
        metric="log_prob",
    )


class TableLab(Lab):
    """`rule(ablated units, index)` says whether an example is right, `graded` its log-probability and logit difference;
    `values` are scores [examples × units].
    """

    def __init__(
        self,
        rule: Rule,
        *,
        layout: Layout | None = None,
        data: TaskData | None = None,
        values: np.ndarray | None = None,
        others: dict[str, TableLab] | None = None,
        graded: Rule | None = None,
    ) -> None:
        super().__init__("planted", data or task_data())
        layout = layout or Layout(n_layers=6, n_heads=8, n_kv_heads=8)
        self.rule, self.values, self.others, self.graded = rule, values, others or {}, graded
        self.calls: list[tuple[tuple[Unit, ...], ...]] = []
        self.how: list[dict[str, str]] = []
        self.__dict__["model"] = SimpleNamespace(
            name="planted",
            fingerprint="f" * 16,
            layout=layout,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )

    def on(self, task: str) -> TableLab:  # type: ignore[override]
        return self.others[task]

    def where(self, predicate: str) -> TableLab:
        data = restricted(self.data, predicate)
        return TableLab(
            self.rule,
            layout=self.layout,
            data=data,
            values=self.values,
            others=self.others,
            graded=self.graded,
        )

    def scores(self, split: str = "discover", *, universe: Any = "heads", **_: Any) -> ScoreTable:  # type: ignore[override]
        data = getattr(self.data, split)
        units = self.layout.units(("head", "mlp"))
        values = np.asarray(self.values, dtype=np.float32)[: len(data)]
        table = ScoreTable(values, units, tuple(item.index for item in data))
        return table.columns(self.layout.universe(universe))

    def top_tokens(
        self, sets: Sequence[Iterable[Unit]], rows: Sequence[int], *, split: str = "evaluate", **_: Any
    ) -> list[list[list[tuple[str, float]]]]:
        """ "right" where the rule says so, else "wrong"."""
        at = [getattr(self.data, split)[row].index for row in rows]
        word = lambda units, i: "right" if self.rule(frozenset(units), i) else "wrong"
        return [[[(word(units, i), 0.75)] for i in at] for units in sets]

    def outcomes(
        self,
        sets: Sequence[Iterable[Unit]],
        *,
        value: str = "zero",
        positions: str = "all",
        split: str = "evaluate",
    ) -> OutcomeTable:
        self.how.append({"value": value, "positions": positions})
        key = tuple(tuple(sorted(set(units))) for units in sets)
        self.calls.append(key)
        examples = tuple(item.index for item in getattr(self.data, split))
        table = lambda rule: np.array([[float(rule(frozenset(s), i)) for i in examples] for s in key])
        columns = {"argmax": table(self.rule), "candidates": table(self.rule)}
        if self.graded is not None:
            columns |= {"log_prob": table(self.graded), "logit_diff": table(self.graded)}
        return OutcomeTable(key, columns, examples)

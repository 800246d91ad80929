"""Form and function of heads over the checkpoints of a training run: since when a role is there, since when it counts.

On every checkpoint discovery examples choose the heads of each role anew, and closure judges them
(`circuittest.find.roles.functions`). A head that is looked at on one checkpoint is looked at on all of them, so that
one sees what it was before it had its role, and what it became.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from circuittest.errors import UsageError
from circuittest.find.roles.functions import USUAL, Head, Judged, Side, form_and_function, looked_at
from circuittest.find.series import holds_from
from circuittest.units import Unit


@dataclass(frozen=True)
class Stage:
    """One role on one checkpoint.

    Attributes
    ----------
    model:
        What the checkpoint is called.
    heads:
        Those that have the role there.
    best:
        The head of the largest score, and that score; None where no example can show the role.
    judged:
        Closure of these heads together; None where there are none.
    """

    model: str
    heads: tuple[Unit, ...]
    best: tuple[Unit, float] | None
    judged: Judged | None

    @property
    def bearing(self) -> bool:
        """Does the model need them, by closure?"""
        return self.judged is not None and self.judged.label == "load-bearing"


@dataclass(frozen=True)
class Course:
    """Form and function on several checkpoints, the earliest first.

    Attributes
    ----------
    models, sides:
        What the checkpoints are called, and what was found on each. All sides have the same heads.
    best:
        On each checkpoint: role → the head of the largest score, and that score.
    kinds:
        The roles.
    """

    models: tuple[str, ...]
    sides: tuple[Side, ...]
    best: tuple[Mapping[str, tuple[Unit, float]], ...]
    kinds: tuple[str, ...]

    def stages(self, kind: str) -> tuple[Stage, ...]:
        """One role, checkpoint by checkpoint."""
        found = []
        for model, side, best in zip(self.models, self.sides, self.best, strict=True):
            heads = tuple(head.unit for head in side.heads if kind in head.roles)
            judged = next((group for group in side.groups if heads and group.units == heads), None)
            found.append(Stage(model, heads, best.get(kind), judged))
        return tuple(found)

    def form_from(self, kind: str) -> str | None:
        """The first checkpoint from which on some head always has the role; None where none has at the end."""
        return self._since([bool(stage.heads) for stage in self.stages(kind)])

    def function_from(self, kind: str) -> str | None:
        """The first from which on closure always calls the heads of the role load-bearing; None: not at the end.

        Undecided and invalid are not load-bearing: "from" says since when it is shown.
        """
        return self._since([stage.bearing for stage in self.stages(kind)])

    def heads(self) -> dict[Unit, tuple[Head, ...]]:
        """Every head that is looked at, checkpoint by checkpoint."""
        rows = [{head.unit: head for head in side.heads} for side in self.sides]
        return {unit: tuple(row[unit] for row in rows) for unit in rows[0]}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "models": list(self.models),
            "roles": {
                kind: {
                    "form_from": self.form_from(kind),
                    "function_from": self.function_from(kind),
                    "stages": [_plain(stage) for stage in self.stages(kind)],
                }
                for kind in self.kinds
            },
            "sides": [side.to_dict() for side in self.sides],
        }

    def _since(self, held: Sequence[bool]) -> str | None:
        place = holds_from(held)
        return None if place is None else self.models[place]


def course(
    models: Sequence[str],
    make: Callable[[str], Any],
    kinds: Iterable[str] = USUAL,
    *,
    least: float = 0.4,
    carriers: int = 8,
    positions: str = "all",
    ablation: str = "zero",
    controls: int = 100,
    single: bool = False,
) -> Course:
    """Form and function on several checkpoints of one run.

    Parameters
    ----------
    models:
        What they are called, in the order of training.
    make:
        From a name to its `Lab`. Called twice for every name, since the heads are known only when all were scored;
        one lab is held at a time.
    kinds, least, carriers, positions, ablation, controls, single:
        As for `form_and_function`.

    Raises
    ------
    UsageError
        For no models or one name twice, models of different sizes or with different examples, and as
        `form_and_function`.
    """
    wanted = tuple(dict.fromkeys(kinds))
    if not models or len(set(models)) < len(models):
        raise UsageError(
            f"{len(models)} checkpoints, {len(set(models))} of them different",
            "a course has one or more, each once",
            "name every checkpoint once, in the order of training",
        )
    shown: set[Unit] = set()
    largest: list[Mapping[str, tuple[Unit, float]]] = []
    same: tuple[str, Any] | None = None
    for name in models:
        lab = make(name)
        asked = (lab.layout, [(item.prompt_ids, item.answer_ids) for item in _items(lab)])
        if same is not None and same[1] != asked:
            what = "units" if same[1][0] != asked[0] else "examples"
            raise UsageError(
                f"{name} and {same[0]} have different {what}",
                "heads are followed by their places, on the same prompts",
                "name checkpoints of one training run, with the same tokenizer",
            )
        same = same or (name, asked)
        having, carrying = looked_at(lab, wanted, least=least, carriers=carriers, positions=positions)
        shown |= {unit for circuit in having.values() for unit in circuit.units} | set(carrying)
        tables = lab.roles(wanted, split="discover", positions=positions)
        largest.append({kind: _largest(tables[kind].means()) for kind in having})
    sides = tuple(
        form_and_function(
            make(name),
            wanted,
            least=least,
            carriers=carriers,
            also=shown,
            positions=positions,
            ablation=ablation,
            controls=controls,
            single=single,
        )
        for name in models
    )
    return Course(tuple(models), sides, tuple(largest), wanted)


def _largest(means: Mapping[Unit, float]) -> tuple[Unit, float]:
    head = min(means, key=lambda unit: (-means[unit], unit.order))
    return head, means[head]


def _items(lab: Any) -> tuple[Any, ...]:
    return (*lab.data.discover, *lab.data.evaluate)


def _plain(stage: Stage) -> dict[str, Any]:
    judged = stage.judged
    return {
        "model": stage.model,
        "heads": [str(unit) for unit in stage.heads],
        "best": None if stage.best is None else [str(stage.best[0]), stage.best[1]],
        "closure": None if judged is None else judged.label,
        "beyond": None if judged is None or judged.beyond is None else judged.beyond.to_list(),
        "reason": "" if judged is None else judged.reason,
    }

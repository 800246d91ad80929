"""Tasks that a user brings as a list of examples."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from circuittest.errors import TaskError, did_you_mean
from circuittest.tasks.base import ACCURACIES, METRICS, Example, Task

# Accepted keys of an example given as a mapping; answers may be one string or several.
KEYS = {
    "prompt": "prompt",
    "answer": "answers",
    "answers": "answers",
    "foil": "foils",
    "foils": "foils",
    "counterfactual": "counterfactual",
    "counterfactual_answer": "counterfactual_answers",
    "counterfactual_answers": "counterfactual_answers",
    "features": "features",
    "group": "group",
}


class ExampleTask(Task):
    """A task made of given examples: ``ExampleTask("capitals", [{"prompt": ..., "answer": ...,
    "counterfactual": ..., ...}])``.

    Each example is an :class:`Example` or a mapping with ``prompt``, ``answer``, ``counterfactual``,
    ``counterfactual_answer``, and perhaps ``foil`` (default: the counterfactual answers), ``features`` and
    ``group``. ``index`` is the position in the list; the seed shuffles the order. ``chance`` defaults to
    guessing among the candidates of the easiest example. ``digest`` identifies the file that the examples
    come from. Raises TaskError for a mapping that cannot be read, with its position.
    """

    pooled = False

    def __init__(
        self,
        name: str,
        examples: Sequence[Example | Mapping[str, Any]],
        *,
        chance: float | None = None,
        accuracy: str = "argmax",
        metric: str = "logit_diff",
        single_token: bool = False,
        description: str = "",
        citation: str = "",
        digest: str = "",
    ) -> None:
        self.name = name
        super().__init__()
        if accuracy not in ACCURACIES:
            raise TaskError(
                f"task {name!r}: accuracy {accuracy!r} is unknown", do=did_you_mean(accuracy, ACCURACIES)
            )
        if metric not in METRICS:
            raise TaskError(f"task {name!r}: metric {metric!r} is unknown", do=did_you_mean(metric, METRICS))
        self.examples = tuple(
            replace(e if isinstance(e, Example) else read_example(e, f"task {name!r}, example {i}"), index=i)
            for i, e in enumerate(examples)
        )
        if not self.examples:
            raise TaskError(f"task {name!r} has no examples")
        self.chance = max(map(_guess, self.examples)) if chance is None else chance
        if not 0 <= self.chance < 1:
            raise TaskError(
                f"task {name!r}: chance {self.chance} is no probability below 1", do="give foils, or chance="
            )
        self.accuracy, self.metric, self.single_token = accuracy, metric, single_token
        self.description, self.citation, self.digest = description, citation, digest

    def draw(self, rng: random.Random, pool: str, variant: str) -> Example:
        return rng.choice(self.examples)

    def stream(self, seed: int = 0, variant: str | None = None) -> Iterator[Example]:
        """Each example once, in an order that the seed decides."""
        order = list(self.examples)
        random.Random(f"circuittest|{self.name}|{seed}").shuffle(order)
        return iter(order)

    def __repr__(self) -> str:
        return f"ExampleTask({self.name!r}, {len(self.examples)} examples)"


def read_example(given: Mapping[str, Any], where: str) -> Example:
    """An example from a mapping; ``where`` begins the message of the TaskError that a wrong one raises."""
    if not isinstance(given, Mapping):
        raise TaskError(
            f"{where} is {type(given).__name__}", do="give an Example or a mapping with prompt, answer, ..."
        )
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in KEYS:
            raise TaskError(f"{where} has an unknown key {key!r}", do=did_you_mean(str(key), KEYS))
        if KEYS[key] in found:
            raise TaskError(f"{where} has {key!r} twice", why="one of the two forms is enough")
        found[KEYS[key]] = value
    missing = [k for k in ("prompt", "answers", "counterfactual", "counterfactual_answers") if k not in found]
    if missing:
        raise TaskError(
            f"{where} lacks {', '.join(missing)}", why="the counterfactual is what attribution compares with"
        )
    for key in ("answers", "foils", "counterfactual_answers"):
        if key in found:
            found[key] = _texts(found[key], f"{where}: {key}")
    found.setdefault("foils", tuple(t for t in found["counterfactual_answers"] if t not in found["answers"]))
    for key in ("prompt", "counterfactual", "group"):
        if not isinstance(found.get(key, ""), str):
            raise TaskError(f"{where}: {key} is {type(found[key]).__name__}", do="give text")
    features = found.setdefault("features", {})
    if not isinstance(features, Mapping) or not all(
        isinstance(v, str | int | bool) for v in features.values()
    ):
        raise TaskError(f"{where}: features must map names to str, int or bool")
    return Example(**found)


def _texts(value: object, where: str) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not items or not all(isinstance(item, str) for item in items):
        raise TaskError(f"{where} must be a text or a list of texts, at least one")
    return tuple(items)


def _guess(example: Example) -> float:
    return len(example.answers) / max(1, len(example.answers) + len(example.foils))

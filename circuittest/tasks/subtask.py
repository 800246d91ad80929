"""A task restricted to the examples for which a predicate on their features holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from circuittest.errors import TaskError, UsageError
from circuittest.tasks.partitions import Partition, Where

if TYPE_CHECKING:
    from circuittest.tasks.encode import Item
    from circuittest.tasks.prepare import TaskData


def restricted(data: TaskData, predicate: str) -> TaskData:
    """The examples of both splits for which a predicate holds, such as ``template in 0, 1`` or ``sum >= 10``.

    Predicates are those of `circuittest.tasks.partitions`, several joined by ``*``. The task's name becomes
    ``name[predicate]``. Chance and how answers are scored stay the task's.

    Raises
    ------
    UsageError
        What is given is no predicate.
    TaskError
        The examples have no such feature, or none of the evaluation examples is left.
    """
    partition = Partition.parse(predicate)
    if not all(isinstance(term, Where) for term in partition.terms):
        raise UsageError(
            f"{predicate!r} does not say which examples",
            "it is no predicate",
            'write one, such as "template == 0"',
        )

    def kept(items: Sequence[Item]) -> tuple[Item, ...]:
        columns = [term.labels(items) for term in partition.terms]
        holds = [
            all(column[i] == str(term) for term, column in zip(partition.terms, columns, strict=True))
            for i in range(len(items))
        ]
        return tuple(item for item, one in zip(items, holds, strict=True) if one)

    discover, evaluate = kept(data.discover), kept(data.evaluate)
    if not evaluate:
        raise TaskError(
            f"no evaluation example of {data.task} satisfies {str(partition)!r}",
            "",
            "ask for more examples, or others",
        )
    return replace(data, task=f"{data.task}[{partition}]", discover=discover, evaluate=evaluate)

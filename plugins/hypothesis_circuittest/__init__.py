"""Hypothesis strategies for layouts, units, circuits, matched controls, and the examples and subtasks of tasks.

    from hypothesis import given
    from hypothesis_circuittest import circuits, layouts

    @given(layouts().flatmap(circuits))
    def test_something(circuit): ...

The strategies are imported on first use; importing `hypothesis` alone imports nothing of this package. There is a
settings profile, too: `hypothesis_circuittest.profile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis_circuittest.strategies import circuits, control_sets, edges, layouts, unit_sets
    from hypothesis_circuittest.tasks import examples, prompts, subtask_pairs, subtask_partitions, subtasks

__all__ = [
    "circuits",
    "control_sets",
    "edges",
    "examples",
    "layouts",
    "prompts",
    "subtask_pairs",
    "subtask_partitions",
    "subtasks",
    "unit_sets",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hypothesis_circuittest' has no attribute {name!r}")
    from hypothesis_circuittest import strategies, tasks

    return getattr(tasks if hasattr(tasks, name) else strategies, name)

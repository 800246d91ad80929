"""Tasks: streams of examples, held-out pools, and their form in token ids."""

from circuittest.tasks.base import Example, Task
from circuittest.tasks.catalog import as_task, get_task, list_tasks
from circuittest.tasks.encode import Item
from circuittest.tasks.own import ExampleTask
from circuittest.tasks.prepare import TaskData, prepare

__all__ = [
    "Example",
    "ExampleTask",
    "Item",
    "Task",
    "TaskData",
    "as_task",
    "get_task",
    "list_tasks",
    "prepare",
]

"""Tasks: streams of examples, held-out pools, and their form in token ids."""

from circuittest.tasks.base import Example, Task
from circuittest.tasks.catalog import as_task, get_task, list_tasks
from circuittest.tasks.encode import Item
from circuittest.tasks.files import read_task
from circuittest.tasks.frame import Posed
from circuittest.tasks.own import ExampleTask
from circuittest.tasks.partitions import Blocks, Partition
from circuittest.tasks.prepare import TaskData, prepare

__all__ = [
    "Blocks",
    "Example",
    "ExampleTask",
    "Item",
    "Partition",
    "Posed",
    "Task",
    "TaskData",
    "as_task",
    "get_task",
    "list_tasks",
    "prepare",
    "read_task",
]

"""Tasks."""
from circuittest.tasks.base import Example, Task
from circuittest.tasks.catalog import get_task, list_tasks
__all__ = ["Example", "Task", "get_task", "list_tasks"]

"""The pytest plugin of circuittest. Importing it costs nothing: pytest and the standard library only."""

from pytest_circuittest.run import run_specs

__all__ = ["run_specs"]

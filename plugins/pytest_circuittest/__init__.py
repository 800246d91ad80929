"""The pytest plugin of circuittest. Importing it costs nothing: pytest and the standard library only.

Nothing here asserts, and `circuittest check` imports it before pytest starts, so: PYTEST_DONT_REWRITE
"""

from pytest_circuittest.run import run_specs

__all__ = ["run_specs"]

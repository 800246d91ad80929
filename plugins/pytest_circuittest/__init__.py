"""The pytest plugin of circuittest. Importing it costs nothing: pytest and the standard library only."""

"""The pytest plugin of circuittest."""

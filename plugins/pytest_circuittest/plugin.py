"""Entry point of the pytest plugin."""

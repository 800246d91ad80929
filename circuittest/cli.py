"""Command line of circuittest."""

from __future__ import annotations


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    return 2

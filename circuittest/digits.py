"""How many decimals a number is shown with."""

from __future__ import annotations

#: More than so many are pretended precision.
MOST = 6


def decimals(value: float, near: float | None, least: int = 2) -> int:
    """At least `least`, and as many (six at most) as tell the value from the number it is compared with."""
    found = least
    while near is not None and value != near and found < MOST and f"{value:.{found}f}" == f"{near:.{found}f}":
        found += 1
    return found

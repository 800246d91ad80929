"""Several claims at once."""

from __future__ import annotations

from collections.abc import Sequence

from circuittest.errors import UsageError


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted by Holm's step-down procedure (Holm 1979); they control the family-wise error rate.

    The i-th smallest of m becomes max over j <= i of min(1, (m - j + 1) p_(j)). None (an invalid claim)
    stays None but counts as one of the m declared claims, since declaring it was a chance to pass.

    >>> holm([0.01, 0.04, None])
    [0.03, 0.08, None]
    """
    for p in p_values:
        if p is not None and not 0.0 <= p <= 1.0:
            raise UsageError(f"a p-value of {p!r}", "it lies between 0 and 1")
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for step, (p, index) in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - step) * p))
        adjusted[index] = running
    return adjusted

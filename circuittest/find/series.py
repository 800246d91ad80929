"""What a series of checkpoints says: how its circuits change, and from when something holds.

Similarity over training follows paper 2407.10827, which smooths the Jaccard index of neighbouring checkpoints with
x̂_t = (x̂_{t-1} + x_t) / 2. Checkpoints are unevenly spaced, and larger circuits overlap more by chance, so that beside
it stand a smoothing that knows the spacing, and the overlap expected by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def smoothed(values: Sequence[float | None], alpha: float = 0.5) -> list[float | None]:
    """Exponentially weighted means: x̂_t = (1 - alpha) x̂_{t-1} + alpha x_t, the first value as it is.

    A value that is undefined is passed over: its mean is undefined, and the next goes on from the last defined one.
    """
    found: list[float | None] = []
    mean: float | None = None
    for value in values:
        if value is not None:
            mean = value if mean is None else (1 - alpha) * mean + alpha * value
        found.append(None if value is None else mean)
    return found


def smoothed_in_time(
    values: Sequence[float | None], times: Sequence[float], half_life: float
) -> list[float | None]:
    """The same with weights that follow the spacing: after one half-life a mean counts half.

    With spacing equal to the half-life this is `smoothed` with alpha 1/2. Times ascend. What is undefined is passed
    over, but its time passes.
    """
    found: list[float | None] = []
    mean, last = None, 0.0
    for value, time in zip(values, times, strict=True):
        if value is not None:
            kept = 0.0 if mean is None else math.exp2((last - time) / half_life)
            mean = kept * (mean or 0.0) + (1 - kept) * value
            last = time
        found.append(None if value is None else mean)
    return found


#: The two ends of a range.
Band = tuple[float, float]


def band(values: Sequence[float | None], level: float = 0.95) -> Band | None:
    """The middle of some values, by their order: with 100 of them and 95 %, from the third to the third from the end.

    (The smallest value with more than (1 − level)/2 of them at or below it, and the same from above: no interpolation.)
    What is undefined is passed over; where that is more than half of them, so is the range.
    """
    defined = sorted(value for value in values if value is not None)
    if not defined or 2 * len(defined) < len(values):
        return None
    cut = math.floor(len(defined) * (1 - level) / 2 + 1e-9)
    return defined[cut], defined[-1 - cut]


def holds_from(held: Sequence[bool | None]) -> int | None:
    """The first place from which something holds and keeps holding to the end; None where it does not hold at the end.

    What is undefined (None) does not hold.
    """
    first: int | None = None
    for place, one in enumerate(held):
        if one:
            first = place if first is None else first
        else:
            first = None
    return first

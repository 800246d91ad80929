"""Other ways to say how much two heads' signals go together: Pearson's correlation and mutual information.

Unlike Ising couplings they look at two heads at a time, so that a common cause joins everything it reaches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circuittest.errors import UsageError

Floats = NDArray[np.float64]


def pearson(signal: ArrayLike) -> Floats:
    """[F × F] correlations of the columns of a signal or of spins, with a zero diagonal.

    Raises UsageError for a constant column.
    """
    values = _columns(signal)
    centred = values - values.mean(0)
    norms = np.sqrt((centred**2).sum(0))
    still = norms <= 1e-12 * np.sqrt((values**2).sum(0))
    if still.any():
        raise UsageError(
            f"column {int(np.flatnonzero(still)[0])} is constant",
            "its correlation is undefined",
            "leave it out",
        )
    centred /= norms
    found = np.clip(centred.T @ centred, -1.0, 1.0)  # rounding may exceed 1 in the last bit
    np.fill_diagonal(found, 0.0)
    return found


def mutual_information(spins: ArrayLike) -> Floats:
    """[F × F] mutual information of columns of ±1 in nats, from their frequencies, with a zero diagonal.

    The estimate is biased upwards by about 1/(2n), the same for all pairs.
    """
    values = _columns(spins)
    if not np.isin(values, (-1.0, 1.0)).all():
        raise UsageError("the spins have other values than -1 and 1", "", "binarise them with `spins`")
    n = len(values)
    found = np.zeros((values.shape[1], values.shape[1]))
    for one in (1.0, -1.0):
        for other in (1.0, -1.0):
            a, b = (values == one).astype(np.float64), (values == other).astype(np.float64)
            joint = a.T @ b / n
            apart = a.mean(0)[:, None] * b.mean(0)
            share = np.divide(joint, apart, out=np.ones_like(joint), where=joint > 0)
            found += joint * np.log(share)
    np.fill_diagonal(found, 0.0)
    return np.maximum(found, 0.0)


def _columns(values: ArrayLike) -> Floats:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 2 or len(found) < 2 or not np.isfinite(found).all():
        raise UsageError(
            f"a signal of shape {found.shape}", "finite values [examples × heads] of two examples at least"
        )
    return found

"""Strata of examples that a mixture of experts routes alike, and whether heads go together more within one.

Examples are clustered by their router weights (Xu, arXiv 2606.09607, section 3.9). Within a stratum there are fewer
examples, so that couplings look stronger by overfitting alone; and a stratum may be one of prompts of a kind (their
length, how hard they are), which heads follow without any router. Both are answered by random strata of exactly the
same size: drawn from all examples, or only by exchanging examples that are alike in those respects.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circuittest.errors import UsageError
from circuittest.find.ising import Penalty, fit_ising, spins
from circuittest.find.spectral import k_means
from circuittest.stats.resampling import generator

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

#: Strata of fewer examples are not analysed; 80 in arXiv 2606.09607.
SMALLEST = 80
NULLS = 39


@dataclass(frozen=True, eq=False)
class Routes:
    """Strata of examples.

    Attributes
    ----------
    discover, evaluate:
        Stratum of every example of a split; those of the second are nearest to the centres of the first.
    centres:
        [K × features] mean router weights.
    """

    discover: Labels
    evaluate: Labels
    centres: Floats

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Examples of every stratum in either split."""
        count = len(self.centres)
        return {
            "discover": np.bincount(self.discover, minlength=count).tolist(),
            "evaluate": np.bincount(self.evaluate, minlength=count).tolist(),
        }

    def one_hot(self) -> Floats:
        """[discovery examples × K - 1] membership in all strata but the first."""
        return (self.discover[:, None] == np.arange(1, len(self.centres))).astype(np.float64)


def route_strata(discover: ArrayLike, evaluate: ArrayLike, k: int, *, seed: int = 0) -> Routes:
    """Strata by k-means of the router weights of the discovery examples.

    Parameters
    ----------
    discover, evaluate:
        [examples × mixtures × experts] router weights.

    Raises
    ------
    UsageError
        Fewer than two strata, and fewer distinct routes than strata.
    """
    here, there = (_flat(values) for values in (discover, evaluate))
    if k < 2:
        raise UsageError(
            f"{k} strata of routes", "two at least", "leave routes out for all examples together"
        )
    try:
        labels = k_means(here, k, seed=seed)
    except UsageError as error:
        raise UsageError(f"{k} strata of routes", error.what, "ask for fewer strata") from error
    centres = np.stack([here[labels == stratum].mean(0) for stratum in range(k)])
    distance = ((there[:, None] - centres) ** 2).sum(2)
    return Routes(labels, distance.argmin(1).astype(np.intp), centres)


@dataclass(frozen=True)
class RouteNull:
    """Couplings of a stratum against those of random strata of its size.

    Attributes
    ----------
    gain:
        Held-out log-pseudolikelihood per spin beyond independent spins, in nats, of the stratum.
    size_matched, nuisance_matched:
        The same of every random stratum.
    p_size, p_nuisance:
        Rank p of the stratum among them; None where nuisances leave no choice.
    free:
        Share of the stratum's examples that had others to be exchanged with.
    """

    gain: float
    size_matched: tuple[float, ...]
    nuisance_matched: tuple[float, ...]
    p_size: float
    p_nuisance: float | None
    free: float


def route_null(
    signal: ArrayLike,
    inside: ArrayLike,
    nuisance: Sequence[Hashable],
    *,
    penalty: Penalty = "l2",
    nulls: int = NULLS,
    seed: int = 0,
) -> RouteNull:
    """How much more heads go together in a stratum than in random strata of its size.

    Parameters
    ----------
    signal:
        [examples × heads].
    inside:
        bool [examples]: the stratum.
    nuisance:
        What an example is, apart from its route; those of equal value can be exchanged.
    nulls:
        Random strata of either kind. Each chooses its own penalty, as the stratum does.
    """
    values, member = np.asarray(signal, dtype=np.float64), np.asarray(inside, dtype=bool)
    if values.ndim != 2 or member.shape != (len(values),) or len(nuisance) != len(values) or nulls < 1:
        raise UsageError(
            f"a signal of shape {values.shape}, {member.size} examples in or out and {len(nuisance)} nuisances",
            "one of each for every example, and at least one random stratum are needed",
        )
    rng = generator(seed)
    codes = {value: code for code, value in enumerate(dict.fromkeys(nuisance))}
    cells = np.array([codes[value] for value in nuisance])
    mixed = [cell for cell in range(len(codes)) if 0 < member[cells == cell].sum() < (cells == cell).sum()]
    free = float(np.isin(cells[member], mixed).mean()) if member.any() else 0.0

    def gain(rows: NDArray[np.bool_]) -> float:
        fit = fit_ising(spins(values[rows]).values, penalty=penalty, seed=seed)
        return 0.0 if fit.gain is None else fit.gain

    own = gain(member)
    by_size = tuple(gain(rng.permutation(member)) for _ in range(nulls))
    by_nuisance: tuple[float, ...] = ()
    if mixed:
        by_nuisance = tuple(gain(_within(member, cells, mixed, rng)) for _ in range(nulls))
    rank = lambda others: (1 + sum(value >= own for value in others)) / (1 + len(others))
    return RouteNull(own, by_size, by_nuisance, rank(by_size), rank(by_nuisance) if mixed else None, free)


def _within(
    member: NDArray[np.bool_], cells: NDArray[np.intp], mixed: Sequence[int], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Membership dealt again within every cell."""
    found = member.copy()
    for cell in mixed:
        rows = np.flatnonzero(cells == cell)
        found[rows] = rng.permutation(member[rows])
    return found


def _flat(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(len(array), -1)

"""Co-activation of heads as an Ising model: which heads' signals still go together, given all others?

A signal [examples × heads] (the largest attention weight at the query position, Xu, arXiv 2606.09607) is cut at each
head's median into spins s of ±1, whose pairwise Ising model is P(s) ∝ exp(Σ_i h_i s_i + Σ_{i<j} J_ij s_i s_j). It is
fitted by pseudolikelihood (Besag 1975): each spin given the others is a logistic regression with log-odds
2(h_i + Σ_j J_ij s_j), so that the F regressions on F - 1 others give J twice, and J is the mean of both.

The penalty is λ/2 per squared coefficient of those regressions (or λ per absolute one, "l1"; Ravikumar, Wainwright &
Lafferty 2010) in units of the *mean* loss. It is chosen by the pseudolikelihood of examples that were held out: with
few examples or near-separable spins a fixed weak penalty gives couplings whose size is the penalty's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit

from circuittest.errors import UsageError
from circuittest.find.logistic import Fits, lasso_fits, log_likelihood, ridge_fits
from circuittest.stats.resampling import generator

Floats = NDArray[np.float64]
Penalty = Literal["l2", "l1"]

#: λ that are tried, from the strongest to the weakest; the search ends once two in a row are worse than the best.
GRID = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
FOLDS = 3
#: Covariates are adjusted for, not selected: they get next to no penalty, which keeps separable ones finite.
COVARIATE_RIDGE = 1e-4
#: Of the gradient, in fits that only choose λ or look for separable spins; the latter have the penalty `SEPARATING`.
ROUGH, SEPARATING = 1e-5, 1e-4


@dataclass(frozen=True, eq=False)
class Spins:
    """Binarised signals.

    Attributes
    ----------
    values:
        ±1 [examples × kept].
    kept:
        Columns of the signal that vary.
    left_out:
        Column → why it has no spin.
    up:
        [kept] share of +1: below a half where values are tied with the median.
    """

    values: Floats
    kept: tuple[int, ...]
    left_out: Mapping[int, str]
    up: Floats


def spins(signal: ArrayLike) -> Spins:
    """+1 where a signal [examples × columns] is above its column's median, else -1.

    A column with one value only, or whose median is its largest value, is constant and left out. Raises UsageError for
    values that are not finite and for fewer than two examples.
    """
    values = np.asarray(signal, dtype=np.float64)
    if values.ndim != 2 or len(values) < 2:
        raise UsageError(f"a signal of shape {values.shape}", "examples × heads, two examples at least")
    if not np.isfinite(values).all():
        raise UsageError("the signal holds values that are not finite", "their median is undefined")
    median = np.median(values, axis=0)
    above = values > median
    left_out: dict[int, str] = {}
    for column in np.flatnonzero(~above.any(0)).tolist():
        same = int((values[:, column] == median[column]).sum())
        left_out[column] = (
            f"{same} of {len(values)} examples have its largest value {median[column]:.6g}, so that none is above the "
            "median"
        )
    kept = [column for column in range(values.shape[1]) if column not in left_out]
    chosen = above[:, kept]
    return Spins(np.where(chosen, 1.0, -1.0), tuple(kept), left_out, chosen.mean(0))


@dataclass(frozen=True, eq=False)
class Ising:
    """A fitted model.

    Attributes
    ----------
    fields, couplings:
        h [F], and J [F × F], symmetric with a zero diagonal.
    penalty, strength:
        "l2" or "l1", and λ.
    held_out:
        λ → mean log-pseudolikelihood per spin of held-out examples, in nats, over spins that have both values in the
        examples of every fit; empty where λ was given.
    independent:
        The same without couplings; None where λ was given. Where no λ exceeds it, the spins show no couplings.
    separable:
        Columns that the others predict without any error, so that unpenalised couplings would be infinite: the size of
        theirs is the penalty's doing.
    asymmetry:
        Size of half the difference of the two estimates of every J_ij relative to the size of J (Frobenius norms).
    covariates:
        [C × F] effects of covariates on h; zero rows without.
    """

    fields: Floats
    couplings: Floats
    penalty: Penalty
    strength: float
    held_out: Mapping[float, float] = field(default_factory=dict)
    independent: float | None = None
    separable: tuple[int, ...] = ()
    asymmetry: float = 0.0
    covariates: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def gain(self) -> float | None:
        """Held-out log-pseudolikelihood per spin beyond independent spins, in nats; None where λ was given."""
        return None if self.independent is None else self.held_out[self.strength] - self.independent


def fit_ising(
    values: ArrayLike,
    *,
    penalty: Penalty = "l2",
    strength: float | None = None,
    grid: Sequence[float] = GRID,
    folds: int = FOLDS,
    covariates: ArrayLike | None = None,
    seed: int = 0,
) -> Ising:
    """The Ising model of spins.

    Parameters
    ----------
    values:
        ±1, or 0 and 1 [examples × F]; every column has both.
    penalty, strength:
        Kind of the penalty, and λ; None chooses it from `grid` by `folds`-fold cross-validation.
    covariates:
        [examples × C] further predictors of every spin, one-hot strata for example; they are next to unpenalised.
    seed:
        Of the folds.

    Raises
    ------
    UsageError
        Values that are not binary, a constant column, fewer than two columns, a penalty that is not positive.
    """
    s = _binary(values)
    n = len(s)
    if penalty not in ("l2", "l1"):
        raise UsageError(f"unknown penalty {penalty!r}", "", "use 'l2' or 'l1'")
    beside = np.zeros((n, 0)) if covariates is None else np.asarray(covariates, dtype=np.float64)
    if beside.ndim != 2 or len(beside) != n or not np.isfinite(beside).all():
        raise UsageError(
            f"covariates of shape {beside.shape} for {n} examples", "one finite row for each is needed"
        )
    if penalty == "l1" and beside.shape[1]:
        raise UsageError("covariates with the penalty 'l1'", "they are adjusted for in 'l2' only")
    design = _Design(s, beside, penalty)
    held_out: dict[float, float] = {}
    independent = None
    if strength is None:
        strength, held_out, independent = _choose(design, sorted(grid, reverse=True), folds, seed)
    if not strength > 0 or not math.isfinite(strength):
        raise UsageError(f"a penalty of {strength!r}", "separable fits need one above zero", "use 0.01")
    fits = design.fit(np.arange(n), strength)
    halves = fits.weights[1 + beside.shape[1] :] / 2  # rows: the predictor; columns: the spin
    couplings = (halves + halves.T) / 2
    size = float(np.linalg.norm(couplings))
    return Ising(
        fields=fits.weights[0] / 2,
        couplings=couplings,
        penalty=penalty,
        strength=float(strength),
        held_out=held_out,
        independent=independent,
        separable=design.separable(fits.weights),
        asymmetry=float(np.linalg.norm(halves - halves.T)) / 2 / size if size else 0.0,
        covariates=fits.weights[1 : 1 + beside.shape[1]] / 2,
    )


class _Design:
    """Spins as targets, and as predictors beside an intercept and covariates."""

    def __init__(self, s: Floats, beside: Floats, penalty: Penalty) -> None:
        self.s, self.penalty = s, penalty
        self.x = np.concatenate((np.ones((len(s), 1)), beside, s), axis=1)
        self.own = np.arange(s.shape[1]) + 1 + beside.shape[1]
        self.free = np.concatenate(([0.0], np.full(beside.shape[1], COVARIATE_RIDGE)))

    def fit(
        self, rows: NDArray[np.intp], strength: float, start: Floats | None = None, *, rough: bool = False
    ) -> Fits:
        penalties = np.concatenate((self.free, np.full(self.s.shape[1], strength)))
        solve = ridge_fits if self.penalty == "l2" else lasso_fits
        how = {"tolerance": ROUGH} if rough else {}
        return solve(self.x[rows], self.s[rows], penalties, own=self.own, start=start, **how)

    def score(self, rows: NDArray[np.intp], weights: Floats, columns: NDArray[np.bool_]) -> float:
        return float(log_likelihood(self.x[rows], self.s[rows], weights)[columns].mean())

    def separable(self, start: Floats) -> tuple[int, ...]:
        """Which spins a plane separates: all margins are positive, and scaling it up would improve the fit forever.

        The plane is that of a next to unpenalised fit.
        """
        ridge = np.concatenate((self.free, np.full(self.s.shape[1], SEPARATING)))
        weak = ridge_fits(self.x, self.s, ridge, own=self.own, start=start, tolerance=ROUGH)
        without_error = (self.s * (self.x @ weak.weights) > 0).all(0)
        return tuple(np.flatnonzero(without_error).tolist())


def _choose(
    design: _Design, grid: Sequence[float], folds: int, seed: int
) -> tuple[float, dict[float, float], float]:
    """The best λ, the score of every one that was tried, and the score of independent spins."""
    n = len(design.s)
    if not grid or folds < 2 or n < 2 * folds:
        raise UsageError(
            f"{len(grid)} penalties to choose from in {folds} folds of {n} examples",
            "at least one, and two folds of two examples are needed",
            "give the strength of the penalty",
        )
    order = generator(seed).permutation(n)
    tests = [np.sort(order[fold::folds]) for fold in range(folds)]
    trains = [np.setdiff1d(np.arange(n), test) for test in tests]
    # a spin that is constant in a part says nothing of couplings there, and its own field would be infinite
    varied = np.all([np.abs(design.s[train].sum(0)) < len(train) for train in trains], axis=0)
    if not varied.any():
        raise UsageError(
            "no spin has both values in every part of the examples",
            f"{folds} folds of {n} examples leave all of them constant somewhere",
            "use more examples, or give the strength of the penalty",
        )
    independent = float(
        np.mean(
            [
                _independent(design.s[train][:, varied], design.s[test][:, varied])
                for train, test in zip(trains, tests, strict=True)
            ]
        )
    )
    starts: list[Floats | None] = [None] * folds
    scores: dict[float, float] = {}
    best = grid[0]
    for strength in grid:
        found = []
        for fold, (train, test) in enumerate(zip(trains, tests, strict=True)):
            fits = design.fit(train, strength, starts[fold], rough=True)
            starts[fold] = fits.weights
            found.append(design.score(test, fits.weights, varied))
        scores[float(strength)] = float(np.mean(found))
        best = max(scores, key=lambda one: scores[one])
        if list(scores).index(best) < len(scores) - 2:
            break
    return best, scores, independent


def _independent(train: Floats, test: Floats) -> float:
    """Mean log-likelihood of each spin by its own frequency (add one half to each count)."""
    up = ((train > 0).sum(0) + 0.5) / (len(train) + 1.0)
    odds = np.log(up / (1 - up))
    return float(log_expit(test * odds).mean())


def _binary(values: ArrayLike) -> Floats:
    s = np.asarray(values, dtype=np.float64)
    if s.ndim != 2 or s.shape[1] < 2 or len(s) < 2:
        raise UsageError(f"spins of shape {s.shape}", "two examples of two heads at least")
    if np.isin(s, (0.0, 1.0)).all():
        s = 2.0 * s - 1.0
    if not np.isin(s, (-1.0, 1.0)).all():
        raise UsageError("the spins have other values than -1 and 1", "", "binarise them with `spins`")
    constant = np.flatnonzero(np.abs(s.sum(0)) == len(s))
    if constant.size:
        raise UsageError(
            f"column {int(constant[0])} of the spins is constant",
            "it is coupled to everything and nothing",
            "leave it out",
        )
    return s

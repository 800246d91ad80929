"""Many penalised logistic regressions on one set of predictors, all at once.

Column i of the targets has coefficients w_i and minimises

    mean over examples of log(1 + exp(-y_i (x · w_i))) + Σ_j ridge_j w_ij² / 2   (or  + Σ_j lasso_j |w_ij|)

in *mean*-loss units, whatever the number n of examples: scikit-learn's C is 1/(n · ridge). One gradient of all columns
is two matrix products, which is where the time goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, log_expit

from circuittest.errors import UsageError

Floats = NDArray[np.float64]

TOLERANCE = 1e-8
NEWTON_STEPS, CG_STEPS, LASSO_STEPS = 60, 200, 20_000


@dataclass(frozen=True, eq=False)
class Fits:
    """Coefficients of m regressions.

    Attributes
    ----------
    weights:
        [p × m], zero where a column may not use a predictor.
    gradient:
        The largest violation of the conditions of a minimum, over all coefficients.
    steps:
        Steps taken.
    """

    weights: Floats
    gradient: float
    steps: int


def log_likelihood(predictors: Floats, targets: Floats, weights: Floats) -> Floats:
    """[m] mean log-probability of the targets (±1) in nats."""
    found: Floats = log_expit(targets * (predictors @ weights)).mean(0)
    return found


def ridge_fits(
    predictors: Floats,
    targets: Floats,
    ridge: Floats,
    *,
    own: NDArray[np.intp] | None = None,
    start: Floats | None = None,
    tolerance: float = TOLERANCE,
) -> Fits:
    """Ridge-penalised fits by Newton's method, each step solved by conjugate gradients for all columns together.

    Parameters
    ----------
    predictors, targets:
        [n × p], and [n × m] of ±1.
    ridge:
        [p] penalties; zero for the intercept.
    own:
        [m] the predictor that is the target itself and must keep the coefficient 0; -1 for none.
    start:
        [p × m] where to begin; zero by default.
    tolerance:
        On the largest component of a gradient.

    Raises
    ------
    UsageError
        Where the curvature is singular (two predictors with the same values and no penalty), and where the fit does not
        converge.
    """
    weights = np.zeros((predictors.shape[1], targets.shape[1])) if start is None else start.copy()
    free = _free(weights.shape, own)
    weights *= free
    precondition = _Preconditioner(predictors, ridge, own, weights.shape[1])
    active = np.arange(weights.shape[1])
    norm = np.zeros(weights.shape[1])
    for step in range(NEWTON_STEPS):  # noqa: B007
        w, y, f = weights[:, active], targets[:, active], free[:, active]
        scores = predictors @ w
        miss = expit(-y * scores)
        gradient = (predictors.T @ (-y * miss) / len(y) + ridge[:, None] * w) * f
        norm[active] = np.abs(gradient).max(0)
        left = norm[active] > tolerance
        if not left.any():
            break
        active, w, y, f = active[left], w[:, left], y[:, left], f[:, left]
        scores, miss, gradient = scores[:, left], miss[:, left], gradient[:, left]
        curvature = miss * (1.0 - miss)
        direction = _solve(predictors, curvature, ridge, gradient, f, precondition.of(active))
        weights[:, active] = w + _line_search(predictors, y, ridge, w, scores, direction, gradient)
    else:
        raise UsageError(
            f"{len(active)} logistic fits did not converge",
            f"after {NEWTON_STEPS} steps the largest gradient is {norm.max():.2g}",
            "use a larger penalty",
        )
    return Fits(weights, float(norm.max(initial=0.0)), step)


def lasso_fits(
    predictors: Floats,
    targets: Floats,
    lasso: Floats,
    *,
    own: NDArray[np.intp] | None = None,
    start: Floats | None = None,
    tolerance: float = 1e-6,
) -> Fits:
    """Lasso-penalised fits by accelerated proximal gradients (FISTA), each column restarted where it overshoots.

    Arguments as for `ridge_fits`; `tolerance` is on the largest violation of the conditions of a minimum.
    """
    n = len(predictors)
    weights = np.zeros((predictors.shape[1], targets.shape[1])) if start is None else start.copy()
    free = _free(weights.shape, own)
    weights *= free
    rate = 4.0 * n / float(np.linalg.eigvalsh(predictors.T @ predictors)[-1])
    ahead, momentum = weights.copy(), np.ones(weights.shape[1])
    threshold = lasso[:, None]
    violation = np.inf
    for step in range(LASSO_STEPS):
        if step % 20 == 0:
            slope = predictors.T @ (-targets * expit(-targets * (predictors @ weights))) / n
            at_zero = np.maximum(np.abs(slope) - threshold, 0.0)
            apart = np.where(weights == 0.0, at_zero, np.abs(slope + threshold * np.sign(weights)))
            violation = float((apart * free).max(initial=0.0))
            if violation <= tolerance:
                return Fits(weights, violation, step)
        slope = predictors.T @ (-targets * expit(-targets * (predictors @ ahead))) / n
        moved = ahead - rate * slope
        new = np.sign(moved) * np.maximum(np.abs(moved) - rate * threshold, 0.0) * free
        overshot = ((ahead - new) * (new - weights)).sum(0) > 0
        following = np.where(overshot, 1.0, (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0)
        ahead = new + np.where(overshot, 0.0, (momentum - 1.0) / following) * (new - weights)
        weights, momentum = new, following
    raise UsageError(
        "a logistic fit did not converge",
        f"after {LASSO_STEPS} steps the largest violation is {violation:.2g}",
        "use a larger penalty",
    )


def _free(shape: tuple[int, int], own: NDArray[np.intp] | None) -> Floats:
    """[p × m] one where a column may use a predictor, else zero."""
    free = np.ones(shape)
    if own is not None:
        columns = np.flatnonzero(own >= 0)
        free[own[columns], columns] = 0.0
    return free


class _Preconditioner:
    """The inverse of the largest curvature that the loss can have, XᵀX/4n + ridge, without each column's own predictor.

    One factorisation serves all columns: leaving out predictor i is a rank-one correction with column i of the inverse.
    """

    def __init__(self, predictors: Floats, ridge: Floats, own: NDArray[np.intp] | None, count: int) -> None:
        bound = predictors.T @ predictors / (4.0 * len(predictors)) + np.diag(ridge)
        try:
            inverse = cho_solve(cho_factor(bound), np.eye(len(ridge)))
        except np.linalg.LinAlgError as error:
            raise UsageError(
                "the predictors of a logistic fit determine each other",
                str(error),
                "use a penalty above zero",
            ) from error
        self.inverse: Floats = inverse
        self.own = np.full(count, -1) if own is None else own

    def of(self, active: NDArray[np.intp]) -> _Preconditioner:
        """For some of the columns."""
        part = object.__new__(_Preconditioner)
        part.inverse, part.own = self.inverse, self.own[active]
        return part

    def __call__(self, residual: Floats) -> Floats:
        found: Floats = self.inverse @ residual
        columns = np.flatnonzero(self.own >= 0)
        left_out = self.own[columns]
        share = found[left_out, columns] / self.inverse[left_out, left_out]
        found[:, columns] -= self.inverse[:, left_out] * share
        found[left_out, columns] = 0.0
        return found


def _solve(
    predictors: Floats,
    curvature: Floats,
    ridge: Floats,
    gradient: Floats,
    free: Floats,
    precondition: _Preconditioner,
) -> Floats:
    """[p × m] steps that solve (Xᵀ D_i X/n + ridge) step = -gradient, closer the nearer the minimum is."""
    n = len(predictors)
    step = np.zeros_like(gradient)
    residual = -gradient
    size = np.sqrt((gradient**2).sum(0))
    goal = np.minimum(0.1, np.sqrt(size)) * size
    upright = precondition(residual)
    along = upright.copy()
    product = (residual * upright).sum(0)
    for _ in range(CG_STEPS):
        going = np.sqrt((residual**2).sum(0)) > goal
        if not going.any():
            break
        bent = (predictors.T @ (curvature * (predictors @ along)) / n + ridge[:, None] * along) * free
        length = (along * bent).sum(0)
        alpha = np.divide(product, length, out=np.zeros_like(product), where=going & (length > 0))
        step += alpha * along
        residual = residual - alpha * bent
        upright = precondition(residual)
        new = (residual * upright).sum(0)
        along = upright + np.divide(new, product, out=np.zeros_like(new), where=product > 0) * along
        product = new
    return step


def _line_search(
    predictors: Floats,
    targets: Floats,
    ridge: Floats,
    weights: Floats,
    scores: Floats,
    direction: Floats,
    gradient: Floats,
) -> Floats:
    """[p × m] each column's step, halved until it lowers that column's objective enough (Armijo)."""
    change = predictors @ direction
    slope = (gradient * direction).sum(0)

    def objective(t: Floats) -> Floats:
        loss: Floats = -log_expit(targets * (scores + t * change)).mean(0)
        return loss + 0.5 * (ridge[:, None] * (weights + t * direction) ** 2).sum(0)

    t = np.ones(direction.shape[1])
    before = objective(np.zeros_like(t))
    for _ in range(30):
        # near the minimum the change is below what the sum of losses resolves
        low = objective(t) <= before + 1e-4 * t * slope + 1e-14 * np.abs(before)
        if low.all():
            break
        t = np.where(low, t, t / 2)
    return t * direction

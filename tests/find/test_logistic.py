"""Many logistic regressions at once: the optimum of each, one by one, by another method."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from circuittest.errors import UsageError
from circuittest.find.logistic import lasso_fits, log_likelihood, ridge_fits

Floats = np.ndarray


def correlated(n: int = 300, count: int = 12, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 3)) @ rng.standard_normal((3, count))
    return np.where(common + rng.standard_normal((n, count)) > 0, 1.0, -1.0)


def design(s: Floats) -> tuple[Floats, Floats]:
    return np.concatenate((np.ones((len(s), 1)), s), axis=1), np.arange(s.shape[1]) + 1


def one_by_one(x: Floats, y: Floats, ridge: Floats, left_out: int) -> Floats:
    keep = np.delete(np.arange(x.shape[1]), left_out)
    part, penalty = x[:, keep], ridge[keep]

    def objective(w: Floats) -> tuple[float, Floats]:
        margin = y * (part @ w)
        slope = part.T @ (-y * expit(-margin)) / len(y) + penalty * w
        return -log_expit(margin).mean() + 0.5 * (penalty * w**2).sum(), slope

    found = minimize(objective, np.zeros(len(keep)), jac=True, method="BFGS", options={"gtol": 1e-10})
    weights = np.zeros(x.shape[1])
    weights[keep] = found.x
    return weights


@pytest.mark.parametrize("strength", [0.3, 0.01, 0.0005])
def test_the_optimum_is_that_of_single_fits(strength: float) -> None:
    s = correlated()
    x, own = design(s)
    ridge = np.full(x.shape[1], strength)
    ridge[0] = 0.0
    fits = ridge_fits(x, s, ridge, own=own)
    expected = np.stack([one_by_one(x, s[:, i], ridge, own[i]) for i in range(s.shape[1])], axis=1)
    np.testing.assert_allclose(fits.weights, expected, atol=1e-6)
    assert fits.gradient <= 1e-8


def test_own_predictors_keep_zero_and_a_start_changes_nothing() -> None:
    s = correlated()
    x, own = design(s)
    ridge = np.full(x.shape[1], 0.02)
    cold = ridge_fits(x, s, ridge, own=own)
    assert (cold.weights[own, np.arange(s.shape[1])] == 0).all()
    warm = ridge_fits(
        x, s, ridge, own=own, start=np.random.default_rng(1).standard_normal(cold.weights.shape)
    )
    np.testing.assert_allclose(warm.weights, cold.weights, atol=1e-6)
    again = ridge_fits(x, s, ridge, own=own, start=cold.weights)
    assert again.steps == 0


def test_separable_columns_stay_finite_and_are_at_the_optimum() -> None:
    s = correlated()
    s[:, 5] = s[:, 0]
    x, own = design(s)
    ridge = np.full(x.shape[1], 1e-4)
    fits = ridge_fits(x, s, ridge, own=own)
    assert fits.gradient <= 1e-8
    assert np.abs(fits.weights).max() > 3
    np.testing.assert_allclose(fits.weights[:, 5], one_by_one(x, s[:, 5], ridge, own[5]), atol=1e-3)


def test_lasso_meets_the_conditions_of_its_minimum() -> None:
    s = correlated()
    x, own = design(s)
    lasso = np.full(x.shape[1], 0.05)
    lasso[0] = 0.0
    w = lasso_fits(x, s, lasso, own=own).weights
    slope = -x.T @ (s * expit(-s * (x @ w))) / len(s)
    free = np.ones_like(w, dtype=bool)
    free[own, np.arange(s.shape[1])] = False
    used = (w != 0) & free
    assert 0 < (used[1:]).mean() < 0.6
    np.testing.assert_allclose((slope + lasso[:, None] * np.sign(w))[used], 0.0, atol=2e-6)
    assert (np.abs(slope)[~used & free] <= 0.05 + 2e-6).all()
    assert (w[own, np.arange(s.shape[1])] == 0).all()


def test_a_lasso_beyond_every_slope_leaves_intercepts_only() -> None:
    s = correlated()
    x, own = design(s)
    lasso = np.full(x.shape[1], 1.0)
    lasso[0] = 0.0
    w = lasso_fits(x, s, lasso, own=own).weights
    assert (w[1:] == 0).all()
    up = (s > 0).mean(0)
    np.testing.assert_allclose(w[0], np.log(up / (1 - up)), atol=1e-4)


def test_likelihood_by_hand() -> None:
    x, y = np.array([[1.0], [1.0]]), np.array([[1.0], [-1.0]])
    expected = (np.log(1 / (1 + np.exp(-2.0))) + np.log(1 / (1 + np.exp(2.0)))) / 2
    np.testing.assert_allclose(log_likelihood(x, y, np.array([[2.0]])), [expected])


def test_predictors_that_determine_each_other_need_a_penalty() -> None:
    s = correlated()
    x = np.concatenate((s, s), axis=1)
    with pytest.raises(UsageError, match="determine each other"):
        ridge_fits(x, s, np.zeros(x.shape[1]))

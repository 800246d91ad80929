"""Ising couplings by pseudolikelihood: known models recovered, and what has no couplings or no finite ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.find.ising import GRID, fit_ising, spins
from tests.find.test_logistic import design, one_by_one


def draws(fields: np.ndarray, couplings: np.ndarray, n: int, seed: int = 0) -> np.ndarray:
    """Exact draws of a small Ising model, over all of its states."""
    states = np.array(list(product((-1.0, 1.0), repeat=len(fields))))
    energy = states @ fields + np.einsum("si,ij,sj->s", states, couplings, states) / 2
    p = np.exp(energy - energy.max())
    return states[np.random.default_rng(seed).choice(len(states), n, p=p / p.sum())]


def two_blocks(count: int = 8, inside: float = 0.4) -> np.ndarray:
    couplings = np.zeros((count, count))
    half = count // 2
    couplings[:half, :half] = couplings[half:, half:] = inside
    np.fill_diagonal(couplings, 0.0)
    return couplings


def test_known_couplings_and_fields_are_recovered() -> None:
    couplings = np.zeros((6, 6))
    for i, j, value in ((0, 1, 0.6), (1, 2, -0.4), (3, 4, 0.3)):
        couplings[i, j] = couplings[j, i] = value
    fields = np.array([0.2, 0.0, -0.3, 0.0, 0.1, 0.0])
    fit = fit_ising(draws(fields, couplings, 40_000), strength=1e-6)
    np.testing.assert_allclose(fit.couplings, couplings, atol=0.03)
    np.testing.assert_allclose(fit.fields, fields, atol=0.03)
    assert (np.diagonal(fit.couplings) == 0).all()
    assert (fit.couplings == fit.couplings.T).all()
    assert fit.asymmetry < 0.05
    assert fit.separable == ()


def test_a_common_cause_is_no_coupling_of_those_it_reaches() -> None:
    couplings = np.zeros((5, 5))  # 0 drives all others
    couplings[0, 1:] = couplings[1:, 0] = 0.8
    s = draws(np.zeros(5), couplings, 20_000)
    fit = fit_ising(s, strength=1e-4)
    assert np.corrcoef(s[:, 1], s[:, 2])[0, 1] > 0.3
    assert np.abs(fit.couplings[1:, 1:]).max() < 0.05 < 0.7 < fit.couplings[0, 1:].min()


def test_covariates_take_what_they_explain() -> None:
    couplings = np.zeros((5, 5))
    couplings[0, 1:] = couplings[1:, 0] = 0.8
    s = draws(np.zeros(5), couplings, 4_000)
    without = fit_ising(s[:, 1:], strength=0.01).couplings
    adjusted = fit_ising(s[:, 1:], strength=0.01, covariates=s[:, :1])
    assert without[0, 1] > 0.1
    assert np.abs(adjusted.couplings).max() < 0.06
    assert adjusted.covariates.shape == (1, 4)
    assert (adjusted.covariates > 0.6).all()


def test_the_penalty_is_chosen_by_held_out_examples() -> None:
    coupled = fit_ising(draws(np.zeros(8), two_blocks(), 400))
    alone = fit_ising(np.where(np.random.default_rng(0).random((120, 10)) < 0.5, 1.0, -1.0))
    assert coupled.gain is not None
    assert coupled.gain > 0.1
    assert alone.gain is not None
    assert alone.gain < 0.005
    assert alone.strength > coupled.strength
    assert coupled.strength == max(coupled.held_out, key=lambda one: coupled.held_out[one])
    assert set(coupled.held_out) <= set(GRID)


def test_the_score_of_a_penalty_is_that_of_examples_outside_its_fold() -> None:
    s = draws(np.zeros(6), two_blocks(6), 60)
    fit = fit_ising(s, grid=(0.05,), folds=2, seed=3)
    order = np.random.Generator(np.random.PCG64(3)).permutation(60)
    scores = []
    for test in (order[::2], order[1::2]):
        train = np.setdiff1d(np.arange(60), test)
        for i in range(6):  # the estimates before they are made symmetric are those that predict
            x, own = design(s[train])
            ridge = np.full(7, 0.05)
            ridge[0] = 0.0
            w = one_by_one(x, s[train][:, i], ridge, own[i])
            margin = s[test][:, i] * (design(s[test])[0] @ w)
            scores.append(-np.log1p(np.exp(-margin)).mean())
    assert fit.held_out[0.05] == pytest.approx(np.mean(scores), abs=1e-4)


def test_separable_spins_are_finite_and_named() -> None:
    rng = np.random.default_rng(0)
    s = np.where(rng.random((100, 6)) < 0.5, 1.0, -1.0)
    s[:, 4] = s[:, 1]
    fit = fit_ising(s)
    assert fit.separable == (1, 4)
    assert np.isfinite(fit.couplings).all()
    assert np.unravel_index(np.abs(fit.couplings).argmax(), (6, 6)) == (1, 4)


def test_more_heads_than_examples_are_separable() -> None:
    s = np.where(np.random.default_rng(0).random((20, 40)) < 0.5, 1.0, -1.0)
    s[0], s[1] = 1.0, -1.0
    assert len(fit_ising(s, strength=0.1).separable) == 40


def test_lasso_finds_which_couplings_there_are() -> None:
    couplings = np.zeros((8, 8))
    for i in range(0, 8, 2):
        couplings[i, i + 1] = couplings[i + 1, i] = 0.5
    fit = fit_ising(draws(np.zeros(8), couplings, 2_000), penalty="l1", strength=0.1)
    assert ((fit.couplings != 0) == (couplings != 0)).all()


def test_zeros_and_ones_are_the_same_spins() -> None:
    s = draws(np.zeros(4), two_blocks(4), 200)
    np.testing.assert_array_equal(
        fit_ising(s, strength=0.1).couplings, fit_ising((s + 1) / 2, strength=0.1).couplings
    )


def test_spins_are_strictly_above_the_median() -> None:
    signal = np.array(
        [[0.1, 1.0, 0.5, 0.0], [0.2, 1.0, 0.5, 1.0], [0.3, 0.9, 0.5, 1.0], [0.4, 1.0, 0.5, 0.0]]
    )
    cut = spins(signal)
    assert cut.kept == (0, 3)
    np.testing.assert_array_equal(cut.values, [[-1, -1], [-1, 1], [1, 1], [1, -1]])
    assert sorted(cut.left_out) == [1, 2]
    assert "3 of 4 examples have its largest value 1" in cut.left_out[1]
    assert "4 of 4" in cut.left_out[2]
    np.testing.assert_array_equal(cut.up, [0.5, 0.5])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros((4, 3)) - 1, "column 0 of the spins is constant"),
        (np.full((4, 3), 0.5), "other values than -1 and 1"),
        (np.ones((4, 1)), "two heads"),
    ],
)
def test_bad_spins_are_refused(values: np.ndarray, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fit_ising(values)


def test_bad_choices_are_refused() -> None:
    s = draws(np.zeros(4), two_blocks(4), 50)
    with pytest.raises(UsageError, match="penalty of 0"):
        fit_ising(s, strength=0)
    with pytest.raises(UsageError, match="unknown penalty"):
        fit_ising(s, penalty="l3")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="folds"):
        fit_ising(s, folds=1)
    with pytest.raises(UsageError, match="covariates"):
        fit_ising(s, covariates=np.zeros((3, 1)))
    with pytest.raises(UsageError, match="not finite"):
        spins(np.array([[np.nan, 1.0], [0.0, 1.0]]))


def test_a_spin_that_is_hardly_ever_up_does_not_hide_the_couplings_of_others() -> None:
    rng = np.random.default_rng(0)
    coupled = spins(rng.standard_normal((60, 6)) + 1.2 * rng.standard_normal((60, 1))).values
    rare = -np.ones((60, 3))
    rare[[5, 25, 45], [0, 1, 2]] = 1.0  # constant in the two folds that lack the example
    alone, beside = fit_ising(coupled), fit_ising(np.hstack((coupled, rare)))
    assert alone.gain is not None
    assert beside.gain is not None
    assert beside.gain == pytest.approx(alone.gain, rel=0.1)
    assert beside.strength == alone.strength

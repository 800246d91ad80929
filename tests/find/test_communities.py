"""Communities: planted groups of signals come back, k is chosen by what repeats, and a proposal is no circuit."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UsageError
from circuittest.find.communities import AFFINITIES, Community, Judgement, best_k, choose_k, structure
from circuittest.find.spectral import spectral_clusters
from circuittest.units import Layout, Unit

HEADS = Layout(n_layers=3, n_heads=8, n_kv_heads=8).units(("head",))
GROUPS = np.repeat(np.arange(4), 6)


def grouped(n: int = 300, loading: float = 1.0, seed: int = 0) -> np.ndarray:
    """Signals of 24 heads in four groups of six, each group with a cause of its own."""
    rng = np.random.default_rng(seed)
    causes = rng.standard_normal((n, 4))
    return loading * causes[:, GROUPS] + rng.standard_normal((n, len(HEADS)))


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_planted_groups_come_back(affinity: str) -> None:
    found = structure(grouped(), HEADS, affinity=affinity)  # type: ignore[arg-type]
    assert found.units == HEADS
    np.testing.assert_array_equal(spectral_clusters(np.abs(found.matrix), 4), GROUPS)
    assert (found.ising is not None) == (affinity == "ising")


def test_k_is_the_one_that_repeats() -> None:
    signal = grouped()
    scores = choose_k(signal, structure(signal, HEADS), HEADS, (2, 4, 8))
    assert best_k(scores) == 4
    assert scores[4] > 0.9
    noise = np.random.default_rng(0).standard_normal((300, len(HEADS)))
    of_noise = choose_k(noise, structure(noise, HEADS, strength=0.1), HEADS, (2, 4, 8))
    assert max(abs(score) for score in of_noise.values()) < 0.15


def test_the_smaller_of_equal_k_is_taken_and_undefined_ones_are_not() -> None:
    assert best_k({8: 0.5, 4: 0.5, 2: 0.1}) == 4
    assert best_k({8: float("nan"), 4: -0.5}) == 4
    with pytest.raises(UsageError, match="no number of clusters"):
        best_k({8: float("nan")})


def test_heads_that_do_not_vary_are_named() -> None:
    signal = grouped()
    signal[:, 3] = 1.0
    signal[10:, 7] = 2.0  # the largest value by far, on most examples
    signal[:, 7] = np.minimum(signal[:, 7], 2.0)
    found = structure(signal, HEADS)
    assert set(found.left_out) == {HEADS[3], HEADS[7]}
    assert "constant: 300 of 300 examples" in found.left_out[HEADS[3]]
    assert found.matrix.shape == (22, 22)
    with pytest.raises(UsageError, match="22 of 24 heads are constant"):
        structure(np.where(np.arange(24) < 2, signal, 1.0), HEADS)


def test_heads_without_any_coupling_are_named() -> None:
    signal = grouped()
    signal[:, 23] = np.random.default_rng(5).standard_normal(300)
    found = structure(signal, HEADS, penalty="l1", strength=0.12)
    assert "no ising affinity to any other" in found.left_out[HEADS[23]]
    assert HEADS[23] not in found.units
    assert found.rows([found.units[3], found.units[1]]) == [3, 1]


def test_covariates_explain_a_group_away() -> None:
    rng = np.random.default_rng(0)
    route = rng.random(600) < 0.5
    signal = np.where(route[:, None], 2.0, 0.0) + rng.standard_normal((600, len(HEADS)))
    plain = structure(signal, HEADS)
    adjusted = structure(
        signal, HEADS, covariates=route[:, None].astype(float), strength=plain.ising.strength
    )  # type: ignore[union-attr]
    assert np.abs(adjusted.matrix).mean() < 0.6 * np.abs(plain.matrix).mean()
    with pytest.raises(UsageError, match="covariates with the affinity 'pearson'"):
        structure(signal, HEADS, affinity="pearson", covariates=route[:, None])


def test_bad_input_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown affinity"):
        structure(grouped(), HEADS, affinity="cosine")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="for 3 heads"):
        structure(grouped(), HEADS[:3])


def test_a_proposal_is_no_circuit_before_closure_has_found_it_load_bearing() -> None:
    units = (Unit("head", 0, 1), Unit("head", 1, 2))
    community = Community("C1", units, 3.0, origin={"method": "co-activation", "prompts": ["abc"]})
    assert community.verdict == "proposed"
    with pytest.raises(UsageError, match="C1 is a proposal and no circuit: closure has not judged it"):
        community.circuit
    for verdict in ("interfering", "none", "undecided", "invalid"):
        judged = Community("C1", units, 3.0, judgement=Judgement(verdict, "so it is", {}, {}))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"C1 is {verdict} and no circuit: so it is"):
            judged.circuit
    passed = Community(
        "C1", units, 3.0, judgement=Judgement("load-bearing", "", {}, {}), origin=community.origin
    )
    assert passed.circuit.units == units
    assert passed.circuit.seen() == {"abc"}

"""Heads that are co-active within a route of a mixture, and no circuit: ablation improves the answer, and closure says so."""

from __future__ import annotations

import pytest

from circuittest.errors import UnsupportedModel, UsageError
from circuittest.lab import Lab
from tests.helpers import tiny
from tests.helpers.planted_mixture import CARRIER, FOLLOWERS, QUERY_P, READER, build, task


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab(build(), task(300, 120))


def test_what_the_module_says_is_true(lab: Lab) -> None:
    sets = [(), FOLLOWERS, (CARRIER,), (READER,)]
    outcomes = lab.outcomes(sets)
    assert outcomes.measure("argmax").mean(1).tolist() == [1, 1, 0, 0]
    gain = outcomes.measure("logit_diff")[1] - outcomes.measure("logit_diff")[0]
    after_p = [item.prompt_ids[-1] == QUERY_P for item in lab.data.evaluate]
    assert all((value > 0.1) == p for value, p in zip(gain, after_p, strict=True))
    chosen = lab.routing("evaluate").values.argmax(2)
    assert (chosen == [[0 if p else 1] for p in after_p]).all()
    table = lab.signals("evaluate").largest
    columns = [table.members.index(unit) for unit in FOLLOWERS]
    alike = table.values[:, columns] > 0.75
    assert (alike[after_p] == alike[after_p][:, :1]).all()
    assert not (alike == alike[:, :1]).all()


@pytest.mark.slow
def test_a_community_of_a_route_interferes_and_is_no_circuit(lab: Lab) -> None:
    strata = lab.routes(2)
    (after_p,) = {
        int(s)
        for s, item in zip(strata.evaluate, lab.data.evaluate, strict=True)
        if item.prompt_ids[-1] == QUERY_P
    }
    found = lab.communities(
        routes=2, stratum=after_p, k=8, smallest_stratum=40, nulls=9, smallest=3, most=1, matches=("layer",)
    )
    (judged,) = [one for one in found.communities if one.judgement]
    assert judged.units == FOLLOWERS
    assert judged.p["layer"] is not None
    assert judged.p["layer"] < 0.05  # it is there on other examples, too,
    assert found.route["null"]["p_size"] == 0.1  # goes together more than in random strata,
    assert judged.verdict == "interfering"  # and is no circuit
    assert judged.outside is not None
    assert judged.outside.verdict != "load-bearing"
    assert found.circuits == ()
    with pytest.raises(UsageError, match="is interfering and no circuit"):
        judged.circuit
    assert found.structure.ising is not None
    assert found.structure.ising.separable  # four spins that are one: finite by the penalty only


def test_heads_that_never_vary_are_out_of_its_sight(lab: Lab) -> None:
    found = lab.communities(k=8, strength=0.03, judge=False)
    for unit in (CARRIER, READER):
        assert "constant" in found.structure.left_out[unit]


def test_the_route_as_a_covariate_is_recorded(lab: Lab) -> None:
    found = lab.communities(routes=2, k=8, strength=0.03, judge=False)
    assert found.route["variant"] == "covariate"
    assert found.structure.ising is not None
    assert found.structure.ising.covariates.shape[0] == 1
    assert found.choices["routes"] == 2


def test_small_and_missing_strata_are_refused(lab: Lab) -> None:
    with pytest.raises(UsageError, match=r"stratum 0 has \d+ evaluation examples"):
        lab.communities(routes=2, stratum=0, judge=False)
    with pytest.raises(UsageError, match="stratum 5 of 2"):
        lab.communities(routes=2, stratum=5, judge=False)


def test_a_dense_model_has_no_routes() -> None:
    with pytest.raises(UnsupportedModel, match="no routing"):
        Lab(tiny.build_loaded("llama"), task(40, 40)).communities(routes=2, stratum=0)
